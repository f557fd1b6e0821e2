"""A translator as a SavedModel: text in, text out, no Python behind it."""

import contextlib
import copy
import os

import tensorflow as tf
from absl import logging

from t2t_keras.data.files import write_file
from t2t_keras.errors import InputError
from t2t_keras.serving.classifier_signatures import CLASSIFIER_RANKINGS, CLASSIFIER_SIGNATURES
from t2t_keras.serving.golden import golden_requests
from t2t_keras.serving.made_at_loading import KeptCopies, MadeAtLoading
from t2t_keras.serving.parser_signatures import PARSER_RANKINGS, PARSER_SIGNATURES
from t2t_keras.serving.server_files import (
    BATCHING_FILE,
    BATCHING_PARAMETERS,
    check_name,
    write_server_files,
)
from t2t_keras.serving.signatures import RANKINGS, SIGNATURES
from t2t_keras.serving.stored_weights import stored_weights
from t2t_keras.serving.verification import BareProcess, check_answers, live_answers
from t2t_keras.serving.versions import is_version, new_version
from t2t_keras.serving.warmup import read_warmup, write_warmup
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.parsing import Parser

_TASKS = {
    Parser: (PARSER_SIGNATURES, PARSER_RANKINGS),
    Classifier: (CLASSIFIER_SIGNATURES, CLASSIFIER_RANKINGS),
}
"""The signatures of each task's object and their rankings, unless they are a translator's."""


def export_saved_model(
    translator,
    directory,
    *,
    signatures=None,
    precision="float32",
    name="translator",
    lines=None,
    verify=True,
):
    """Writes a translator, its tokenizer included, as a SavedModel.

    Its signatures run the very graph of the translator, with its beam size, length penalty and
    greatest lengths. The folder appears under its name only when it is complete and a process of
    its own has answered from it as the translator does, so that a model server that watches its
    parent never sees half a version or a broken one. If the name is a version number, a model
    config and batching parameters for the server are written beside it where they are missing.

    Args:
        translator: `Translator`, `Parser` or `Classifier`.
        directory: folder to make, as a rule a version number inside the model's own folder.
        signatures: list of names out of `t2t_keras.serving.signatures`, or for a parser or a
            classifier out of `parser_signatures` or `classifier_signatures`; None for all.
        precision: `float32`, or `bfloat16` to store matrices in half the bytes; they are made
            float32 again when the SavedModel is loaded.
        name: the model's name on the server.
        lines: list of str, a few sources like those that will be asked for, with which the export
            is checked and the server warms up; if None, they are made of the vocabulary.
        verify: bool, whether a process of its own must confirm the answers.

    Raises:
        InputError: if the folder exists and holds something, or an option is out of its range.
        VerificationError: if the SavedModel does not answer as the translator does.

    Example:
        >>> export_saved_model(translator, next_version("export"))  # export/1
        >>> loaded = tf.saved_model.load("export/1")
        >>> loaded.signatures["serving_default"](tf.constant(["Hello world."]))["translation"]
    """
    check_name(name)
    directory = os.path.abspath(directory)
    with new_version(directory) as folder, contextlib.ExitStack() as stack:
        known, rankings = _signatures_of(translator)
        makers = _chosen(signatures, known)
        requests = golden_requests(translator, makers, lines)
        process = stack.enter_context(BareProcess()) if verify else None
        weights = stored_weights(translator.model, precision)
        copies = KeptCopies(weights)
        stack.callback(lambda: _release([*weights.tracked, *copies.tracked]))
        traced = copy.copy(translator)
        traced.derive = copies.keep
        # Traced here, since `save` and a call would each trace a function anew.
        functions = {
            key: weights.reading(make(traced)).get_concrete_function()
            for key, make in makers.items()
        }
        exported = _Exported(translator, [*weights.tracked, *copies.tracked])
        with _warnings_only():
            tf.saved_model.save(exported, folder, signatures=functions)
        write_file(os.path.join(folder, BATCHING_FILE), BATCHING_PARAMETERS.encode())
        write_warmup(folder, requests, name)
        if process:
            requests = read_warmup(folder) or requests
            process.ask(folder, requests)
            expected = live_answers(functions, requests)
            check_answers(
                requests,
                expected,
                process.answers(),
                lambda request: _live_ranking(translator, rankings, weights, request),
                translator.model.compute_dtype,
            )
    if is_version(directory):
        write_server_files(os.path.dirname(directory), name)


def _signatures_of(translator):
    """Returns the signatures of a task's object and their rankings, {name: maker} each."""
    for kind, signatures in _TASKS.items():
        if isinstance(translator, kind):
            return signatures
    return SIGNATURES, RANKINGS


def _live_ranking(translator, rankings, weights, request):
    """Returns the n-best that the live model answers a `Request` with; None without a choice."""
    if request.signature not in rankings:
        return None
    signature = rankings[request.signature](translator)
    function = weights.reading(signature).get_concrete_function()
    [answer] = live_answers({request.signature: function}, [request])
    return answer


def _chosen(names, known):
    """Returns {name: maker} of the signatures wanted, out of those that are known."""
    if names is None:
        return known
    if isinstance(names, str) or not names:
        raise InputError(f"signatures is {names!r}: give a list of names, or None for all.")
    for name in names:
        if name not in known:
            raise InputError(f"there is no signature {name!r}: choose out of {', '.join(known)}.")
    return {name: known[name] for name in names}


def _release(tracked):
    for resource in tracked:
        if isinstance(resource, MadeAtLoading):
            resource.release()


class _Exported(tf.Module):
    """What the signatures read; all else of the translator stays behind."""

    def __init__(self, translator, weights):
        super().__init__()
        self.tokenizer = translator.tokenizer
        self.weights = weights


@contextlib.contextmanager
def _warnings_only():
    """Keeps TensorFlow from telling the name of each tensor that a signature captures."""
    before = logging.get_verbosity()
    logging.set_verbosity(min(before, logging.WARNING))
    try:
        yield
    finally:
        logging.set_verbosity(before)
