"""Verification of an export: a clean process must answer from its files as the live model does.

`sample_requests` makes requests to every signature. `CleanProcess` has a process without this
library answer them from the exported files, `live_answers` asks the model, and `check_answers`
compares the answers. `measure_distance` compares an export in int8 with float32.
"""

import collections
import contextlib
import copy
import os
import pathlib
import pickle
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.data.files import tensorflow_path
from t2t_keras.errors import InputError
from t2t_keras.serving.signatures import signature_of
from t2t_keras.tasks.requests import TEXT, RequestKind, sample_lines
from t2t_keras.tasks.text_io import as_str

_SCRIPT = pathlib.Path(__file__).with_name("clean_process.py")

_TOLERANCE = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 2e-2, "float16": 1e-2, "int8": 2e-2}
"""Largest difference of scores, relative and absolute, by the compute dtype of the model.

In int8 the last bit of a float32 may decide which of two integers an activation is rounded to.
"""

_MAX_SCORE_DIFFERENCE, _MAX_SAMPLED_DIFFERENCE = 0.25, 2.0
_MIN_EQUAL_FRACTION = 0.25
_MIN_LINES = 10
"""Limits of a `Distance`, see `score_limit`. A trained model had 0.02 and 99 % on its test split,
0.7 and 65 % on sampled lines. With all scales 1.1 times too large it had 0.32 and 84 %, and 3.1 and
15 %."""


class VerificationError(InputError):
    """An export whose answers differ from the model's; it was not published."""


_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # Memory that is freed goes back to the system, for there are two models at the same time.
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
}


class CleanProcess:
    """A clean Python process that loads a SavedModel, with TensorFlow and without this library.

    It imports TensorFlow while the calling process exports. `device` is "cpu" or "gpu", which the
    SavedModel is made for. An export for a GPU is loaded on a GPU if this process has one, else on
    the CPU; other exports never use a GPU.
    """

    def __init__(self, device="cpu"):
        has_gpu = bool(tf.config.get_visible_devices("GPU"))
        self.device = "gpu" if device == "gpu" and has_gpu else "cpu"
        self._path = contextlib.ExitStack()

    def __enter__(self):
        # The two processes share the memory of a GPU.
        place = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
        if self.device == "cpu":
            place = {"CUDA_VISIBLE_DEVICES": "-1"}
        environment = os.environ | place | _ENVIRONMENT
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
        self._path.close()

    def ask(self, directory, requests):
        """Makes the process load a SavedModel and answer `Request`s, and returns immediately."""
        requests = [tuple(request) for request in requests]
        directory = self._path.enter_context(tensorflow_path(directory))
        stdin, self._process.stdin = self._process.stdin, None
        # `answers` reports a process that has died.
        with contextlib.suppress(BrokenPipeError), stdin:
            pickle.dump((directory, requests), stdin)

    def answers(self):
        """Returns for each request a dict of arrays, or a str with an error message.

        Raises:
            VerificationError: if the SavedModel does not load.
        """
        output, errors = self._process.communicate()
        if self._process.returncode:
            reason = errors.decode(errors="replace").strip().splitlines()[-1:]
            raise VerificationError(
                f"The exported SavedModel does not load in a clean process: {''.join(reason)}"
            )
        return pickle.loads(output)


