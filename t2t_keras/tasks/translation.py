"""Translation: strings in, strings out, all in one graph (paper, section 6.1).

`Translator` is the place to start: it encodes texts, runs the beam search, or draws samples, and
decodes the result. `translated_tokens.py` has what a search tells of each token, and
`given_translations.py` computes with translations that it is given.
"""

import functools
from typing import ClassVar

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.hypotheses import LengthPenalty
from t2t_keras.decoding.token_records import AttendingModel, TokenRecords
from t2t_keras.errors import InputError
from t2t_keras.graphs import model_function
from t2t_keras.settings import Choice, check_settings
from t2t_keras.tasks.abbreviations import ABBREVIATIONS
from t2t_keras.tasks.documents import translate_documents
from t2t_keras.tasks.given_translations import align, sequence_log_prob
from t2t_keras.tasks.protected_spans import (
    SpanPattern,
    WordAlignment,
    mask_spans,
    translate_around,
    unmask_spans,
)
from t2t_keras.tasks.results import Translation, Translations
from t2t_keras.tasks.search import SearchPredictor, row_seeds
from t2t_keras.tasks.terms import Terms, ask, terms_constraint
from t2t_keras.tasks.text_io import (
    Reader,
    as_str,
    as_tensor,
    warn_truncated,
    without_repeats,
)
from t2t_keras.tasks.translated_tokens import describe_tokens, detailed_translations

_N_BEST_PATIENCE = 2
"""An n-best search ends after this many times the steps of the best hypothesis."""

_MAX_LENGTH_RATIO = 1.5
"""A search does not wait for hypotheses longer than this many times the best finished one."""

_TEXTS = tf.TensorSpec([None], tf.string)


