"""Ways to translate the lines of a file, one class each, such as `TermSearch` and `Documents`.

Start with `Search`, whose methods all of them have. `LinePredictor` takes one, and sends it to
other processes.
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.serving.signatures import signature_of
from t2t_keras.tasks.terms import Terms
from t2t_keras.tasks.text_io import as_str, warn_truncated, without_repeats
from t2t_keras.tasks.translation import Translator


@dataclasses.dataclass(frozen=True)
class Search:
    """The best results of each line, from a task's search or its ranking of classes.

    Attributes:
        keeps_line_ends: whether lines of input and of output keep their line ends.
        files: paths of the files that it reads.
        export_signature: name of the signature of an export; None: as `signature` says.
    """

    keeps_line_ends = False
    files = ()
    export_signature = None

    def check(self, asked):
        """Raises InputError if a setting of a `LinePredictor` does not fit this mode."""
        pattern = asked.decoding.get("protected_pattern")
        if pattern is not None:
            raise InputError(
                f"--protected_pattern={pattern} is for --document: give it too, or leave "
                "--protected_pattern out."
            )

    def check_export(self, n_best):
        """Raises InputError if an export can't give n_best results of each line in this mode."""

    def signature(self, n_best):
        """Returns the name of the signature that gives n_best results."""
        return self.export_signature or ("serving_default" if n_best == 1 else "n_best")

    def of_predictor(self, predictor, n, languages):
        """Returns the function by which a predictor answers lines.

        Args:
            predictor: of any task.
            n: int, results of each line.
            languages: arguments of a call, {name: code}; empty for a bilingual model.

        Returns:
            Function of lines and their numbers to a list of n (text, score) for each line.
        """
        predictor.check_n(n)
        return lambda lines, numbers: predictor.n_best(lines, n, **languages)

    def of_signature(self, answer, outputs, n):
        """Returns the function by which an export answers lines; see `of_predictor`.

        Args:
            answer: function of columns of inputs, {name: tensor}, to the signature's outputs.
            outputs: the signature's outputs, {name: TensorSpec}; text and score are read.
            n: int.

        Raises:
            InputError: if no task has a signature with these outputs.
        """
        signature = signature_of(self.signature(n), outputs)
        if signature is None:
            raise InputError(
                f"the export has the outputs {', '.join(sorted(outputs))}, which no task of this "
                "library gives: export the model with pipelines.export."
            )
        text, score = signature.answer, signature.score

        def results(lines, numbers):
            del numbers
            found = answer(**self.columns(lines))
            if "truncated" in found:
                warn_truncated(found["truncated"])
            texts, scores = (tf.reshape(found[key], [len(lines), -1]) for key in (text, score))
            if texts.shape[1] < n:
                raise InputError(
                    f"--n_best={n} is more than the {texts.shape[1]} that the export has for each "
                    "line: give at most that number."
                )
            if n == 1:  # a classifier gives one label and all probabilities
                scores = tf.reduce_max(scores, axis=1, keepdims=True)
            return [
                [(as_str(text), score) for text, score in zip(*row, strict=True)]
                for row in zip(texts.numpy(), scores.numpy(), strict=True)
            ]

        return results

    def columns(self, lines):
        """Returns the inputs of the signature for lines, {name: tensor [lines]}."""
        return {"text": tf.constant(lines, tf.string)}

    def lines(self, row, number, asked):
        """Returns the lines of output of one line of input, a list of str.

        Args:
            row: its results.
            number: number of the line, from 1.
            asked: `LinePredictor`.
        """
        row = without_repeats(row) if asked.unique else row
        row = row[:1] + [result for result in row[1:] if result[1] > -math.inf]  # those found
        prefix = f"{number}\t" if asked.n_best > 1 else ""
        return [
            prefix + (f"{score:.4f}\t" if asked.scores else "") + " ".join(text.splitlines())
            for text, score in row[: asked.n_best]
        ]