def live_answers(functions, requests, device="cpu"):
    """Returns the live model's answers to `Request`s, a list of dicts of arrays.

    Args:
        functions: {signature name: concrete function}.
        device: "cpu" or "gpu", where the clean process answers.

    Raises:
        VerificationError: if a request cannot be answered.
    """
    answers = []
    with tf.device(f"{device.upper()}:0"):
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

    Floats may differ by rounding, everything else must be equal. The only exception is a tie: an
    export and the live model may choose different hypotheses if the live n-best contains both, with
    scores that agree within tolerance. Two segmentations of one text may also be swapped. Each
    such line is logged.

    Args:
        requests: list of `Request`.
        expected, found: results of `live_answers` and of `CleanProcess.answers`.
        rank: function of a `Request` to the live model's n-best of its lines, a dict of the outputs
            of `RequestKind.ranking`; None for a signature that makes no choice. Called only if
            hypotheses differ.
        dtype: name of the compute dtype of the model, or "int8".

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
                f"instead of {sorted(right)}: nothing was published; report this error."
            )
        ranking, signature = None, signature_of(request.signature, right) or RequestKind(None, ())
        for row in range(len(next(iter(request.inputs.values())))):
            place, pairs = slice(row, row + 1), {n: (right[n], answer[n]) for n in right}
            agree = {n: _agree(*p, row, tolerance, n == signature.answer) for n, p in pairs.items()}
            names = [name for name in agree if not agree[name]]
            if not names:
                continue
            # Other hypotheses have other details.
            names = [name for name in names if name not in signature.details] or names
            name = next((name for name in names if name != signature.answer), names[0])
            difference = (
                f"The exported signature {request.signature!r} answers "
                f"{_shown(request.inputs, place)} with {_shown({name: answer[name]}, place)} where "
                f"the model says {_shown({name: right[name]}, place)}"
            )
            is_tie = name in signature.details and _is_tie_of_details(
                signature, right, answer, row, tolerance
            )
            one, other = right[name], answer[name]
            is_alike = one.dtype == other.dtype and one.shape[:2] == other.shape[:2]
            if name == signature.answer and is_alike:
                ranking = rank(request) if ranking is None else ranking
                is_tie = ranking and _is_tie(signature, right, answer, ranking, row, tolerance)
            if is_tie:
                logging.warning("%s: their scores tie.", difference)
                continue
            raise VerificationError(f"{difference}: nothing was published.")


def score_limit(lines):
    """Returns the largest mean difference between the scores of an export and of float32.

    It is 0.25 on the user's lines. Lines sampled from the vocabulary (None) are meaningless, so
    small differences change answers: there it is 2.
    """
    return _MAX_SCORE_DIFFERENCE if lines else _MAX_SAMPLED_DIFFERENCE


def check_own_answers(predictor, requests, answers, precision, lines=None):
    """Compares answers of an export with the predictor's own methods and graphs.

    `check_answers` compares the files with the functions that were saved, which may be wrong as
    well. In float32 the scores of the best answers must agree. In bfloat16 their mean difference
    has the same limit as in int8, whose `Distance` is measured before: see `score_limit`.

    Args:
        predictor, precision: as for `export_saved_model`.
        requests: list of `Request`; the first signature of texts that ranks answers is compared.
        answers: list of dicts of arrays, of the export.
        lines: the user's lines, over which the mean is taken; None: over all.

    Raises:
        VerificationError: if answers differ, naming a line.
    """
    rows = {name: row for name, row in predictor.requests.items() if row.inputs == (TEXT,)}
    names = [request.signature for request in requests]
    name = next((n for n in names if n in rows and rows[n].ranking and rows[n].score), None)
    if name is None or precision == "int8":
        return
    own = copy.copy(predictor)  # with graphs of its own
    signature, differences = rows[name], []
    for request, answer in zip(requests, answers, strict=True):
        if request.signature != name:
            continue
        inputs = {key: [as_str(x) for x in column] for key, column in request.inputs.items()}
        rows_of_answer = range(len(inputs["text"]))
        if signature.of_prompts:  # the predictor's method refuses what the export truncates
            rows_of_answer = np.flatnonzero(~answer["truncated"])
        languages = {key: [column[row] for row in rows_of_answer] for key, column in inputs.items()}
        texts = languages.pop("text")
        expected = own.n_best(texts, 1, **languages) if texts else []
        for row, [(best, score)] in enumerate(expected):
            [given, *_], [given_score, *_] = _ranked(signature, answer, rows_of_answer[row])
            difference = abs(score - given_score) if score != given_score else 0.0
            if not lines or texts[row] in lines:
                differences.append(difference)
            limit = _TOLERANCE[predictor.model.compute_dtype] * (1 + abs(score))
            if precision == "float32" and not difference <= limit:
                raise VerificationError(
                    f"The exported signature {name!r} answers text {texts[row]!r} with "
                    f"{as_str(given)!r}, score {given_score}, where the predictor itself says "
                    f"{best!r}, score {score}: nothing was published."
                )
    limit = score_limit(lines)
    if not differences:
        logging.warning("No line of %r was compared with the predictor's own answer", name)
    elif not np.mean(differences) <= limit:
        raise VerificationError(
            f"Scores of the exported signature {name!r} in {precision} differ from those of the "
            f"predictor by {np.mean(differences):.3g}, where {limit} is the limit: nothing was "
            "published; export in float32."
        )


