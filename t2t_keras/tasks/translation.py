"""Translation: strings in, strings out, all in one graph (paper, section 6.1).

`Translator` is the place to start: it encodes texts, runs the beam search and decodes the result.
Two further computations need a given translation: `sequence_log_prob`, its log-probability by one
pass of teacher forcing, and `align`, which spans of the source its tokens attend to.
"""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.batching import shift_right
from t2t_keras.decoding.hypotheses import LengthPenalty
from t2t_keras.errors import InputError
from t2t_keras.graphs import model_function
from t2t_keras.tasks.search import SearchPredictor
from t2t_keras.tasks.text_io import (
    Reader,
    as_tensor,
    language_codes,
    predict,
    warn_truncated,
    without_repeats,
)

_N_BEST_PATIENCE = 2
"""An n-best search ends after this many times the steps of the best hypothesis."""

_MAX_LENGTH_RATIO = 1.5
"""A search does not wait for hypotheses longer than this many times the best finished one."""

_MAX_POSITIONS = 4096
"""Target positions whose logits are in memory together: 0.5 GB for 32,000 tokens in float32."""
_VOCABULARY = 32_000
"""Of a larger vocabulary fewer positions are."""

_TEXTS = tf.TensorSpec([None], tf.string)


class Translation(NamedTuple):
    """One translation of one sentence.

    Attributes:
        text: str.
        score: float, log P / length penalty: higher is better, 0 is certain. If a sentence has no
            further translation, the text is empty and the score -inf.
    """

    text: str
    score: float


class Translations(NamedTuple):
    """The translations of a batch, as tensors.

    Attributes:
        texts: string [batch, n_best], best first.
        scores: float32 [batch, n_best]; -inf if a sentence has no further translation.
        truncated: bool [batch], whether the source was longer than the translator's limit, or the
            prefix longer than the longest translation.
    """

    texts: tf.Tensor
    scores: tf.Tensor
    truncated: tf.Tensor