class Translator(SearchPredictor):
    """Translates text with a model and a tokenizer.

    A source is encoded as its tokens and the end token. A translation is at most
    `max_extra_tokens` longer than its source, or than its prefix if that is longer. It is never
    longer than max_source_length + max_extra_tokens, `max_target_length` or the model's maximum
    length; a longer prefix is truncated, with a warning. A text without tokens (empty, only spaces)
    has the empty translation. The Python methods run the same graph that is exported. A translator
    can be pickled, except one of kNN-MT.

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
            those of `protected_spans`, such as "SKU-[0-9]+"; "": none.

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

    def n_best_tokens(self, texts, n=None, prefix=None):
        """Returns the n best translations of each text with their tokens, best first.

        Each token has its log-probability and the part of the source that it attends to most, from
        the search itself. A search without them does not compute them.

        Args:
            texts, n, prefix: as for `n_best`.

        Returns:
            A list of n `DetailedTranslation` for each text.

        Raises:
            InputError: as `n_best`.
        """
        n = self.check_n(n)
        found = self._tokens(*_as_tensors(texts, prefix))
        warn_truncated(found.truncated)
        return [row[:n] for row in detailed_translations(found)]

    def sample(self, texts, n=1, seed=0, temperature=1.0, top_k=None, top_p=None):
        """Draws translations of each text at random, token by token from the model's probabilities.

        Back-translation takes samples, since they vary as real text does, which the best
        translations do not (Edunov et al. 2018).

        Args:
            texts: as in a call.
            n: int, samples of each text.
            seed: int from -2³¹ to 2³¹ - 1, or one for each text. With one for all, sample j of text
                i has the numbers of (seed, n · i + j), with one for each those of (seed[i], j). The
                same numbers and the same text give the same sample, whatever the batch.
            temperature: number above 0 by which logits are divided: lower values make likely tokens
                likelier.
            top_k: int, draw from the k most likely tokens only; None: from all.
            top_p: number above 0, draw from the fewest tokens whose probabilities reach top_p
                together, after temperature and top_k; None: from all.

        Returns:
            A list of n `Translation` for each text, in the order drawn; a score is by the model's
            own probabilities, whatever the temperature; with a shortlist by those over its
            candidates, less its cost of each token.

        Raises:
            InputError: if a setting is out of its range, or as in a call.
        """
        settings = {"samples": n, "temperature": temperature, "top_k": top_k, "top_p": top_p}
        n, temperature, top_k, top_p = check_settings(settings).values()
        texts, _ = _as_tensors(texts, None)
        count = len(texts)
        found = self._draw(
            tf.repeat(texts, n),
            tf.constant(row_seeds(seed, count, n), tf.int32, [count * n, 2]),
            tf.fill([count * n], temperature),
            tf.fill([count * n], top_k or 0),
            tf.fill([count * n], top_p or 1.0),
        )
        warn_truncated(found.truncated[::n])
        drawn = [
            Translation(as_str(text), float(score))
            for [text], [score] in zip(found.texts.numpy(), found.scores.numpy(), strict=True)
        ]
        return [drawn[i : i + n] for i in range(0, count * n, n)]

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
    def _tokens(self, texts, prefixes):
        return self.translate_tokens(texts, prefixes, self.beam_size)

    @model_function(
        input_signature=[
            _TEXTS,
            tf.TensorSpec([None, 2], tf.int32),
            tf.TensorSpec([None], tf.float32),
            tf.TensorSpec([None], tf.int32),
            tf.TensorSpec([None], tf.float32),
        ]
    )
    def _draw(self, texts, seeds, temperature, top_k, top_p):
        return self.draw(texts, seeds, temperature, top_k, top_p)

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
        return self._as_texts(hypotheses, sources.truncated | clipped, n_best)

    def _as_texts(self, hypotheses, truncated, n_best):
        """Returns the `Translations` of `Hypotheses` [batch, n_best]."""
        with ops.on_host():
            shape = tf.shape(hypotheses.ids)
            ids = tf.reshape(hypotheses.ids, [shape[0] * n_best, shape[2]])
            texts = self.tokenizer.target.decode(ids)
            texts = tf.reshape(texts, [shape[0], n_best])
        return Translations(texts, hypotheses.scores, truncated)

    def translate_tokens(self, texts, prefixes=None, n_best=1):
        """Translates inside a graph, with what the search tells of each token.

        Args:
            texts, prefixes, n_best: as for `translate`.

        Returns:
            `TokenTranslations`.
        """
        with ops.on_host():
            truncated = self.sources.encode(texts).truncated
            sources = self.sources.encode_with_offsets(texts)
            prefix_ids, clipped = self._prefix_ids(sources.ids, prefixes)
        has_text = sources.ends > sources.starts

        def find(model, *inputs):
            attending = AttendingModel(model, has_text)
            return self._find_best(attending, *inputs, n_best=n_best, records=TokenRecords)

        found = self.decode(find, sources.ids, prefix_ids)
        with ops.on_host():
            return describe_tokens(found, sources, self.tokenizer.target, truncated | clipped)

    def draw(self, texts, seeds, temperature, top_k, top_p):
        """Draws one sample for each text, inside a graph.

        Args:
            texts: string [batch].
            seeds: int32 [batch, 2].
            temperature, top_k, top_p: float32, int32 and float32 [batch], see `decoding.sample`.

        Returns:
            `Translations` [batch, 1].
        """
        with ops.on_host():
            sources = self.sources.encode(texts)
            prefix_ids, _ = self._prefix_ids(sources.ids)

        def find(model, source_ids, prefix_ids, _, max_lengths):
            return self.run_sampling(
                model,
                model.initial_state(model.encode(source_ids), 1),
                max_lengths,
                seeds=seeds,
                temperature=temperature,
                top_k=top_k,
                top_p=top_p,
                length_penalty=self._penalty,
                prefix_ids=prefix_ids,
            )

        return self._as_texts(self.decode(find, sources.ids, prefix_ids), sources.truncated, 1)

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
        find = functools.partial(self._find_best, n_best=n_best)
        return self.decode(find, source_ids, prefix_ids, constraint)

    def decode(self, find, source_ids, prefix_ids=None, constraint=None):
        """Returns the `Hypotheses` that a search finds for encoded sources.

        Args:
            find: function of the model that is searched, of source_ids, prefix_ids, the constraint,
                and the maximum length of each translation, int32 [batch], to `Hypotheses`.
            source_ids, prefix_ids, constraint: as for `search`.
        """
        lengths, given = _lengths(source_ids), 0
        if prefix_ids is not None:
            given = _lengths(prefix_ids)
        if constraint is not None:
            given += constraint.phrases.num_tokens()
        max_lengths = tf.maximum(lengths, given) + self.max_extra_tokens
        max_lengths = tf.minimum(max_lengths, self._max_length)
        return find(self.model, source_ids, prefix_ids, constraint, max_lengths)

    def _find_best(
        self, model, source_ids, prefix_ids, constraint, max_lengths, *, n_best, **options
    ):
        return self.run_beam_search(
            model.initial_state(model.encode(source_ids), self.beam_size),
            max_lengths,
            n_best,
            model,
            length_penalty=self._penalty,
            prefix_ids=prefix_ids,
            n_best_patience=None if self.exhaustive else _N_BEST_PATIENCE,
            max_length_ratio=None if self.exhaustive else _MAX_LENGTH_RATIO,
            constraint=constraint,
            **options,
        )

    @property
    def _penalty(self):
        return LengthPenalty(self.length_penalty, self.length_penalty_offset)

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
