"""What becomes of lines of text, by a trained model or by an exported SavedModel."""

import dataclasses
import itertools
import os
import pathlib

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of an exported tokenizer

from pipelines.workdir import Workdir
from t2t_keras.errors import InputError
from t2t_keras.tasks.text_io import map_by_length, warn_truncated

_BATCHES_A_WINDOW = 64


@dataclasses.dataclass(frozen=True)
class LineOutputs:
    """Which model makes which output of lines; small enough to be sent to where it is made.

    Args:
        workdir: path of a trained run; None: `saved_model`.
        saved_model: path of an export.
        n_best: results of each line.
        scores: whether a result's score stands before it.
        batch_size: lines of a batch.
        decoding: dict, arguments of `Workdir.load_predictor`.
    """

    workdir: str | None
    saved_model: str | None
    n_best: int
    scores: bool
    batch_size: int
    decoding: dict

    @property
    def window(self):
        """How many lines are sorted together by length."""
        return self.batch_size * _BATCHES_A_WINDOW

    def load(self, batches_at_once=1):
        """Returns a function that does the work.

        Args:
            batches_at_once: how many batches are computed side by side.

        Returns:
            Function of an iterable of lines, bytes, and the number of the first one, from 1 on. It
            yields for each line its lines of output, a list of str.

        Raises:
            InputError: if there is not exactly one model, or it can't be loaded.
        """
        if (self.workdir is None) == (self.saved_model is None):
            raise InputError("give either --workdir or --saved_model.")
        results = self._of_workdir() if self.workdir else self._of_saved_model()

        def outputs(lines, first=1):
            rows = map_by_length(
                results, lines, self.batch_size, _BATCHES_A_WINDOW, batches_at_once
            )
            for number, row in enumerate(rows, start=first):
                prefix = f"{number}\t" if self.n_best > 1 else ""
                yield [
                    prefix + (f"{score:.4f}\t" if self.scores else "") + " ".join(text.splitlines())
                    for text, score in row[: self.n_best]
                ]

        return outputs

    def made_of(self, path):
        """Returns what the output of a file depends on, JSON-able; path "" is standard input."""
        paths = [
            self.saved_model or Workdir(self.workdir).newest_weights(),
            path or os.devnull,
        ]
        stats = [pathlib.Path(path).stat() for path in paths]
        return {
            **dataclasses.asdict(self),
            "paths": [os.path.abspath(path) for path in paths],
            "seen": [(stat.st_size, stat.st_mtime_ns) for stat in stats],
            "standard_input": None if path else os.getpid(),  # it can't be read again
        }

    def _of_workdir(self):
        predictor = Workdir(self.workdir).load_predictor(**self.decoding)
        return lambda lines: predictor.n_best(lines, self.n_best)

    def _of_saved_model(self):
        for name, value in self.decoding.items():
            if value is not None:
                raise InputError(
                    f"--{name}={value} is for --workdir: an export searches as it was exported; "
                    f"export it again with --{name}, or leave it out."
                )
        try:
            signatures = tf.saved_model.load(self.saved_model).signatures
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise InputError(f"--saved_model={self.saved_model}: {error}") from error
        name = "serving_default" if self.n_best == 1 else "n_best"
        if name not in signatures:
            raise InputError(
                f"--saved_model={self.saved_model} has no signature {name}: export it again with "
                "all of them."
            )
        signature = signatures[name]
        # Tasks have different names for their text and score, such as "translation" or "trees".
        [text], [score] = (
            [name for name, out in signature.structured_outputs.items() if out.dtype == dtype]
            for dtype in (tf.string, tf.float32)
        )

        def results(lines):
            result = signature(text=tf.constant(lines, tf.string))
            if "truncated" in result:
                warn_truncated(result["truncated"])
            texts, scores = (tf.reshape(result[key], [len(lines), -1]) for key in (text, score))
            if texts.shape[1] < self.n_best:
                raise InputError(
                    f"--n_best={self.n_best} is more than the {texts.shape[1]} that the export has "
                    "for each line: give at most so many."
                )
            if self.n_best == 1:  # a classifier gives one label, and the probabilities of all
                scores = tf.reduce_max(scores, axis=1, keepdims=True)
            return [
                [(text.decode(errors="replace"), score) for text, score in zip(*row, strict=True)]
                for row in zip(texts.numpy(), scores.numpy(), strict=True)
            ]

        return results


def windows(lines, size):
    """Yields (number from 0, list of lines) of so many lines at a time."""
    lines = iter(lines)
    for number in itertools.count():
        if not (window := list(itertools.islice(lines, size))):
            return
        yield number, window
