"""Translation inside a graph: tensors of strings in, tensors out.

`GraphTranslator` contains the graphs that `Translator` traces and an export serves: every search
encodes texts, calls `find`, and turns the hypotheses into texts.
"""

import copy
import functools

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.text_parts import in_batches, in_order
from t2t_keras.decoding.hypotheses import LengthPenalty
from t2t_keras.errors import InputError
from t2t_keras.graphs import model_function
from t2t_keras.tasks.documents import translate_documents
from t2t_keras.tasks.given_translations import align, sequence_log_prob
from t2t_keras.tasks.protection import (
    SENTENCES_PER_BATCH,
    WordAlignment,
    protection_of,
    put_terms,
)
from t2t_keras.tasks.results import TranslationBatch, describe_tokens
from t2t_keras.tasks.search import EARLY_STOPS, SearchPredictor
from t2t_keras.tasks.search_settings import TranslatorSettings
from t2t_keras.tasks.terms import TermIndex
from t2t_keras.tasks.text_io import Reader, refuse_languages

_TEXTS, _IDS = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.int32)
_COUNT = tf.TensorSpec([], tf.int32)
_LANGUAGES = ("source_language", "target_language")

_SHORTEST_SOURCE = 7
"""Tokens of a source with room for any character: its language, a space, four bytes, the end."""


