"""The check of an export: a process of its own must answer from the files as the live model does.

`BareProcess` asks the export, `live_answers` the model, and `check_answers` compares the answers.
"""

import collections
import contextlib
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.errors import InputError

_SCRIPT = pathlib.Path(__file__).with_name("bare_process.py")

_TOLERANCE = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 2e-2, "float16": 1e-2}
"""Largest difference of scores, relative and absolute, by the compute dtype of the model."""

_HYPOTHESES = (
    "translation",
    "translations",
    "target_ids",
    "tree",
    "trees",
    "label",
    "labels",
)  # outputs that hold what a search or a classifier chose
_SCORES = ("score", "scores", "probabilities")  # outputs that hold what it chose by


class VerificationError(InputError):
    """An export whose answers are not those of the model; it was not published."""


class BareProcess:
    """A Python process of its own that loads a SavedModel and knows only TensorFlow.

    It begins to import TensorFlow at once, beside whatever its maker does meanwhile.

    Example:
        >>> with BareProcess() as process:
        ...     tf.saved_model.save(module, "export", signatures=signatures)
        ...     process.ask("export", requests)
        ...     answers = process.answers()
    """

    def __enter__(self):
        # The processor alone: the graphics memory belongs to the process that exports.
        environment = os.environ | {"CUDA_VISIBLE_DEVICES": "-1", "TF_CPP_MIN_LOG_LEVEL": "2"}
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SCRIPT.read_text(encoding="utf-8")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
        )
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.communicate()

    def ask(self, directory, requests):
        """Has the process load the SavedModel in `directory` and answer; returns at once.

        Args:
            directory: path of the SavedModel.
            requests: list of `Request`.
        """
        requests = [tuple(request) for request in requests]
        stdin, self._process.stdin = self._process.stdin, None
        # A process that is dead already is reported where its answers are missed.
        with contextlib.suppress(BrokenPipeError), stdin:
            pickle.dump((os.path.abspath(directory), requests), stdin)

    def answers(self):
        """Returns what the process answered.

        Returns:
            List with one item for each request: a dict of arrays, or a str that says what went
            wrong.

        Raises:
            VerificationError: if the SavedModel does not load.
        """
        output, errors = self._process.communicate()
        if self._process.returncode:
            reason = errors.decode(errors="replace").strip().splitlines()[-1:]
            raise VerificationError(
                f"The exported SavedModel does not load in a process of its own: {''.join(reason)}"
            )
        return pickle.loads(output)


def live_answers(functions, requests):
    """Returns the live model's answers.

    Args:
        functions: {signature name: concrete function}.
        requests: list of `Request`.

    Returns:
        List of dicts of arrays.

    Raises:
        VerificationError: if a request cannot be answered.
    """
    answers = []
    with tf.device("CPU:0"):  # where the other process runs, too
        for request in requests:
            tensors = {name: tf.constant(value) for name, value in request.inputs.items()}
            try:
                answer = functions[request.signature](**tensors)
            except tf.errors.OpError as error:
                raise _failure(request, error.message.partition("\n")[0]) from error
            answers.append({name: value.numpy() for name, value in answer.items()})
    return answers


