"""Translation: strings in, strings out, all in one graph (paper, section 6.1).

Start with `Translator`: its methods take and return Python objects and run the graphs of
`GraphTranslator`, which encode texts, search or draw samples, and decode the result.
"""

import functools
from collections.abc import Mapping, Sequence

import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.settings import documented
from t2t_keras.tasks.given_translations import Alignment, Scores
from t2t_keras.tasks.graph_translator import GraphTranslator
from t2t_keras.tasks.requests import LANGUAGES
from t2t_keras.tasks.results import (
    DetailedTranslation,
    Translation,
    detailed_translations,
)
from t2t_keras.tasks.search_settings import TranslatorSettings
from t2t_keras.tasks.terms import Terms
from t2t_keras.tasks.text_io import (
    as_str,
    as_tensor,
    language_codes,
    predict,
    warn_truncated,
    without_repeats,
)
from t2t_keras.tasks.translation_requests import REQUESTS
from t2t_keras.types import Array, Languages, Texts


@functools.partial(documented, settings=TranslatorSettings)
class Translator(GraphTranslator):
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
        **settings: see below, such as beam_size=8. They are also attributes. Like the model they
            may be replaced; the next call then traces new graphs.

    Call arguments, also those of the methods:
        texts: str each, in a list, a generator, a NumPy array, a pandas column, a string tensor or
            a `tf.data.Dataset`. They are one batch; for more than about 100 use `predict`.
        prefix: the beginning of each translation, in the same forms; "" or None: none.
        terms: {source phrase: target phrase} for all texts, or `Terms`, see `tasks.terms`.
        source_language, target_language: for a model of many languages, whose codes are
            `languages`: a code for all texts, or one for each in the same forms as texts. None: a
            bilingual model, or a model that does not read the source language.

    Returns:
        List of str, the best translation of each text.

    Attributes:
        languages: `LanguageTemplate` of the tokenizer; None for a bilingual model.
        protection: see `GraphTranslator`.

    Raises:
        InputError: if a setting is out of range, or the vocabulary sizes of model and tokenizer
            differ. In a call: if texts is a single string, an element is not a string, prefix has
            another length, a term is invalid, a language is missing or unknown, or the model has
            no languages.

    Example:
        >>> translator = t2t.Translator(model, tokenizer, beam_size=4, length_penalty=0.6)
        >>> [translation] = translator(["The old man sees a small dog."])
        >>> best, second = translator.n_best(["The old man sees a small dog."], 2)[0]
        >>> best.text == translation, best.score >= second.score
        (True, True)
        >>> found = translator.predict(tf.data.TextLineDataset(["test.en"]), batch_size=64)
    """

    task = "translation"
    requests = REQUESTS

    def __call__(
        self,
        texts: Texts,
        prefix: Texts | None = None,
        terms: Mapping[str, str] | Terms | None = None,
        source_language: Languages = None,
        target_language: Languages = None,
    ) -> list[str]:
        """Returns the best translation of each text; arguments and errors as of `Translator`."""
        rows = self.n_best(texts, 1, prefix, False, terms, source_language, target_language)
        return [best.text for [best] in rows]

    def predict(
        self,
        texts: Texts,
        batch_size: int | None = None,
        verbose: int = 0,
        source_language: Languages = None,
        target_language: Languages = None,
    ) -> list[str]:
        """Returns what a call returns, for any number of texts; see `Predictor.predict`."""
        texts = self.as_list(texts)
        languages = language_codes(self.languages, len(texts), source_language, target_language)
        if not languages:
            return super().predict(texts, batch_size, verbose)

        def translate(rows):
            texts, sources, targets = zip(*rows, strict=True)
            return self(texts, source_language=sources, target_language=targets)

        rows = zip(texts, *(codes.numpy() for codes in languages), strict=True)
        return predict(translate, list(rows), batch_size, verbose, lambda row: len(row[0]))

    def n_best(
        self,
        texts: Texts,
        n: int | None = None,
        prefix: Texts | None = None,
        unique: bool = False,
        terms: Mapping[str, str] | Terms | None = None,
        source_language: Languages = None,
        target_language: Languages = None,
    ) -> list[list[Translation]]:
        """Returns the n best translations of each text, best first.

        Args:
            n: up to beam_size; beam_size if None.
            unique: whether to keep only the best of hypotheses with equal texts; a text has several
                segmentations into tokens.

        Returns:
            A list of n `Translation` for each text, with `unique` perhaps fewer; a score of -inf
            marks a missing one.
            If fewer than n hypotheses finish within twice the steps of the best one, or with
            `exhaustive` within the maximum length, the last translations are unfinished.

        Raises:
            InputError: if n is out of range, or as in a call.
        """
        inputs = self._inputs(texts, source_language, target_language, terms, prefix=prefix)
        rows, outputs = self.best_rows(n, **inputs)
        warn_truncated(outputs["truncated"])
        rows = [[Translation(*pair) for pair in row] for row in rows]
        return [without_repeats(row) for row in rows] if unique else rows

    def documents(
        self,
        texts: Texts,
        terms: Mapping[str, str] | Terms | None = None,
        source_language: Languages = None,
        target_language: Languages = None,
    ) -> list[str]:
        """Returns the translation of each document, a text of any number of sentences.

        The sentences of all documents are translated as a call translates them, and put back with
        the white space and line breaks between them unchanged. A sentence longer than
        `max_source_length` is divided; no text is dropped. Protected spans, such as "{name}", "<b>"
        and addresses, come through unchanged, each once; see `tasks.spans`.

        Raises:
            InputError: if the limit of sources is below 7 tokens, or as in a call.
        """
        inputs = self._inputs(texts, source_language, target_language, terms)
        outputs = self.run("document_terms" if "terms" in inputs else "document", **inputs)
        return [as_str(text) for text in outputs["translation"].numpy()]

    def n_best_tokens(
        self,
        texts: Texts,
        n: int | None = None,
        prefix: Texts | None = None,
        source_language: Languages = None,
        target_language: Languages = None,
    ) -> list[list[DetailedTranslation]]:
        """Returns the n best translations of each text with their tokens, best first.

        Each token has its log-probability and the part of the source that it attends to most, from
        the search itself. A search without them does not compute them.

        Returns:
            A list of n `DetailedTranslation` for each text; n and errors as for `n_best`.
        """
        n = self.check_n(n)
        inputs = self._inputs(texts, source_language, target_language, prefix=prefix)
        outputs = self.run("n_best_tokens", **inputs)
        warn_truncated(outputs["truncated"])
        return [row[:n] for row in detailed_translations(outputs)]

    def sample(
        self,
        texts: Texts,
        n: int = 1,
        seed: int | Sequence[int] | Array = 0,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
        source_language: Languages = None,
        target_language: Languages = None,
    ) -> list[list[Translation]]:
        """Draws translations of each text at random, token by token from the model's probabilities.

        Back-translation uses samples: unlike the best translations they vary as real text does
        (Edunov et al. 2018).

        Args:
            n: samples of each text.
            seed: from -2³¹ to 2³¹ - 1, or one for each text. Random numbers of sample j of text i
                follow from (seed, n · i + j), or with a seed for each text from (seed[i], j). The
                same numbers and the same text give the same sample in any batch.
            temperature: above 0, divides logits: lower values make likely tokens more likely.
            top_k: draw from the k most likely tokens only; None: from all.
            top_p: above 0, draw from the fewest tokens whose total probability is at least top_p,
                after temperature and top_k; None: from all.

        Returns:
            A list of n `Translation` for each text, in the order drawn. The score uses the model's
            own probabilities at any temperature; with a shortlist, those over its candidates.

        Raises:
            InputError: if a setting is out of its range, or as in a call.
        """
        inputs = self._inputs(texts, source_language, target_language)
        rows, outputs = self.drawn_rows(n, seed, temperature, top_k, top_p, **inputs)
        warn_truncated(outputs["truncated"][::n])
        return [[Translation(*pair) for pair in row] for row in rows]

    def score(
        self,
        texts: Texts,
        translations: Texts,
        source_language: Languages = None,
        target_language: Languages = None,
    ) -> Scores:
        """Returns the log-probabilities of given translations, inside a graph or outside.

        Args:
            texts: as in a call; inside of a graph all arguments are string [batch].
            translations: one of each text, in the same form; each is truncated to the length of the
                longest translation that a search may return.

        Returns:
            `Scores`. A search's score is log P / length penalty.

        Raises:
            InputError: if there is not one translation for each text, or as in a call.
        """
        languages = {"source_language": source_language, "target_language": target_language}
        if tf.inside_function():
            return super().score(texts, translations, **languages)
        outputs = self.run("score", **self._inputs(texts, **languages, translations=translations))
        return Scores(outputs["log_probability"], outputs["tokens"])

    def align(
        self,
        texts: Texts,
        translations: Texts,
        source_language: Languages = None,
        target_language: Languages = None,
    ) -> Alignment:
        """Returns the cross-attention of given translations; arguments and errors as of `score`."""
        languages = {"source_language": source_language, "target_language": target_language}
        if tf.inside_function():
            return super().align(texts, translations, **languages)
        inputs = self._inputs(texts, **languages, translations=translations)
        return Alignment(**self.run("align", **inputs))

    def _inputs(self, texts, source_language, target_language, terms=None, **others):
        """Returns the inputs of a request, {name: string [batch]}; terms only if a text has some.

        Args: those of a call; others, such as prefix, are strings of the texts, or None: empty
        ones.
        """
        texts = as_tensor(texts)
        count = len(texts)
        inputs = {"text": texts}
        for name, given in others.items():
            column = tf.fill([count], "") if given is None else as_tensor(given, name)
            if len(column) != count:
                raise InputError(
                    f"{name} has {len(column)} strings for {count} texts: give one for each text."
                )
            inputs[name.removesuffix("s")] = column
        rows = [] if terms is None else Terms.of(terms).rows(texts.numpy())
        if any(rows):
            inputs["terms"] = tf.constant(rows)
        codes = language_codes(self.languages, count, source_language, target_language)
        return inputs | {x.name: column for x, column in zip(LANGUAGES, codes, strict=False)}