def _failure(request, reason):
    return VerificationError(
        f"The exported signature {request.signature!r} fails for "
        f"{_shown(request.inputs, slice(None))}: {reason}"
    )


def _agree(right, answer, row, tolerance, are_hypotheses):
    """Returns whether a row of an output is equal, floats within the tolerance."""
    if len(right) != len(answer) or right.dtype != answer.dtype:
        return False
    if are_hypotheses:
        return _choices(right, row) == _choices(answer, row)
    if right.dtype.kind != "f":
        return np.array_equal(right[row], answer[row])
    if right.shape[1:] != answer.shape[1:]:
        return False
    return np.allclose(answer[row], right[row], tolerance, tolerance)


def _is_tie(signature, right, answer, ranking, row, tolerance):
    """Returns whether the hypotheses of two answers differ only in the order of equal scores.

    The answers to line `row` have scores that agree within tolerance; `ranking` is the live n-best.
    """
    (wanted, scores), (given, _) = (_ranked(signature, outputs, row) for outputs in (right, answer))
    live, live_scores = _ranked(signature.ranking, ranking, row)
    if collections.Counter(given) - collections.Counter(live):
        return False  # a hypothesis that the live model does not have, or not as often
    if scores is None:
        scores = [live_scores[live.index(one)] if one in live else np.nan for one in wanted]

    def having(score):
        close = np.isclose(live_scores, score, tolerance, tolerance)
        return {hypothesis for hypothesis, is_close in zip(live, close, strict=True) if is_close}

    return all(
        one == other or {one, other} <= having(score)
        for one, other, score in zip(wanted, given, scores, strict=True)
    )


def _is_tie_of_details(signature, right, answer, row, tolerance):
    """Returns whether details are swapped between hypotheses with one text and equal scores."""
    texts, scores = _ranked(signature, right, row)
    count, *others = signature.details
    given, wanted = (
        [
            [outputs[name][row, i][: outputs[count][row, i]] for name in others]
            for i in range(len(texts))
        ]
        for outputs in (answer, right)
    )

    def may_be(i, j):
        return (
            texts[i] == texts[j]
            and np.isclose(scores[i], scores[j], tolerance, tolerance)
            and all(
                one.shape == other.shape and np.allclose(one, other, tolerance, tolerance)
                for one, other in zip(given[i], wanted[j], strict=True)
            )
        )

    left = list(range(len(texts)))
    for i in range(len(texts)):
        if (match := next((j for j in left if may_be(i, j)), None)) is None:
            return False
        left.remove(match)
    return True


def _ranked(signature, outputs, row):
    """Returns the hypotheses of a line and their scores, two lists; None if there are none."""
    hypotheses = _choices(outputs[signature.answer], row)
    if signature.score is None:
        return hypotheses, None
    scores = outputs[signature.score][row]
    # A classifier answers its best label beside the probabilities of all.
    return hypotheses, [np.max(scores)] if len(hypotheses) == 1 else scores


def _choices(output, row):
    """Returns the hypotheses of a line: a list of bytes, or of ids without padding."""
    if output.dtype.kind == "i":  # int32 [batch, hypotheses, length]
        return [tuple(np.trim_zeros(ids, "b").tolist()) for ids in output[row]]
    return output[row : row + 1].reshape(-1).tolist()  # string [batch] or [batch, hypotheses]


def _shown(columns, place):
    """Returns a short str of some rows of inputs or outputs."""
    rows = {name: str(_readable(value[place].tolist())) for name, value in columns.items()}
    texts = (f"{name} {' '.join(row.split())}" for name, row in rows.items())
    return ", ".join(text if len(text) <= 100 else f"{text[:97]}..." for text in texts)