class Translator(SearchPredictor):
    """Translates text with a model and a tokenizer.

    A source is encoded as its tokens and the end token. A translation is at most
    `max_extra_tokens` longer than its source, or than its prefix if that is longer. It is never
    longer than max_source_length + max_extra_tokens, `max_target_length` or the model's maximum
    length; a longer prefix is truncated, with a warning. A text without tokens (empty, only spaces)
    has the empty translation. The Python methods run the same graph that is exported. A translator
    can be pickled.

    Args:
        model: `Transformer`, or a model that offers a search the same methods.
        tokenizer: `Tokenizer`.
        beam_size: live hypotheses of a sentence; 1 is greedy search.
        length_penalty: α of the score; values above 0 favor longer translations.
        max_extra_tokens: tokens by which a translation may exceed its source or its prefix.
        max_source_length: maximum tokens of a source, including its end; the rest is dropped.
        max_target_length: maximum tokens of a translation, including its end; None: no other limit.
        length_penalty_offset: k of the score log P / ((k + length) / (k + 1))^α; 5 is the paper's,
            0 makes it log P / length^α.
        exhaustive: whether a search ends only when no hypothesis of any length up to the limit can
            be among the results, as with `early_stopping="never"` in Hugging Face; slower. Else it
            does not wait for hypotheses of more than 1.5 times the length of the best.

    Call arguments:
        texts: str each, in any iterable, string tensor or `tf.data.Dataset`; they are one batch,
            and `predict` takes any number of them.
        prefix: the beginning of each translation, in the same forms as texts; None: none.
        source_language, target_language: of a model of many languages, whose codes are
            `languages`: a code for all texts, or one for each in the same forms as texts. None: a
            model of two languages, or one that does not read the source's language.

    Returns:
        List of str, the best translation of each text.

    Attributes:
        precompute: function (key, make) → tensor, which keeps tensors that depend on weights alone,
            see `Transformer.run_search`. An export sets it on a copy.
        languages: `LanguageTemplate` of the tokenizer; None for a model of two languages.

    Raises:
        InputError: if a setting is out of range, or the vocabulary sizes of model and tokenizer
            differ.

    Example:
        >>> translator = t2t.Translator(model, tokenizer, beam_size=4, length_penalty=0.6)
        >>> [translation] = translator(["The old man sees a small dog."])
        >>> best, second = translator.n_best(["The old man sees a small dog."], 2)[0]
        >>> best.text == translation, best.score >= second.score
        (True, True)
        >>> found = translator.predict(tf.data.TextLineDataset(["test.en"]), batch_size=64)
    """

    task = "translation"
    setting_names = (
        "beam_size",
        "length_penalty",
        "max_extra_tokens",
        "max_source_length",
        "max_target_length",
        "length_penalty_offset",
        "exhaustive",
    )

    def __init__(
        self,
        model,
        tokenizer,
        beam_size=4,
        length_penalty=0.6,
        max_extra_tokens=50,
        max_source_length=512,
        max_target_length=None,
        length_penalty_offset=5.0,
        exhaustive=False,
    ):
        super().__init__(
            model,
            tokenizer,
            beam_size=beam_size,
            length_penalty=length_penalty,
            max_extra_tokens=max_extra_tokens,
            max_source_length=max_source_length,
            max_target_length=max_target_length,
            length_penalty_offset=length_penalty_offset,
            exhaustive=exhaustive,
        )
        self.languages = getattr(tokenizer, "languages", None)
        longest = model.max_length or max_source_length + max_extra_tokens
        self.max_source_length = min(max_source_length, longest)
        self.sources = Reader(tokenizer, self.max_source_length)
        longest = min(max_source_length + max_extra_tokens, longest)
        self.targets = Reader(tokenizer.target, min(longest, max_target_length or longest))

    def __call__(self, texts, prefix=None, source_language=None, target_language=None):
        """Returns the best translation of each text.

        Args:
            texts: str each, in a list, a generator, a NumPy array, a pandas column, a string tensor
                or a `tf.data.Dataset`. They are one batch; see `predict` for more than some 100.
            prefix: the beginning of each translation, in the same forms as texts; "" or None: none.
            source_language, target_language: see `Translator`.

        Returns:
            List of str.

        Raises:
            InputError: if texts is a single string, an element is not a string, prefix has another
                length, a language is missing or unknown, or the model has no languages.
        """
        texts, prefix = _as_tensors(texts, prefix)
        languages = language_codes(self.languages, len(texts), source_language, target_language)
        best, found = self.best_texts(texts, prefix, *languages)
        warn_truncated(found.truncated)
        return best

    def predict(self, texts, batch_size=64, verbose=0, source_language=None, target_language=None):
        """Returns what a call returns, for any number of texts.

        Args:
            texts, source_language, target_language: as in a call.
            batch_size: int, texts that are computed together, those of similar length.
            verbose: 1 shows a progress bar.

        Returns:
            List of str, in the order of the texts.

        Raises:
            InputError: as in a call.
        """
        texts = self.as_list(texts)
        languages = language_codes(self.languages, len(texts), source_language, target_language)
        if not languages:
            return super().predict(texts, batch_size, verbose)

        def translate(rows):
            texts, *languages = zip(*rows, strict=True)
            return self(texts, None, *languages)

        rows = zip(texts, *(codes.numpy() for codes in languages), strict=True)
        return predict(translate, list(rows), batch_size, verbose, lambda row: len(row[0]))

    def n_best(
        self,
        texts,
        n=None,
        prefix=None,
        unique=False,
        source_language=None,
        target_language=None,
    ):
        """Returns the n best translations of each text, best first.

        Args:
            texts, prefix, source_language, target_language: as in a call.
            n: int up to beam_size; beam_size if None.
            unique: bool. Several of the n hypotheses may have one text, since a text has several
                segmentations into tokens; True keeps the best of them.

        Returns:
            A list of n `Translation` for each text; a score of -inf means that there are no more.
            With `unique`, those of the n that differ, which may be fewer.
            If fewer than n hypotheses finish within twice the steps of the best one, the last
            translations are unfinished.

        Raises:
            InputError: if n is out of range, or as in a call.
        """
        texts, prefix = _as_tensors(texts, prefix)
        languages = language_codes(self.languages, len(texts), source_language, target_language)
        rows, found = self.best_rows(n, texts, prefix, *languages)
        warn_truncated(found.truncated)
        rows = [[Translation(*pair) for pair in row] for row in rows]
        return [without_repeats(row) for row in rows] if unique else rows

    @model_function(input_signature=[_TEXTS] * 4)
    def _best(self, texts, prefixes, source_language=None, target_language=None):
        return self.translate(texts, prefixes, 1, source_language, target_language)

    @model_function(input_signature=[_TEXTS] * 4)
    def _beam(self, texts, prefixes, source_language=None, target_language=None):
        return self.translate(texts, prefixes, self.beam_size, source_language, target_language)

    @model_function(input_signature=[_TEXTS] * 4)
    def _score(self, texts, translations, source_language=None, target_language=None):
        return self.score(texts, translations, source_language, target_language)

    def translate(self, texts, prefixes=None, n_best=1, source_language=None, target_language=None):
        """Translates inside a graph.

        Args:
            texts: string [batch].
            prefixes: string [batch] or None, how each translation must begin; "" imposes nothing.
            n_best: int up to beam_size.
            source_language, target_language: string [batch], codes, for a model of many languages;
                see `LanguageTemplate.first_ids`.

        Returns:
            `Translations`.
        """
        with ops.on_host():
            first, target_first = self._first_ids(source_language, target_language)
            sources = self.sources.encode(texts, first)
            prefix_ids, clipped = self._prefix_ids(sources.ids, prefixes, target_first)
        hypotheses = self.search(sources.ids, prefix_ids, n_best)
        with ops.on_host():
            shape = tf.shape(hypotheses.ids)
            ids = tf.reshape(hypotheses.ids, [shape[0] * n_best, shape[2]])
            texts = self.tokenizer.target.decode(ids)
            texts = tf.reshape(texts, [shape[0], n_best])
        return Translations(texts, hypotheses.scores, sources.truncated | clipped)

    def encode(self, texts, source_language=None, target_language=None):
        """Returns the source ids of texts string [batch]: int32 [batch, source].

        Languages are those of `translate`.
        """
        first, _ = self._first_ids(source_language, target_language)
        return self.sources.encode(texts, first).ids

    def translate_ids(self, source_ids, target_language=None):
        """Returns the best translations of source ids, inside a graph.

        Args:
            source_ids: int32 [batch, source], each within the vocabulary; padding is dropped and
                a missing end appended, see `Reader.from_ids`. A language's token is one of them.
            target_language: string [batch], as in `translate`.

        Returns:
            `Hypotheses` [batch, beam_size]; the empty one for a source without tokens.
        """
        source_ids = self.sources.from_ids(source_ids).ids
        target_first = None
        if self.languages is not None:
            # Any known language: the ids have the token of the source's already.
            known = tf.fill(tf.shape(target_language), self.languages.codes[0])
            _, target_first = self._first_ids(known, target_language)
        prefix_ids, _ = self._prefix_ids(source_ids, first_ids=target_first)
        return self.search(source_ids, prefix_ids, self.beam_size)

    def score(self, texts, translations, source_language=None, target_language=None):
        """Returns the log-probabilities of given translations, inside a graph or outside.

        Args:
            texts: string [batch], or outside of a graph a list of str.
            translations: a translation of each text, in the same form; each is truncated to the
                length of the longest translation that a search may return.
            source_language, target_language: as in `translate`, or outside of a graph as in a call.

        Returns:
            `Scores`. A search's score is log P / length penalty.

        Raises:
            InputError: if there is not one translation for each text, or as in a call.
        """
        if not (tf.inside_function() or tf.is_tensor(texts)):
            texts, translations = _as_tensors(texts, translations, "translations")
            languages = language_codes(self.languages, len(texts), source_language, target_language)
            return self._score(texts, translations, *languages)
        first, target_first = self._first_ids(source_language, target_language)
        source_ids = self.sources.encode(texts, first).ids
        target_ids = self.targets.encode(translations, target_first).ids
        return sequence_log_prob(
            self.model,
            source_ids,
            target_ids,
            self.tokenizer.bos_id,
            free_prefix=int(target_first is not None),
            vocab_size=self.tokenizer.target.vocab_size,
        )

    def align(self, texts, translations, source_language=None, target_language=None):
        """Returns the cross-attention of given translations, inside a graph.

        Args:
            texts: string [batch].
            translations: string [batch], truncated as in `score`.
            source_language, target_language: as in `translate`.

        Returns:
            `Alignment`.
        """
        first, target_first = self._first_ids(source_language, target_language)
        sources = self.sources.encode_with_offsets(texts, first)
        target_ids = self.targets.encode(translations, target_first).ids
        return align(self.model, self.tokenizer, sources, target_ids)

    def search(self, source_ids, prefix_ids=None, n_best=1):
        """Returns the best translations of encoded sources.

        Args:
            source_ids: int32 [batch, source], each source with its end token, then 0.
            prefix_ids: int32 [batch, prefix] or None, how each translation must begin, then 0.
            n_best: int up to beam_size.

        Returns:
            `Hypotheses` [batch, n_best].
        """
        lengths = _lengths(source_ids)
        if prefix_ids is not None:
            lengths = tf.maximum(lengths, _lengths(prefix_ids))
        limit = min(self.targets.limit, self.max_target_length or self.targets.limit)
        return self.run_beam_search(
            self.model.initial_state(self.model.encode(source_ids), self.beam_size),
            tf.minimum(lengths + self.max_extra_tokens, limit),
            n_best,
            length_penalty=LengthPenalty(self.length_penalty, self.length_penalty_offset),
            prefix_ids=prefix_ids,
            free_prefix=int(self._forces_target),
            n_best_patience=None if self.exhaustive else _N_BEST_PATIENCE,
            max_length_ratio=None if self.exhaustive else _MAX_LENGTH_RATIO,
        )

    @property
    def _forces_target(self):
        return self.languages is not None and self.languages.forces_target

    def _first_ids(self, source_language, target_language):
        """Returns the languages' tokens of sources and targets, int32 [batch] or None."""
        if self.languages is None:
            return None, None
        return self.languages.first_ids(source_language, target_language)

    def _prefix_ids(self, source_ids, prefixes=None, first_ids=None):
        """Returns the prefixes' tokens, or the end for an empty source, and which were truncated.

        Args:
            source_ids: int32 [batch, source].
            prefixes: string [batch] or None.
            first_ids: int32 [batch] or None, the tokens of the targets' languages.

        Returns:
            int32 [batch, prefix], and bool [batch].
        """
        end_id = self.tokenizer.eos_id
        # [batch], whether a source has no token but its end
        lengths = _lengths(source_ids)
        if self.languages is not None:
            lengths -= _lengths(self.languages.is_language(source_ids))
        empty = lengths == int(self.tokenizer.adds_eos)
        if prefixes is None:
            ids = tf.where(empty, end_id, 0)[:, tf.newaxis]
            if first_ids is not None:
                ids = tf.concat([first_ids[:, tf.newaxis], ids], axis=1)
            return ids, tf.zeros_like(empty)
        ids, truncated = self.targets.encode_prefix(prefixes, first_ids)
        empty &= ids.row_lengths() == int(first_ids is not None)
        ends = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(empty)], end_id), tf.cast(empty, tf.int64)
        )
        return tf.concat([ids, ends], axis=1).to_tensor(), truncated


