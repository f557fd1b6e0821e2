"""Translation: strings in, strings out, all in one graph (paper, section 6.1).

`Translator` is the place to start: it encodes texts, runs the beam search and decodes the result.
Two further computations need a given translation: `sequence_log_prob`, its log-probability by one
pass of teacher forcing, and `align`, which spans of the source its tokens attend to.
"""

import functools
from typing import ClassVar, NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.batching import shift_right
from t2t_keras.decoding.hypotheses import LengthPenalty
from t2t_keras.errors import InputError
from t2t_keras.graphs import model_function
from t2t_keras.settings import Choice
from t2t_keras.tasks.abbreviations import ABBREVIATIONS
from t2t_keras.tasks.documents import translate_documents
from t2t_keras.tasks.protected_spans import (
    SpanPattern,
    WordAlignment,
    mask_spans,
    translate_around,
    unmask_spans,
)
from t2t_keras.tasks.search import SearchPredictor
from t2t_keras.tasks.terms import Terms, ask, terms_constraint
from t2t_keras.tasks.text_io import (
    Reader,
    as_str,
    as_tensor,
    warn_truncated,
    without_repeats,
)

_N_BEST_PATIENCE = 2
"""An n-best search ends after this many times the steps of the best hypothesis."""

_MAX_LENGTH_RATIO = 1.5
"""A search does not wait for hypotheses longer than this many times the best finished one."""