def _readable(value):
    if isinstance(value, list):
        return [_readable(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# int8 and float32 ---------------------------------------------------------------------------------


class Distance(NamedTuple):
    """The distance of answers in int8 from answers in float32."""

    lines: int
    equal: float  # fraction of the lines with the same best answer
    # mean absolute difference between both scores, or log-probabilities of classes, of float32's
    # best answer. If it is not among int8's n best, int8's lowest score is used
    score_difference: float

    def require(self, lines):
        """Raises VerificationError above the limits, or if scores are NaN.

        The score difference has the limit of `score_limit`. On 10 or more of the user's lines a
        quarter must have equal answers.
        """
        limit = score_limit(lines)
        too_few = lines and self.lines >= _MIN_LINES and self.equal < _MIN_EQUAL_FRACTION
        if too_few or not self.score_difference <= limit:
            raise VerificationError(
                f"in int8 {self.equal:.0%} of {self.lines} lines have the answer of float32"
                + f", where {_MIN_EQUAL_FRACTION:.0%} is the limit" * bool(too_few)
                + f", and their scores differ by {self.score_difference:.3g}, where {limit} is the "
                "limit: nothing was published; export in bfloat16 or float32."
            )


def measure_distance(signature, exact, rounded, requests):
    """Returns the `Distance` of an export in int8 from float32, in answers to `Request`s.

    `exact` and `rounded` are the concrete functions of a signature that ranks a line's answers.
    """
    equal, differences = [], []
    for request in requests:
        [right], [given] = (
            live_answers({request.signature: f}, [request]) for f in (exact, rounded)
        )
        for row in range(len(request.inputs["text"])):
            [answer, *_], [score, *_] = _log_ranked(signature, right, row)
            answers, scores = _log_ranked(signature, given, row)
            equal.append(answer == answers[0])
            same = [s for a, s in zip(answers, scores, strict=True) if a == answer]
            differences.append(abs(score - (same[0] if same else min(scores))))
    return Distance(len(equal), float(np.mean(equal)), float(np.mean(differences)))


def _log_ranked(signature, outputs, row):
    """Returns the answers of a line that exist and their scores, logarithms for classes."""
    answers, scores = _ranked(signature, outputs, row)
    scores = np.log(scores) if signature.score == "probabilities" else scores
    count = max(np.count_nonzero(scores > -np.inf), 1)
    return answers[:count], scores[:count]


# Sample requests ----------------------------------------------------------------------------------

_LINES_PER_REQUEST = 64
"""Lines of a request that checks the user's own lines."""


class Request(NamedTuple):
    """One request to a model server."""

    signature: str
    inputs: dict  # of arrays [batch, ...], object (of bytes), int32 or float32


def sample_requests(predictor, signatures, lines=None):
    """Returns three `Request`s to each signature: lines of a few lengths, and a mixed batch.

    Arguments as for `export_saved_model`, but `signatures` must be given.

    Raises:
        InputError: if lines is empty.
    """
    if lines is not None and not lines:
        raise InputError("lines is empty: give at least one, or None.")
    lines = lines or sample_lines(predictor.tokenizer)
    by_length = sorted(lines, key=len)
    batches = [[by_length[0]], [by_length[-1]], [*lines[:2], "", "Ünïcode 😀 e\u0301 \u202eאב"]]
    return _requests(predictor, signatures, batches)


def line_requests(predictor, signatures, lines):
    """Returns `Request`s with all given lines to every signature.

    Signatures of documents are left out. So are random samples: among many, rounding probably
    changes one, and a sample has no ranking that shows whether the other one is as good.
    """
    rows = predictor.requests
    signatures = [n for n in signatures if not (rows[n].is_long or rows[n].is_drawn)]
    batches = [lines[i : i + _LINES_PER_REQUEST] for i in range(0, len(lines), _LINES_PER_REQUEST)]
    return _requests(predictor, signatures, batches)


def _requests(predictor, signatures, batches):
    rows = [(name, predictor.requests[name]) for name in signatures]
    return [Request(n, row.sample(predictor, batch)) for n, row in rows for batch in batches]
