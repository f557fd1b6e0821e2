"""Verification of an export: a clean process must answer from its files as the live model does.

`sample_requests` makes requests to every signature. `CleanProcess` has a process without this
library answer them from the exported files, `live_answers` asks the model, and `check_answers`
compares the answers. `measure_distance` compares an export in int8 with float32.
"""

import collections
import contextlib
import os
import pathlib
import pickle
import re
import subprocess
import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.data.base_tokenizer import UNK_ID
from t2t_keras.data.files import tensorflow_path
from t2t_keras.errors import InputError
from t2t_keras.serving.signatures import CALLS
from t2t_keras.tasks.spans import ALL_MARKS

_SCRIPT = pathlib.Path(__file__).with_name("clean_process.py")

_TOLERANCE = {"float64": 1e-3, "float32": 1e-3, "bfloat16": 2e-2, "float16": 1e-2, "int8": 2e-2}
"""Largest difference of scores, relative and absolute, by the compute dtype of the model.

In int8 the last bit of a float32 may decide which of two integers an activation is rounded to.
"""

_MAX_SCORE_DIFFERENCE = {"own": 0.25, "sampled": 2.0}
_MIN_EQUAL_SHARE = 0.25
_MIN_LINES = 10
"""Limits of a `Distance`. A trained model had 0.02 and 99 % on its test split, 0.7 and 65 % on
sampled lines. With all scales 1.1 times too large it had 0.32 and 84 %, and 3.1 and 15 %."""

_HYPOTHESES = (
    "translation",
    "translations",
    "target_ids",
    "tree",
    "trees",
    "label",
    "labels",
)  # outputs of a search or a classifier
_SCORES = ("score", "scores", "probabilities")  # outputs by which it ranks them
_DETAILS = ("tokens", "spans", "log_probabilities", "source_spans")  # outputs that describe them


class VerificationError(InputError):
    """An export whose answers are not those of the model; it was not published."""


_ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "2",
    # Memory that is freed goes back to the system, for there are two models at the same time.
    "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": "1",
    "MALLOC_MMAP_THRESHOLD_": "1048576",
}