def _lengths(ids):
    return tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)


def _as_tensors(texts, others, name="prefix"):
    texts = as_tensor(texts)
    count = len(texts)
    others = tf.fill([count], "") if others is None else as_tensor(others, name)
    if len(others) != count:
        raise InputError(
            f"{name} has {len(others)} strings for {count} texts: give one for each text."
        )
    return texts, others


class Scores(NamedTuple):
    """Log-probabilities of given translations.

    Attributes:
        log_probabilities: float32 [batch], natural logarithm of P(target | source).
        lengths: int32 [batch], tokens of the target, including its end.
    """

    log_probabilities: tf.Tensor
    lengths: tf.Tensor


def sequence_log_prob(
    model, source_ids, target_ids, start_id, free_prefix=0, vocab_size=_VOCABULARY
):
    """Returns the log-probability of targets, summed over their tokens in float32.

    Args:
        model: function of a dict of source_ids and target_ids, to logits [batch, target, vocab].
        source_ids: int32 [batch, source], each source with its end token, then 0.
        target_ids: int32 [batch, target], each target with its end token, then 0.
        start_id: int, the decoder's first input.
        free_prefix: int, the first tokens of each target that are certain, log P 0.
        vocab_size: int, the width of the logits; the larger, the fewer rows are computed together.

    Returns:
        `Scores`.
    """
    decoder_ids = shift_right(target_ids, start_id)
    batch, length = tf.unstack(tf.shape(target_ids))
    positions = _MAX_POSITIONS * _VOCABULARY // max(vocab_size, _VOCABULARY)
    rows = tf.maximum(positions // tf.maximum(length, 1), 1)

    def score_rows(start, found):
        source, shifted, target = (
            ids[start : start + rows] for ids in (source_ids, decoder_ids, target_ids)
        )
        logits = tf.cast(model({"source_ids": source, "target_ids": shifted}), tf.float32)
        log_prob = tf.gather(logits, target, axis=2, batch_dims=2)  # [rows, target]
        log_prob -= tf.reduce_logsumexp(logits, axis=2)
        log_prob = tf.where(ops.is_token(target), log_prob, 0.0)[:, free_prefix:]
        return start + rows, tf.concat([found, tf.reduce_sum(log_prob, axis=1)], axis=0)

    _, found = tf.while_loop(
        lambda start, _: start < batch,
        score_rows,
        (tf.constant(0), tf.zeros([0])),
        shape_invariants=(tf.TensorShape([]), tf.TensorShape([None])),
        parallel_iterations=1,
    )
    return Scores(found, tf.math.count_nonzero(target_ids, axis=1, dtype=tf.int32))


class Alignment(NamedTuple):
    """Cross-attention between sources and translations.

    Attributes:
        source_pieces: string [batch, source], the source's tokens, "" on padding.
        target_pieces: string [batch, target], the target's tokens, "" on padding.
        attention: float32 [batch, layers, heads, target, source], the decoder's attention to the
            source when it predicts each target token; 0 on padding.
        spans: int32 [batch, target, 2], begin and end of the source characters that each target
            token attends to most, `text[begin:end]`. 0, 0 for the end token, for padding, and if
            the source has no characters.
    """

    source_pieces: tf.Tensor
    target_pieces: tf.Tensor
    attention: tf.Tensor
    spans: tf.Tensor


def align(model, tokenizer, source, target_ids):
    """Aligns translations with their sources by cross-attention.

    Args:
        model: `Transformer`, or a model whose call returns `AttentionWeights`.
        tokenizer: `Tokenizer`.
        source: `TokenOffsets`, dense [batch, source], of the sources.
        target_ids: int32 [batch, target], each target with its end token, then 0.

    Returns:
        `Alignment`.
    """
    decoder_ids = shift_right(target_ids, tokenizer.bos_id)
    inputs = {"source_ids": source.ids, "target_ids": decoder_ids}
    attention = model(inputs, return_attention_weights=True)[1].cross
    real = ops.is_token(target_ids)  # [batch, target]
    has_span = real & (target_ids != tokenizer.eos_id)
    if getattr(tokenizer, "languages", None) is not None:
        has_span &= ~tokenizer.languages.is_language(target_ids)
    attention *= tf.cast(real, tf.float32)[:, tf.newaxis, tf.newaxis, :, tf.newaxis]
    return Alignment(
        tokenizer.pieces(source.ids),
        tokenizer.target.pieces(target_ids),
        attention,
        _spans(attention, source, has_span),
    )


def _spans(attention, source, has_span):
    """Returns int32 [batch, target, 2]; 0, 0 where has_span, bool [batch, target], is False."""
    weights = tf.reduce_mean(attention[:, -1], axis=1)  # [batch, target, source], last layer
    # The end and padding have no characters, whatever their weight.
    has_characters = (source.ends > source.starts)[:, tf.newaxis]  # [batch, 1, source]
    token = tf.argmax(tf.where(has_characters, weights, -1.0), axis=2)  # [batch, target]
    spans = tf.stack([source.starts, source.ends], axis=2)  # [batch, source, 2]
    spans = tf.gather(spans, token, batch_dims=1)
    return tf.where(has_span[..., tf.newaxis], spans, 0)