_MAX_POSITIONS = 4096
"""Target positions whose logits are in memory together: 0.5 GB for 32,000 tokens in float32."""

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
        source_language: the code of the sources' language, such as "de", whose abbreviations end no
            sentence of a document; "": those of all languages.
        protected_pattern: a pattern (RE2) of spans of documents that are not translated, beside
            those of `protected_spans`, such as r"SKU-\d+"; "": none.

    Call arguments:
        texts: str each, in any iterable, string tensor or `tf.data.Dataset`; they are one batch,
            and `predict` takes any number of them.
        prefix: the beginning of each translation, in the same forms as texts; None: none.
        terms: {source phrase: target phrase}, or `Terms`: translations contain the target phrase
            wherever a text contains the source phrase, see `tasks.terms`; None: none.

    Returns:
        List of str, the best translation of each text.

    Attributes:
        precompute: function (key, make) → tensor, which keeps tensors that depend on weights alone,
            see `Transformer.run_search`. An export sets it on a copy.

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
        "source_language",
        "protected_pattern",
    )
    setting_ranges: ClassVar = {
        "source_language": Choice(("", *ABBREVIATIONS)),
        "protected_pattern": SpanPattern(),
    }

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
        source_language="",
        protected_pattern="",
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
            source_language=source_language,
            protected_pattern=protected_pattern,
        )
        longest = model.max_length or max_source_length + max_extra_tokens
        self.max_source_length = min(max_source_length, longest)
        self.sources = Reader(tokenizer, self.max_source_length)
        longest = min(max_source_length + max_extra_tokens, longest)
        self.targets = Reader(tokenizer.target, min(longest, max_target_length or longest))

    def __call__(self, texts, prefix=None, terms=None):
        """Returns the best translation of each text.

        Args:
            texts: str each, in a list, a generator, a NumPy array, a pandas column, a string tensor
                or a `tf.data.Dataset`. They are one batch; see `predict` for more than some 100.
            prefix: the beginning of each translation, in the same forms as texts; "" or None: none.
            terms: {source phrase: target phrase} for all texts, see `tasks.terms`; None: none.

        Returns:
            List of str.

        Raises:
            InputError: if texts is a single string, an element is not a string, prefix has another
                length, or a term is invalid or longer than a translation may be.
        """
        texts, prefix = _as_tensors(texts, prefix)
        best, found = self.best_texts(texts, prefix, graph=self._graphs(texts, terms)[0])
        warn_truncated(found.truncated)
        return best

    def n_best(self, texts, n=None, prefix=None, unique=False, terms=None):
        """Returns the n best translations of each text, best first.

        Args:
            texts, prefix, terms: as in a call.
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
        rows, found = self.best_rows(n, texts, prefix, graphs=self._graphs(texts, terms))
        warn_truncated(found.truncated)
        rows = [[Translation(*pair) for pair in row] for row in rows]
        return [without_repeats(row) for row in rows] if unique else rows

    def documents(self, texts):
        """Returns the translation of each document, a text of any number of sentences.

        The sentences of all documents are translated as a call translates them, and put back with
        the white space and line breaks between them unchanged. A sentence longer than
        `max_source_length` is divided; no text is dropped. Protected spans, such as "{name}", "<b>"
        and addresses, come through unchanged, each once; see `protected_spans`.

        Args:
            texts: as in a call.

        Returns:
            List of str.

        Raises:
            InputError: as in a call.
        """
        return [as_str(text) for text in self._documents(as_tensor(texts)).numpy()]

    @model_function(input_signature=[_TEXTS])
    def _documents(self, texts):
        def translate(sentences):
            return self._best(sentences, tf.fill(tf.shape(sentences), "")).texts[:, 0]

        def align(sentences, translations):
            return self.align(sentences, translations).spans

        return self.translate_documents(texts, translate, align)

    @model_function(input_signature=[_TEXTS, _TEXTS])
    def _best(self, texts, prefixes):
        return self.translate(texts, prefixes)

    @model_function(input_signature=[_TEXTS, _TEXTS])
    def _beam(self, texts, prefixes):
        return self.translate(texts, prefixes, self.beam_size)

    @model_function(input_signature=[_TEXTS, _TEXTS, _TEXTS])
    def _best_with_terms(self, terms, texts, prefixes):
        return self.translate(texts, prefixes, terms=terms)

    @model_function(input_signature=[_TEXTS, _TEXTS, _TEXTS])
    def _beam_with_terms(self, terms, texts, prefixes):
        return self.translate(texts, prefixes, self.beam_size, terms=terms)

    def _graphs(self, texts, terms):
        """Returns the graphs of the best and of all translations, as functions of other inputs."""
        rows = Terms.of({} if terms is None else terms).rows(texts.numpy())
        if not any(rows):
            return self._best, self._beam
        graphs = self._best_with_terms, self._beam_with_terms
        return tuple(functools.partial(ask, graph, tf.constant(rows)) for graph in graphs)

    @model_function(input_signature=[_TEXTS, _TEXTS])
    def _score(self, texts, translations):
        return self.score(texts, translations)

    def translate(self, texts, prefixes=None, n_best=1, terms=None):
        """Translates inside a graph.

        Args:
            texts: string [batch].
            prefixes: string [batch] or None, how each translation must begin; "" imposes nothing.
            n_best: int up to beam_size.
            terms: string [batch] or None, see `terms_constraint`; "" has none.

        Returns:
            `Translations`.
        """
        constraint = None
        with ops.on_host():
            sources = self.sources.encode(texts)
            prefix_ids, clipped = self._prefix_ids(sources.ids, prefixes)
            if terms is not None:
                # Terms count where the model reads them.
                read = tf.where(sources.truncated, self.tokenizer.decode(sources.ids), texts)
                room = self._max_length - _lengths(prefix_ids)
                constraint = terms_constraint(read, terms, self.tokenizer.target, room)
        hypotheses = self.search(sources.ids, prefix_ids, n_best, constraint)
        with ops.on_host():
            shape = tf.shape(hypotheses.ids)
            ids = tf.reshape(hypotheses.ids, [shape[0] * n_best, shape[2]])
            texts = self.tokenizer.target.decode(ids)
            texts = tf.reshape(texts, [shape[0], n_best])
        return Translations(texts, hypotheses.scores, sources.truncated | clipped)

    def translate_documents(self, texts, translate, align):
        """Translates documents inside a graph, see `documents`.

        Args:
            texts: string [batch].
            translate: function of sentences, string [rows], to their translations, string [rows].
            align: function of sentences and translations to the spans of `Alignment`.

        Returns:
            string [batch].
        """

        def align_words(sentences, translations):
            with ops.on_host():
                tokens = self.targets.encode_with_offsets(translations)
            return WordAlignment(tokens.starts, tokens.ends, align(sentences, translations))

        with ops.on_host():
            masked, spans = mask_spans(texts, self.protected_pattern)
        translated = translate_documents(
            masked,
            lambda sentences: translate_around(sentences, translate, align_words),
            lambda sentences: self.sources.encode(sentences).truncated,
            self.source_language,
        )
        with ops.on_host():
            return unmask_spans(translated, spans)

    def encode(self, texts):
        """Returns the source ids of texts string [batch]: int32 [batch, source]."""
        return self.sources.encode(texts).ids

    def translate_ids(self, source_ids):
        """Returns the best translations of source ids, inside a graph.

        Args:
            source_ids: int32 [batch, source], each within the vocabulary; padding is dropped and
                a missing end appended, see `Reader.from_ids`.

        Returns:
            `Hypotheses` [batch, beam_size]; the empty one for a source without tokens.
        """
        source_ids = self.sources.from_ids(source_ids).ids
        return self.search(source_ids, self._prefix_ids(source_ids)[0], self.beam_size)

    def score(self, texts, translations):
        """Returns the log-probabilities of given translations, inside a graph or outside.

        Args:
            texts: string [batch], or outside of a graph a list of str.
            translations: a translation of each text, in the same form; each is truncated to the
                length of the longest translation that a search may return.

        Returns:
            `Scores`. A search's score is log P / length penalty.

        Raises:
            InputError: if there is not one translation for each text.
        """
        if not (tf.inside_function() or tf.is_tensor(texts)):
            texts, translations = _as_tensors(texts, translations, "translations")
            return self._score(texts, translations)
        source_ids = self.sources.encode(texts).ids
        target_ids = self.targets.encode(translations).ids
        return sequence_log_prob(self.model, source_ids, target_ids, self.tokenizer.bos_id)

    def align(self, texts, translations):
        """Returns the cross-attention of given translations, inside a graph.

        Args:
            texts: string [batch].
            translations: string [batch], truncated as in `score`.

        Returns:
            `Alignment`.
        """
        sources = self.sources.encode_with_offsets(texts)
        target_ids = self.targets.encode(translations).ids
        return align(self.model, self.tokenizer, sources, target_ids)

    @property
    def _max_length(self):
        """The maximum number of tokens of a translation, the end counted."""
        return min(self.targets.limit, self.max_target_length or self.targets.limit)

    def search(self, source_ids, prefix_ids=None, n_best=1, constraint=None):
        """Returns the best translations of encoded sources.

        Args:
            source_ids: int32 [batch, source], each source with its end token, then 0.
            prefix_ids: int32 [batch, prefix] or None, how each translation must begin, then 0.
            n_best: int up to beam_size.
            constraint: `PhraseConstraint` or None, what translations must contain.

        Returns:
            `Hypotheses` [batch, n_best].
        """
        lengths, given = _lengths(source_ids), 0
        if prefix_ids is not None:
            given = _lengths(prefix_ids)
        if constraint is not None:
            given += constraint.phrases.num_tokens()
        return self.run_beam_search(
            self.model.initial_state(self.model.encode(source_ids), self.beam_size),
            tf.minimum(tf.maximum(lengths, given) + self.max_extra_tokens, self._max_length),
            n_best,
            length_penalty=LengthPenalty(self.length_penalty, self.length_penalty_offset),
            prefix_ids=prefix_ids,
            n_best_patience=None if self.exhaustive else _N_BEST_PATIENCE,
            max_length_ratio=None if self.exhaustive else _MAX_LENGTH_RATIO,
            constraint=constraint,
        )

    def _prefix_ids(self, source_ids, prefixes=None):
        """Returns the prefixes' tokens, or the end for an empty source, and which were truncated.

        Returns:
            int32 [batch, prefix], and bool [batch].
        """
        end_id = self.tokenizer.eos_id
        # [batch], whether a source has no token but its end
        empty = _lengths(source_ids) == int(self.tokenizer.adds_eos)
        if prefixes is None:
            return tf.where(empty, end_id, 0)[:, tf.newaxis], tf.zeros_like(empty)
        ids, truncated = self.targets.encode_prefix(prefixes)
        empty &= ids.row_lengths() == 0
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


def sequence_log_prob(model, source_ids, target_ids, start_id):
    """Returns the log-probability of targets, summed over their tokens in float32.

    Args:
        model: function of a dict of source_ids and target_ids, to logits [batch, target, vocab].
        source_ids: int32 [batch, source], each source with its end token, then 0.
        target_ids: int32 [batch, target], each target with its end token, then 0.
        start_id: int, the decoder's first input.

    Returns:
        `Scores`.
    """
    decoder_ids = shift_right(target_ids, start_id)
    batch, length = tf.unstack(tf.shape(target_ids))
    rows = tf.maximum(_MAX_POSITIONS // tf.maximum(length, 1), 1)

    def score_rows(start, found):
        source, shifted, target = (
            ids[start : start + rows] for ids in (source_ids, decoder_ids, target_ids)
        )
        logits = tf.cast(model({"source_ids": source, "target_ids": shifted}), tf.float32)
        log_prob = tf.gather(logits, target, axis=2, batch_dims=2)  # [rows, target]
        log_prob -= tf.reduce_logsumexp(logits, axis=2)
        log_prob = tf.where(ops.is_token(target), log_prob, 0.0)
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
    attention *= tf.cast(real, tf.float32)[:, tf.newaxis, tf.newaxis, :, tf.newaxis]
    return Alignment(
        tokenizer.pieces(source.ids),
        tokenizer.target.pieces(target_ids),
        attention,
        _spans(attention, source, real & (target_ids != tokenizer.eos_id)),
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