class CleanProcess:
    """A clean Python process that loads a SavedModel, with TensorFlow and without this library.

    It imports TensorFlow while the calling process exports.

    Args:
        device: "cpu" or "gpu", which the SavedModel is made for. An export for a GPU is loaded on
            one if this process has one, else on the CPU; all others never take a GPU.

    Example:
        >>> with CleanProcess() as process:
        ...     tf.saved_model.save(module, "export", signatures=signatures)
        ...     process.ask("export", requests)
        ...     answers = process.answers()
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
        """Makes the process load the SavedModel in `directory` and answer, and returns immediately.

        Args:
            directory: path of the SavedModel.
            requests: list of `Request`.
        """
        requests = [tuple(request) for request in requests]
        directory = self._path.enter_context(tensorflow_path(directory))
        stdin, self._process.stdin = self._process.stdin, None
        # `answers` reports a process that has died.
        with contextlib.suppress(BrokenPipeError), stdin:
            pickle.dump((directory, requests), stdin)

    def answers(self):
        """Returns the process's answers.

        Returns:
            List with one item for each request: a dict of arrays, or a str with an error message.

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
    """Returns the live model's answers.

    Args:
        functions: {signature name: concrete function}.
        requests: list of `Request`.
        device: "cpu" or "gpu", where the clean process answers.

    Returns:
        List of dicts of arrays.

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

    Floats may differ by rounding, all else must be equal. The one exception is a tie: an export may
    choose another hypothesis than the live model where the live n-best has both of them, and their
    scores there agree within tolerance. Two segmentations of one text may also be swapped. Each
    such line is logged.

    Args:
        requests: list of `Request`.
        expected: list of dicts of arrays, the answers of the live model.
        found: list of dicts of arrays or str, the answers of the export.
        rank: function of a `Request` to the live model's n-best of its lines, a dict of arrays as
            the `n_best` signature gives; None for a signature that makes no choice. Called only
            where hypotheses differ.
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
                f"instead of {sorted(right)}: nothing was published."
            )
        ranking = None
        for row in range(len(next(iter(request.inputs.values())))):
            names = [n for n in right if not _agree(n, right[n], answer[n], row, tolerance)]
            if not names:
                continue
            place = slice(row, row + 1)
            # Other hypotheses have other details.
            names = [name for name in names if name not in _DETAILS] or names
            name = next((name for name in names if name not in _HYPOTHESES), names[0])
            difference = (
                f"The exported signature {request.signature!r} answers "
                f"{_shown(request.inputs, place)} with {_shown({name: answer[name]}, place)} where "
                f"the model says {_shown({name: right[name]}, place)}"
            )
            is_tie = name in _DETAILS and _is_tie_of_details(right, answer, row, tolerance)
            if _is_choice(name, right[name], answer[name]):
                ranking = rank(request) if ranking is None else ranking
                is_tie = ranking and _is_tie(right, answer, ranking, row, tolerance)
            if is_tie:
                logging.warning("%s: their scores tie.", difference)
                continue
            raise VerificationError(f"{difference}: nothing was published.")


def _failure(request, reason):
    return VerificationError(
        f"The exported signature {request.signature!r} fails for "
        f"{_shown(request.inputs, slice(None))}: {reason}"
    )


def _agree(name, right, answer, row, tolerance):
    """Returns whether a row of an output is equal, floats within the tolerance."""
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
    if scores is None:
        scores = [live_scores[live.index(one)] if one in live else np.nan for one in wanted]

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


def _is_tie_of_details(right, answer, row, tolerance):
    """Returns whether hypotheses with one text and equal scores have each other's details."""
    if "tokens" not in right:
        return False
    texts, scores = _ranked(right, row)
    given, wanted = (
        [
            [outputs[name][row, i][: outputs["tokens"][row, i]] for name in _DETAILS[1:]]
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


def _ranked(outputs, row):
    """Returns the hypotheses of a line and their scores, two lists; None where none are given."""
    hypotheses = next(_choices(outputs[name], row) for name in _HYPOTHESES if name in outputs)
    scores = next((outputs[name][row] for name in _SCORES if name in outputs), None)
    if scores is None:
        return hypotheses, None
    # A classifier answers its best label beside the probabilities of all.
    return hypotheses, [np.max(scores)] if len(hypotheses) == 1 else scores


def _choices(output, row):
    """Returns the hypotheses of a line: a list of bytes, or of ids without padding."""
    if output.dtype.kind == "i":  # int32 [batch, hypotheses, length]
        return [tuple(np.trim_zeros(ids, "b").tolist()) for ids in output[row]]
    return output[row : row + 1].reshape(-1).tolist()  # string [batch] or [batch, hypotheses]


def _shown(columns, place):
    """Returns a short str of some rows of inputs or outputs."""
    texts = (
        f"{name} {' '.join(str(_readable(value[place].tolist())).split())}"
        for name, value in columns.items()
    )
    return ", ".join(text if len(text) <= 100 else f"{text[:97]}..." for text in texts)


def _readable(value):
    if isinstance(value, list):
        return [_readable(item) for item in value]
    return value.decode(errors="replace") if isinstance(value, bytes) else value


# int8 and float32 ---------------------------------------------------------------------------------


class Distance(NamedTuple):
    """How far answers in int8 are from those in float32.

    Attributes:
        lines: int, lines that were answered.
        equal: share of the lines with the same best answer, 0 to 1.
        score_difference: mean absolute difference of the scores, or log-probabilities of classes,
            that float32's best answer has in both. If int8 does not have it among its n best, the
            lowest score of these is taken.
    """

    lines: int
    equal: float
    score_difference: float

    def require(self, lines):
        """Raises VerificationError above the limits, or if scores are NaN.

        On the user's lines the score difference must be at most 0.25 and, if they are 10 or more, a
        quarter must have equal answers. Lines sampled from the vocabulary mean nothing, so that
        small differences lead to other answers: there the score difference must be at most 2.

        Args:
            lines: "own" or "sampled".
        """
        limit = _MAX_SCORE_DIFFERENCE[lines]
        too_few = self.equal < _MIN_EQUAL_SHARE and lines == "own" and self.lines >= _MIN_LINES
        if too_few or not self.score_difference <= limit:
            raise VerificationError(
                f"in int8 {self.equal:.0%} of {self.lines} lines have the answer of float32, and "
                f"their scores differ by {self.score_difference:.3g}, where {limit} is the limit: "
                "nothing was published; export in bfloat16 or float32."
            )


def measure_distance(exact, rounded, requests):
    """Returns the `Distance` of an export in int8 from float32.

    Args:
        exact, rounded: concrete functions of the signature `n_best`, in float32 and in int8.
        requests: list of `Request` to it.
    """
    equal, differences = [], []
    for request in requests:
        [right], [found] = (live_answers({"n_best": f}, [request]) for f in (exact, rounded))
        for row in range(len(request.inputs["text"])):
            [answer, *_], [score, *_] = _log_ranked(right, row)
            answers, scores = _log_ranked(found, row)
            equal.append(answer == answers[0])
            same = [s for a, s in zip(answers, scores, strict=True) if a == answer]
            differences.append(abs(score - (same[0] if same else min(scores))))
    return Distance(len(equal), float(np.mean(equal)), float(np.mean(differences)))


def _log_ranked(outputs, row):
    """Returns the answers of a line that exist and their scores, logarithms for classes."""
    answers, scores = _ranked(outputs, row)
    scores = np.log(scores) if "probabilities" in outputs else scores
    count = max(np.count_nonzero(scores > -np.inf), 1)
    return answers[:count], scores[:count]


# Sample requests ----------------------------------------------------------------------------------

_FIRST_WORD = 4 + 256
"""Smaller ids are special tokens and bytes, which form no words."""


_LINES_PER_REQUEST = 64
"""Lines of a request that checks the user's own lines."""


class Request(NamedTuple):
    """One request to a model server.

    Attributes:
        signature: name of the signature.
        inputs: dict of arrays [batch, ...], object (of bytes), int32 or float32.
    """

    signature: str
    inputs: dict


def sample_requests(translator, signatures, lines=None):
    """Returns requests to every signature: single lines of a few lengths, and a mixed batch.

    Args:
        translator: `Translator`.
        signatures: names of the signatures.
        lines: list of str, typical sources; if None, they are sampled from the vocabulary.

    Returns:
        List of `Request`, three for each signature.

    Raises:
        InputError: if lines is empty.
    """
    if lines is not None and not lines:
        raise InputError("lines is empty: give at least one, or None.")
    lines = lines or sample_lines(translator.tokenizer)
    by_length = sorted(lines, key=len)
    batches = [[by_length[0]], [by_length[-1]], [*lines[:2], "", "Ünïcode 😀 e\u0301 \u202eאב"]]
    return _requests(translator, signatures, batches)


def line_requests(translator, signatures, lines):
    """Returns requests with all given lines, str, to every signature, a list of `Request`.

    Signatures that call another one are left out. So is `sample`: rounding may change a draw, the
    likelier the more lines there are, and no ranking tells that it was as good.
    """
    signatures = [name for name in signatures if name not in {*CALLS, "sample"}]
    batches = [lines[i : i + _LINES_PER_REQUEST] for i in range(0, len(lines), _LINES_PER_REQUEST)]
    return _requests(translator, signatures, batches)


def _requests(translator, signatures, batches):
    return [
        Request(name, _INPUTS[name](translator, batch)) for name in signatures for batch in batches
    ]


def sample_lines(tokenizer, lengths=(1, 6, 20)):
    """Returns a text for each number of tokens, list of str; the vocabulary determines them."""
    rng = np.random.default_rng(0)
    first = min(_FIRST_WORD, tokenizer.vocab_size - 1)
    return [
        tokenizer.decode(rng.integers(first, tokenizer.vocab_size, [1, length], np.int32))
        .numpy()[0]
        .decode()
        for length in lengths
    ]


def _languages(translator, lines):
    """Returns languages of lines, one after another; none of a predictor that has none."""
    if getattr(translator, "languages", None) is None:
        return {}
    codes = translator.languages.codes
    sources, targets = (
        _strings(codes[(row + shift) % len(codes)] for row in range(len(lines))) for shift in (0, 1)
    )
    return {"source_language": sources, "target_language": targets}


def _text(translator, lines):
    return {"text": _strings(lines)} | _languages(translator, lines)


def _text_and_prefix(translator, lines):
    # Prefixes of two characters, most of them word fragments, and some empty ones.
    prefixes = [line[:2] if number % 2 else "" for number, line in enumerate(lines, start=1)]
    return {"text": _strings(lines), "prefix": _strings(prefixes)} | _languages(translator, lines)


def _text_and_translation(translator, lines):
    # Any text has a probability as translation.
    texts = {"text": _strings(lines), "translation": _strings(reversed(lines))}
    return texts | _languages(translator, lines)


def _text_and_terms(translator, lines):
    # The first word of every second line, and a word that the vocabulary surely has.
    tokenizer = translator.tokenizer.target
    words = (line for count in range(1, 9) for line in sample_lines(tokenizer, [count]))
    target = next(
        (w for w in words if _is_term(w) and UNK_ID not in tokenizer.encode([w]).values), None
    )
    sources = [(line.split() or [""])[0] if n % 2 == 0 else "" for n, line in enumerate(lines)]
    terms = [f"{word}\t{target}" if target and _is_term(word) else "" for word in sources]
    return _text(translator, lines) | {"terms": _strings(terms)}


def _source_ids(translator, lines):
    languages = _languages(translator, lines)
    codes = {name: tf.constant(column, tf.string) for name, column in languages.items()}
    ids = {"source_ids": translator.encode(tf.constant(lines), **codes).numpy()}
    return ids | {name: languages[name] for name in languages if name == "target_language"}


def _is_term(word):
    return word and not re.search(ALL_MARKS, word)


def _text_and_sampling(translator, lines):
    # Some draw from all tokens, some from the most likely ones.
    count = np.arange(len(lines), dtype=np.int32)
    return _text(translator, lines) | {
        "seed": count,
        "temperature": np.full(len(lines), 0.8, np.float32),
        "top_k": count % 2 * 10,
        "top_p": np.where(count % 3 == 1, 0.9, 1).astype(np.float32),
    }


_INPUTS = {
    "serving_default": _text,
    "n_best": _text,
    "prefix": _text_and_prefix,
    "score": _text_and_translation,
    "decode_ids": _source_ids,
    "align": _text_and_translation,
    "document": _text,
    "n_best_tokens": _text,
    "sample": _text_and_sampling,
    "terms": _text_and_terms,
    "document_terms": _text_and_terms,
}


def _strings(lines):
    return np.array([line.encode() for line in lines], object)