@dataclasses.dataclass(frozen=True)
class _WithTerms(Search):
    """Adds the terms of a file, see `Terms.read`, to the class that follows it as a base."""

    path: str

    @property
    def files(self):
        return (self.path,)

    def check(self, asked):
        super().check(asked)
        Terms.read(self.path)

    def of_predictor(self, predictor, n, languages):
        _require_translator(predictor, "--terms")
        arguments = languages | {"terms": Terms.read(self.path)}
        return super().of_predictor(predictor, n, arguments)

    def of_signature(self, answer, outputs, n):
        terms = Terms.read(self.path)

        def answer_with_terms(text):
            rows = terms.rows(text.numpy())
            return answer(text=text, terms=tf.constant(rows, tf.string))

        return super().of_signature(answer_with_terms, outputs, n)


@dataclasses.dataclass(frozen=True)
class TermSearch(_WithTerms):
    """The best translations that contain the terms of a file."""

    export_signature = "terms"

    def check_export(self, n_best):
        if n_best > 1:
            raise InputError("--terms with --n_best is for --workdir: leave one of the two out.")


@dataclasses.dataclass(frozen=True)
class Documents(Search):
    """The translation of each line as a text of any number of sentences."""

    keeps_line_ends = True
    export_signature = "document"

    def check(self, asked):
        if asked.n_best > 1 or asked.scores or asked.unique:
            raise InputError(
                "--document gives one translation without a score: leave out --n_best, --scores "
                "and --unique."
            )

    def of_predictor(self, predictor, n, languages):
        _require_translator(predictor, "--document")
        predictor.check_documents()
        return lambda lines, numbers: [[text] for text in predictor.documents(lines, **languages)]

    def of_signature(self, answer, outputs, n):
        def results(lines, numbers):
            del numbers
            found = answer(**self.columns(lines))["translation"].numpy()
            return [[as_str(text)] for text in found]

        return results

    def lines(self, row, number, asked):
        return row


@dataclasses.dataclass(frozen=True)
class TermDocuments(_WithTerms, Documents):
    """The translation of each line as a document, with the terms of a file."""

    export_signature = "document_terms"


@dataclasses.dataclass(frozen=True)
class Sampling(Search):
    """Draws translations, with the arguments of `Translator.sample`.

    A line's samples depend only on the seed and its number, not on other lines.
    """

    seed: int = 0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    export_signature = "sample"

    def check(self, asked):
        super().check(asked)
        beam_size = asked.decoding.get("beam_size")
        if beam_size is not None:
            raise InputError(
                f"--beam_size={beam_size} is for a search, not for --sample: leave one of them out."
            )

    def of_predictor(self, predictor, n, languages):
        if "sample" not in predictor.requests:
            raise InputError(
                f"--sample is for translation and language models, not for a "
                f"{type(predictor).__name__}."
            )
        options = dataclasses.asdict(self) | languages

        def results(lines, numbers):
            seeds = self._seeds(numbers, n)
            texts = [line for line in lines for _ in range(n)]
            found = predictor.sample(texts, **(options | {"seed": seeds}))
            return _rows([pair for row in found for pair in row], n)

        return results

    def of_signature(self, answer, outputs, n):
        def results(lines, numbers):
            seeds, request = self._seeds(numbers, n), signature_of("sample", outputs)
            found = answer(
                text=tf.repeat(tf.constant(lines, tf.string), n),
                seed=tf.constant(seeds, tf.int32),
                temperature=tf.fill([len(seeds)], self.temperature),
                top_k=tf.fill([len(seeds)], self.top_k or 0),
                top_p=tf.fill([len(seeds)], self.top_p or 1.0),
            )
            warn_truncated(found["truncated"][::n])
            texts = map(as_str, found[request.answer].numpy())
            return _rows(list(zip(texts, found[request.score].numpy(), strict=True)), n)

        return results

    def _seeds(self, numbers, n):
        """Returns a seed for each of n samples of each line, a list of int."""
        return [
            int(np.random.SeedSequence([self.seed % 2**32, number, i]).generate_state(1)[0] >> 1)
            for number in numbers
            for i in range(n)
        ]


def _rows(items, n):
    return [items[start : start + n] for start in range(0, len(items), n)]


def _require_translator(predictor, flag):
    """Raises InputError if a flag is given for a predictor that is not a `Translator`."""
    if not isinstance(predictor, Translator):
        raise InputError(f"{flag} is for translation, not for a {type(predictor).__name__}.")