class GraphTranslator(SearchPredictor):
    """The part of `Translator` that runs inside a graph.

    Of a model of many languages each method takes `source_language` and `target_language`, string
    [batch], codes, or None; see `LanguageTemplate.first_ids`.

    Attributes:
        protection: how documents keep their protected spans: `ByPlaceholders` if the vocabulary
            reserves some, else `ByAlignment`, which may be set for any vocabulary. `save` does not
            keep it.
    """

    settings_type = TranslatorSettings

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "tokenizer":
            self.protection = protection_of(value)

    def check(self):
        super().check()
        if self.targets.limit <= self._free_prefix:
            raise InputError(
                f"a translation has at most {self.targets.limit} token, and begins with that of "
                "its language: raise max_target_length, or max_source_length + max_extra_tokens, "
                "to at least 2."
            )
        least = self.settings.min_target_length
        if least >= self.targets.limit:
            raise InputError(
                f"min_target_length is {least}, and a translation has at most "
                f"{self.targets.limit} tokens, its end included: give at most "
                f"{self.targets.limit - 1}, or raise the limit."
            )

    @property
    def languages(self):
        """The `LanguageTemplate` of a model of many languages; None for a bilingual model."""
        return getattr(self.tokenizer, "languages", None)

    @property
    def sources(self):
        """The `Reader` of sources."""
        longest = self.settings.max_source_length
        return Reader(self.tokenizer, min(longest, self.model.max_length or longest))

    @property
    def targets(self):
        """The `Reader` of targets, whose limit is the longest translation."""
        settings = self.settings
        longest = settings.max_source_length + settings.max_extra_tokens
        limits = longest, self.model.max_length, settings.max_target_length
        return Reader(self.tokenizer.target, min(limit for limit in limits if limit))

    def marked(self):
        """Returns the translator of texts with marks of placeholders; itself if there are none."""
        if not self.protection.reads_marks:
            return self
        graphs = self.graphs  # another thread may replace it
        if "marked" not in graphs:
            translator = copy.copy(self)
            vars(translator)["tokenizer"] = self.protection.marked(self.tokenizer)
            graphs["marked"] = translator
        return graphs["marked"]

    def translate(
        self,
        texts,
        prefixes=None,
        n_best=1,
        terms=None,
        source_language=None,
        target_language=None,
    ):
        """Translates texts.

        Args:
            texts: string [batch].
            prefixes: string [batch] or None, how each translation must begin; "" for none.
            n_best: int up to beam_size.
            terms: string [batch] or None, see `TermIndex`; "" has none.

        Returns:
            `TranslationBatch`. Terms change their texts, not their scores.

        Raises:
            tf.errors.InvalidArgumentError: for an unknown language, or terms of another form.
        """
        texts = tf.convert_to_tensor(texts)
        prefixes = tf.zeros_like(texts) if prefixes is None else prefixes
        languages = self._language_inputs(texts, source_language, target_language)
        batch, prefix_ids = self._translate(texts, prefixes, n_best, *languages)
        if terms is not None:
            batch = self._with_terms(batch, texts, terms, prefix_ids, languages)
        shape = [None, n_best]
        return TranslationBatch(
            tf.ensure_shape(batch.texts, shape),
            tf.ensure_shape(batch.scores, shape),
            batch.truncated,
        )

    # Graphs that all requests share: each is traced once, and an export contains it once.

    @model_function([_TEXTS, _TEXTS, _COUNT, _TEXTS, _TEXTS])
    def _translate(self, texts, prefixes, n_best, *languages):
        """Returns `TranslationBatch` [batch, n_best], and the prefixes' ids [batch, prefix]."""
        source_ids, prefix_ids, truncated = self._encoded(texts, prefixes, *languages)
        hypotheses = self._search(source_ids, prefix_ids, n_best)
        return self._as_texts(hypotheses, n_best, truncated), prefix_ids

    @model_function([_IDS, _IDS, _COUNT])
    def _search(self, source_ids, prefix_ids, n_best=1, **options):
        """Returns the `Hypotheses` that `find` gives within the limits of the settings.

        They are [batch, n_best]; if n_best is a tensor, as in the graph that requests share,
        [batch, beam_size], of which the first n_best are searched for. Samples are [batch, 1].

        Args:
            source_ids, prefix_ids: int32 [batch, source] and [batch, prefix].
            n_best: int or int32 [], up to beam_size; samples do not read it.
            **options: further arguments of `find`. With some the search is no graph of its own.
        """
        settings, given = self.settings, _lengths(prefix_ids)
        constraint = self.protection.constraint(source_ids, self.tokenizer)
        if constraint is not None:
            given += tf.reduce_sum(constraint.counts, axis=1)
        max_lengths = tf.maximum(_lengths(source_ids), given) + settings.max_extra_tokens
        if settings.min_target_length:
            max_lengths = tf.maximum(max_lengths, settings.min_target_length + 1)
        if not options.get("draws"):
            options |= {"n_best": n_best} | ({} if settings.exhaustive else EARLY_STOPS)
        return self.find(
            model=self.model,
            source_ids=source_ids,
            max_lengths=tf.minimum(max_lengths, self.targets.limit),
            prefix_ids=prefix_ids,
            constraint=constraint,
            free_prefix=self._free_prefix,
            length_penalty=LengthPenalty(settings.length_penalty, settings.length_penalty_offset),
            **options,
        )

    @model_function([_TEXTS] * 4)
    def _align(self, texts, translations, *languages):
        """Returns the `Alignment` and the `TokenOffsets` of texts and of translations."""
        with ops.on_host():
            first, target_first = self.first_ids(*languages)
            source = self.sources.encode_with_offsets(texts, first)
            target = self.targets.encode_with_offsets(translations, target_first)
        return align(self.model, self.tokenizer, source, target.ids), source, target

    def _with_terms(self, batch, texts, terms, prefix_ids, languages):
        """Returns a `TranslationBatch` with the targets of terms; languages: inputs of graphs."""
        with ops.on_host():
            count, n_best = tf.unstack(tf.shape(batch.texts))
            matches = TermIndex(terms).find(texts, tf.range(count))
            row = tf.repeat(tf.range(count), n_best)  # of each translation
            translations = tf.reshape(batch.texts, [-1])
            has_terms = tf.gather(matches.starts.row_lengths(), row) > 0
            has_terms &= tf.reshape(batch.scores, [-1]) > float("-inf")  # it exists
            # A translation begins with its prefix as the tokenizer writes it.
            begins = tf.strings.length(self.tokenizer.target.decode(prefix_ids), "UTF8_CHAR")
            begins = tf.gather(begins, row)

        def put(chosen):
            with ops.on_host():
                rows = tf.gather(row, chosen)
                inputs = [tf.gather(x, rows) for x in (texts, *languages)]
                inputs.insert(1, tf.gather(translations, chosen))
            alignment = self.align_words(*inputs)
            with ops.on_host():
                own = (tf.gather(x, rows) for x in matches)
                return put_terms(inputs[1], alignment, *own, tf.gather(begins, chosen))[0]

        changed = in_batches(put, tf.where(has_terms)[:, 0], SENTENCES_PER_BATCH)
        with ops.on_host():
            translations = in_order(translations, has_terms, changed)
            return batch._replace(texts=tf.reshape(translations, [count, n_best]))

    def saved_call(self, text, *languages):
        return self.translate(text, **_named(languages))._asdict()

    def _encoded(self, texts, prefixes, *languages):
        """Returns ids of sources and of prefixes, int32 [batch, …], and bool [batch]: truncated."""
        with ops.on_host():
            first, target_first = self.first_ids(*languages)
            sources = self.sources.encode(texts, first)
            prefix_ids, clipped = self._prefix_ids(sources.ids, prefixes, target_first)
        return sources.ids, prefix_ids, sources.truncated | clipped

    def _as_texts(self, hypotheses, n_best, truncated):
        """Returns the `TranslationBatch` of the first `Hypotheses`.

        Args: n_best, int or int32 [], up to beam_size; truncated, bool [batch].
        """
        with ops.on_host():
            batch, _, length = tf.unstack(tf.shape(hypotheses.ids))
            ids = tf.reshape(hypotheses.ids[:, :n_best], [batch * n_best, length])
            texts = tf.reshape(self.tokenizer.target.decode(ids), [batch, n_best])
        return TranslationBatch(texts, hypotheses.scores[:, :n_best], truncated)

    def translate_tokens(
        self, texts, prefixes=None, n_best=1, source_language=None, target_language=None
    ):
        """Returns the `TokenTranslations` of texts; arguments as for `translate`."""
        languages = self._language_inputs(texts, source_language, target_language)
        source_ids, prefix_ids, truncated = self._encoded(texts, prefixes, *languages)
        with ops.on_host():
            sources = self.sources.encode_with_offsets(texts, self.first_ids(*languages)[0])
        has_text = sources.ends > sources.starts
        hypotheses = self._search(source_ids, prefix_ids, n_best, has_text=has_text)
        with ops.on_host():
            return describe_tokens(hypotheses, sources, self.tokenizer.target, truncated)

    def draw(self, texts, *, seeds, source_language=None, target_language=None, **options):
        """Returns one sample for each text of string [batch], a `TranslationBatch` [batch, 1].

        Args:
            seeds, **options: see `find`; options are temperature, top_k, top_p.
        """
        languages = source_language, target_language
        source_ids, prefix_ids, truncated = self._encoded(texts, None, *languages)
        hypotheses = self._search(source_ids, prefix_ids, draws=True, seeds=seeds, **options)
        return self._as_texts(hypotheses, 1, truncated)

    def translate_documents(self, texts, *, terms=None, source_language=None, target_language=None):
        """Translates documents, see `Translator.documents`.

        Args:
            texts: string [batch].
            terms: string [batch] or None, as for `translate`.

        Returns:
            string [batch].

        Raises:
            InputError: if the limit of sources is below 7 tokens, too few for some characters.
            tf.errors.InvalidArgumentError: as `translate`, also for the terms and languages of a
                document without a sentence.
        """
        self.check_documents()
        with ops.on_host():  # checks also what documents without a sentence do not read
            inputs = self._language_inputs(texts, source_language, target_language)
            checked = [x for x in self.first_ids(*inputs) if x is not None]
            if terms is not None:
                index = TermIndex(terms)
                checked.append(index.keys)
                inputs = tf.strings.as_string(tf.range(tf.size(texts))), *inputs
            with tf.control_dependencies(checked):
                texts = tf.identity(texts)

        protection, marked = self.protection, self.marked()
        # All tokens of a translation but its end and its language may be placeholders.
        room = self.targets.limit - 1 - self._free_prefix

        def translate(sentences, *languages):
            return marked.translate(sentences, **_named(languages)).texts[:, 0]

        def translate_sentences(sentences, *inputs):
            find_terms = None
            if terms is not None:
                with ops.on_host():
                    rows = tf.strings.to_number(inputs[0], tf.int32)
                find_terms, inputs = functools.partial(index.find, rows=rows), inputs[1:]
            return protection.translate(
                sentences, translate, marked.align_words, *inputs, room=room, find_terms=find_terms
            )

        def is_too_long(sentences):
            first, _ = self.first_ids(*self._any_languages(sentences))
            return marked.sources.encode(protection.as_read(sentences, room), first).truncated

        language, pattern = self.settings.text_language, self.settings.protected_pattern
        return translate_documents(
            texts, translate_sentences, is_too_long, language, pattern, inputs
        )

    def check_documents(self):
        """Raises InputError if sources are too short for documents, see `translate_documents`."""
        if self.sources.limit < _SHORTEST_SOURCE:
            raise InputError(
                f"sources have at most {self.sources.limit} tokens (max_source_length, or the "
                f"model's positions): a document needs at least {_SHORTEST_SOURCE}, so that none "
                "of its characters is dropped; raise it, or export no signature document."
            )

    def encode(self, texts, source_language=None, target_language=None):
        """Returns the source ids of texts string [batch]: int32 [batch, source]."""
        first, _ = self.first_ids(source_language, target_language)
        return self.sources.encode(texts, first).ids

    def translate_ids(self, source_ids, target_language=None):
        """Returns the best translations of source ids.

        Args:
            source_ids: int32 [batch, source], each within the vocabulary, see `Reader.from_ids`.
                The token of a language that the model reads before a source is one of them.
            target_language: string [batch] or None.

        Returns:
            `Hypotheses` [batch, beam_size]; the empty one for a source without tokens.

        Raises:
            tf.errors.InvalidArgumentError: as `LanguageTemplate.checked_sources`.
        """
        source_ids = self.sources.from_ids(source_ids).ids
        if self.languages is not None:
            has_tokens = _lengths(source_ids) > int(self.tokenizer.adds_eos)
            source_ids = self.languages.checked_sources(source_ids, has_tokens, target_language)
        known, _ = self._any_languages(source_ids[:, 0])
        _, target_first = self.first_ids(known, target_language)
        prefix_ids, _ = self._prefix_ids(source_ids, first_ids=target_first)
        return self._search(source_ids, prefix_ids, self.settings.beam_size)

    def score(self, texts, translations, source_language=None, target_language=None):
        """Returns the `Scores` of translations, string [batch] each; see `Translator.score`."""
        first, target_first = self.first_ids(source_language, target_language)
        source_ids = self.sources.encode(texts, first).ids
        target_ids = self.targets.encode(translations, target_first).ids
        bos_id, vocab_size = self.tokenizer.bos_id, self.tokenizer.target.vocab_size
        return sequence_log_prob(
            self.model, source_ids, target_ids, bos_id, self._free_prefix, vocab_size
        )

    def align(self, texts, translations, source_language=None, target_language=None):
        """Returns the `Alignment` of translations, string [batch] each, truncated as in `score`."""
        languages = self._language_inputs(texts, source_language, target_language)
        return self._align(texts, translations, *languages)[0]

    def align_words(self, texts, translations, *languages):
        """Returns the `WordAlignment` of given translations; arguments as for `align`."""
        cross, source, target = self._align(texts, translations, *languages)
        # The upper layers align; the lower ones mix in what stands at the same place.
        upper = tf.shape(cross.attention)[1] // 2
        weights = tf.reduce_mean(cross.attention[:, upper:], axis=[1, 2])  # [batch, target, source]
        return WordAlignment(
            target.starts, target.ends, cross.spans, weights, source.starts, source.ends
        )

    def first_ids(self, source_language=None, target_language=None):
        """Returns the first tokens of sources and of targets, int32 [batch] each, or None.

        Raises:
            InputError: if a language is missing, or one is given to a bilingual model.
        """
        if self.languages is None:
            refuse_languages(source_language=source_language, target_language=target_language)
            return None, None
        return self.languages.first_ids(source_language, target_language)

    def _language_inputs(self, texts, source_language=None, target_language=None):
        """Returns the languages as inputs of graphs, "" for one that the model does not read.

        Args: texts, string [batch], and the arguments of `first_ids`, whose errors it raises.
        """
        given = dict(zip(_LANGUAGES, (source_language, target_language), strict=True))
        if self.languages is None:
            refuse_languages(**given)
            return ()
        for name in [name for name, codes in given.items() if codes is None]:
            self.languages.require_unread(name)
            given[name] = tf.fill(tf.shape(texts), "")
        return tuple(given.values())

    def _any_languages(self, rows):
        """Returns arbitrary known languages for this number of rows; or None."""
        if self.languages is None:
            return None, None
        known = tf.fill(tf.shape(rows), self.languages.codes[0])
        return known, known

    @property
    def _free_prefix(self):
        """The number of given first tokens of a translation: its language, if it has one."""
        return int(self.languages is not None and self.languages.forces_target)

    def search(self, source_ids, prefix_ids=None, n_best=1):
        """Returns the best `Hypotheses` [batch, n_best] of encoded sources.

        Args:
            source_ids: int32 [batch, source], each with its end token, then 0.
            prefix_ids: int32 [batch, prefix] or None, how each translation must begin, then 0.
            n_best: int or int32 [], up to beam_size.
        """
        prefix_ids = tf.zeros_like(source_ids[:, :0]) if prefix_ids is None else prefix_ids
        hypotheses = self._search(source_ids, prefix_ids, n_best)
        return tf.nest.map_structure(lambda x: x[:, :n_best], hypotheses)

    def _prefix_ids(self, source_ids, prefixes=None, first_ids=None):
        """Returns the prefixes' tokens, or the end for an empty source, and which were truncated.

        Args: prefixes, string [batch] or None; first_ids, int32 [batch] or None, of the languages.

        Returns:
            int32 [batch, prefix], and bool [batch].
        """
        end_id = self.tokenizer.eos_id
        lengths = _lengths(source_ids)
        if self.languages is not None:
            lengths -= _lengths(self.languages.is_language(source_ids))
        empty = lengths == int(self.tokenizer.adds_eos)  # [batch], no token but the end
        if prefixes is None:
            ids = tf.where(empty, end_id, 0)[:, tf.newaxis]
            if first_ids is not None:
                ids = tf.concat([first_ids[:, tf.newaxis], ids], axis=1)
            return ids, tf.zeros_like(empty)
        ids, truncated = self.targets.encode_prefix(prefixes, first_ids)
        empty &= ids.row_lengths() == int(first_ids is not None)
        ends = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(empty)], end_id),
            tf.cast(empty, tf.int64),
            validate=False,
        )
        return tf.concat([ids, ends], axis=1).to_tensor(), truncated


def _named(languages):
    """Returns the languages, those of `_language_inputs`, as arguments of methods, a dict."""
    return dict(zip(_LANGUAGES, languages, strict=False))


def _lengths(ids):
    return tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)
