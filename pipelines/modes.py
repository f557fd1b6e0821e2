"""How the lines of a file are answered: by which request, and with which inputs besides the lines.

`LinePredictor` takes a `Mode`, and sends it to other processes. The row of the request says what it
gives, see `tasks.requests`; a trained model and an export are asked in the same way.
"""

import dataclasses
import math

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError, TextError
from t2t_keras.settings import SamplingSettings
from t2t_keras.tasks.bundles import PREDICTORS
from t2t_keras.tasks.terms import Terms
from t2t_keras.tasks.text_io import as_str, warn_truncated, without_repeats


@dataclasses.dataclass(frozen=True)
class Mode:
    """A request for each line.

    A line's samples depend only on the seed and its number, not on other lines.
    """

    request: str = "serving_default"  # a kind; for several of the best answers "n_best"
    terms: str = ""  # path of a file of terms, see `Terms.read`; "": none
    sampling: SamplingSettings = dataclasses.field(default_factory=SamplingSettings)

    @property
    def kind(self):
        """The `RequestKind` of the request."""
        rows = (predictor.requests.get(self.request) for predictor in PREDICTORS.values())
        return next(row for row in rows if row)

    def check(self, asked):
        """Raises InputError if a setting of a `LinePredictor` does not fit this mode."""
        kind, given = self.kind, {k: v for k, v in asked.decoding.items() if v is not None}
        if kind.is_long and (asked.n_best > 1 or asked.scores or asked.unique):
            raise InputError(
                "--document gives one translation without a score: leave out --n_best, --scores "
                "and --unique."
            )
        if "protected_pattern" in given and not kind.is_long:
            raise InputError(
                f"--protected_pattern={given['protected_pattern']} is for --document: give it too, "
                "or leave --protected_pattern out."
            )
        if "beam_size" in given and kind.is_drawn:
            raise InputError(
                f"--beam_size={given['beam_size']} is for a search, not for --sample: leave one of "
                "them out."
            )
        if self.terms:
            Terms.read(self.terms)
        if self.terms and asked.saved_model and asked.n_best > 1:
            raise InputError("--terms with --n_best is for --workdir: leave one of the two out.")

    def check_predictor(self, predictor, n):
        """Raises InputError if a predictor can't give n results of each line in this mode."""
        if self.request not in predictor.requests:
            flag = self.request.partition("_")[0]
            raise InputError(f"--{flag} is not for a {type(predictor).__name__}: leave it out.")
        if self.kind.is_long:
            predictor.check_documents()
        if not self.kind.is_drawn:
            predictor.check_n(n)

    def name(self, n):
        """Returns the name of the request that gives n results of each line."""
        return self.request if n == 1 or self.kind.is_drawn else "n_best"

    def results(self, answer, kind, n):
        """Returns the function of lines and their numbers to a list of n (text, score) for each.

        `answer` is a function of columns of inputs, {name: tensor}, to the outputs of a
        `RequestKind`, which names those with texts and scores.
        """
        repeats = n if kind.is_drawn else 1

        def results(lines, numbers):
            found = answer(**self._columns(kind, lines, numbers, repeats))
            if "truncated" in found:
                _check_truncated(kind, found["truncated"][::repeats])
            texts = tf.reshape(found[kind.answer], [len(lines), -1])
            scores = tf.zeros_like(texts, tf.float32)
            if kind.score is not None:
                scores = tf.reshape(found[kind.score], [len(lines), -1])
            if texts.shape[1] < n:
                raise InputError(
                    f"--n_best={n} is more than the {texts.shape[1]} that the export has for each "
                    "line: give at most that number."
                )
            if n == 1:  # a classifier gives one label and all probabilities
                scores = tf.reduce_max(scores, axis=1, keepdims=True)
            return [
                [(as_str(text), score) for text, score in zip(*row, strict=False)]
                for row in zip(texts.numpy(), scores.numpy(), strict=True)
            ]

        return results

    def _columns(self, kind, lines, numbers, repeats):
        """Returns the inputs of a request for lines, {name: tensor [lines · repeats]}."""
        columns = {"text": tf.repeat(tf.constant(lines, tf.string), repeats)}
        if self.terms:
            rows = Terms.read(self.terms).rows(np.array(lines, object))
            columns["terms"] = tf.constant(rows, tf.string)
        if kind.is_drawn:
            drawn, shape = self.sampling, [len(lines) * repeats]
            columns["seed"] = tf.constant(_seeds(drawn.seed, numbers, repeats), tf.int32)
            columns["temperature"] = tf.fill(shape, drawn.temperature)
            columns["top_k"] = tf.fill(shape, drawn.top_k or 0)
            columns["top_p"] = tf.fill(shape, drawn.top_p or 1.0)
        return columns

    def lines(self, row, number, asked):
        """Returns the lines of output of a line of input, number from 1, for a `LinePredictor`."""
        if self.kind.is_long:
            return [text for text, _ in row]
        row = without_repeats(row) if asked.unique else row
        row = row[:1] + [result for result in row[1:] if result[1] > -math.inf]  # those found
        prefix = f"{number}\t" if asked.n_best > 1 else ""
        return [
            prefix + (f"{score:.4f}\t" if asked.scores else "") + " ".join(text.splitlines())
            for text, score in row[: asked.n_best]
        ]


def _check_truncated(kind, truncated):
    """Warns of truncated texts, bool [batch]; raises TextError if they are prompts."""
    if kind.of_prompts and np.any(truncated):
        reason = "has more tokens than the model reads of a prompt: shorten it."
        raise TextError(reason, int(np.argmax(truncated)))
    warn_truncated(truncated)


def _seeds(seed, numbers, n):
    """Returns a seed for each of n samples of each line, a list of int."""
    return [
        int(np.random.SeedSequence([seed % 2**32, number, i]).generate_state(1)[0] >> 1)
        for number in numbers
        for i in range(n)
    ]