def check_answers(requests, expected, found, rank, dtype="float32"):
    """Compares answers line by line.

    Floats may differ by rounding, all else must be equal. The one exception is a tie: an export may
    choose another hypothesis than the live model where the live n-best has both of them, and their
    scores there agree within tolerance. Each such line is logged.

    Args:
        requests: list of `Request`.
        expected: list of dicts of arrays, the answers of the live model.
        found: list of dicts of arrays or str, the answers of the export.
        rank: function of a `Request` to the live model's n-best of its lines, a dict of arrays as
            the `n_best` signature gives; None for a signature that makes no choice. Called only
            where hypotheses differ.
        dtype: name of the compute dtype of the model.

    Raises:
        VerificationError: if answers differ, naming the first line that does.
    """
    tolerance = _TOLERANCE[dtype]
    for request, right, answer in zip(requests, expected, found, strict=True):
        if isinstance(answer, str):
            raise _failure(request, answer)
        if answer.keys() != right.keys():
            raise VerificationError(
                f"The exported signature {request.signature!r} has outputs {sorted(answer)} "
                f"instead of {sorted(right)}: nothing was published."
            )
        ranking = None
        for row in range(len(next(iter(request.inputs.values())))):
            names = [n for n in right if not _agree(n, right[n], answer[n], row, tolerance)]
            if not names:
                continue
            place = slice(row, row + 1)
            name = next((name for name in names if name not in _HYPOTHESES), names[0])
            difference = (
                f"The exported signature {request.signature!r} answers "
                f"{_shown(request.inputs, place)} with {_shown({name: answer[name]}, place)} where "
                f"the model says {_shown({name: right[name]}, place)}"
            )
            if _is_choice(name, right[name], answer[name]):
                ranking = rank(request) if ranking is None else ranking
                if ranking and _is_tie(right, answer, ranking, row, tolerance):
                    logging.warning("%s: their scores tie.", difference)
                    continue
            raise VerificationError(f"{difference}: nothing was published.")


def _failure(request, reason):
    return VerificationError(
        f"The exported signature {request.signature!r} fails for "
        f"{_shown(request.inputs, slice(None))}: {reason}"
    )


def _agree(name, right, answer, row, tolerance):
    """Returns whether a row of an output is as it should be."""
    if len(right) != len(answer) or right.dtype != answer.dtype:
        return False
    if name in _HYPOTHESES:
        return _choices(right, row) == _choices(answer, row)
    if right.dtype.kind != "f":
        return np.array_equal(right[row], answer[row])
    if right.shape[1:] != answer.shape[1:]:
        return False
    return np.allclose(answer[row], right[row], tolerance, tolerance)


def _is_choice(name, right, answer):
    """Returns whether two outputs hold hypotheses, equally many of each line."""
    same_form = right.dtype == answer.dtype and right.shape[:2] == answer.shape[:2]
    return name in _HYPOTHESES and same_form


def _is_tie(right, answer, ranking, row, tolerance):
    """Returns whether the hypotheses of two answers differ by the order of equal scores alone.

    Args:
        right, answer: dicts of arrays, of scores that agree within tolerance.
        ranking: dict of arrays, the live n-best.
        row: int, the line.
        tolerance: float.
    """
    (wanted, scores), (given, _), (live, live_scores) = (
        _ranked(outputs, row) for outputs in (right, answer, ranking)
    )
    if collections.Counter(given) - collections.Counter(live):
        return False  # a hypothesis that the live model does not have, or not as often

    def has_score(hypothesis, score):
        return any(
            np.isclose(live_score, score, tolerance, tolerance)
            for other, live_score in zip(live, live_scores, strict=True)
            if other == hypothesis
        )

    return all(
        one == other or (has_score(one, score) and has_score(other, score))
        for one, other, score in zip(wanted, given, scores, strict=True)
    )


def _ranked(outputs, row):
    """Returns the hypotheses of a line and their scores, two lists."""
    hypotheses = next(_choices(outputs[name], row) for name in _HYPOTHESES if name in outputs)
    scores = next(outputs[name][row] for name in _SCORES if name in outputs)
    # A classifier answers its best label beside the probabilities of all.
    return hypotheses, [np.max(scores)] if len(hypotheses) == 1 else scores


def _choices(output, row):
    """Returns the hypotheses of a line: a list of bytes, or of ids without padding."""
    if output.dtype.kind == "i":  # int32 [batch, hypotheses, length]
        return [tuple(np.trim_zeros(ids, "b").tolist()) for ids in output[row]]
    return output[row : row + 1].reshape(-1).tolist()  # string [batch] or [batch, hypotheses]


def _shown(columns, place):
    """Returns some rows of inputs or outputs in a few words."""
    texts = (
        f"{name} {' '.join(str(_readable(value[place].tolist())).split())}"
        for name, value in columns.items()
    )
    return ", ".join(text if len(text) <= 100 else f"{text[:97]}..." for text in texts)


def _readable(value):
    if isinstance(value, list):
        return [_readable(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value
