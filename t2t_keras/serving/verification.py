"""Trust in an export: a process of its own must answer from the files as the live model does."""

import contextlib
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError

_SCRIPT = pathlib.Path(__file__).with_name("bare_process.py")

_TOLERANCE = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 2e-2, "float16": 1e-2}
"""How far scores may lie apart, relative and absolute, by the dtype that the model computes in."""

_MOST_TIES = 0.25


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


def check_answers(requests, expected, found, dtype="float32"):
    """Compares answers line by line.

    Numbers may differ by rounding. A line's other outputs may only differ where its numbers
    agree, which means two hypotheses of the same score, and only in few lines.

    Args:
        requests: list of `Request`.
        expected: list of dicts of arrays, the answers that are right.
        found: list of dicts of arrays or str, the answers of the export.
        dtype: name of the dtype that the model computes in.

    Raises:
        VerificationError: if they differ, naming the first line that does.
    """
    lines, ties = 0, []
    for request, right, answer in zip(requests, expected, found, strict=True):
        if isinstance(answer, str):
            raise _failure(request, answer)
        if answer.keys() != right.keys():
            raise VerificationError(
                f"The exported signature {request.signature!r} has outputs {sorted(answer)} "
                f"instead of {sorted(right)}: nothing was published."
            )
        for row in range(len(next(iter(request.inputs.values())))):
            lines += 1
            names = [name for name in right if not _agree(right[name], answer[name], row, dtype)]
            if not names:
                continue
            place, name = slice(row, row + 1), names[0]
            error = VerificationError(
                f"The exported signature {request.signature!r} answers "
                f"{_shown(request.inputs, place)} with {_shown({name: answer[name]}, place)} where "
                f"the model says {_shown({name: right[name]}, place)}: nothing was published."
            )
            if any(right[name].dtype.kind == "f" for name in names) or not _scored(right):
                raise error
            ties.append(error)
    if len(ties) > _MOST_TIES * lines:
        raise ties[0]


def _failure(request, reason):
    return VerificationError(
        f"The exported signature {request.signature!r} fails for "
        f"{_shown(request.inputs, slice(None))}: {reason}"
    )


def _agree(right, answer, row, dtype):
    if len(right) != len(answer) or right.dtype != answer.dtype:
        return False
    if right.dtype.kind != "f":
        return np.array_equal(right[row], answer[row])
    if right.shape[1:] != answer.shape[1:]:
        return False
    return np.allclose(answer[row], right[row], _TOLERANCE[dtype], _TOLERANCE[dtype])


def _scored(answer):
    """Says whether an answer has the scores of a choice, which alone can end in a tie."""
    return bool({"score", "scores", "probabilities"} & answer.keys())


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
