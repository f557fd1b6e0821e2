"""Export of a predictor, such as a translator, as a SavedModel for a model server.

Start with `export_saved_model`: it traces the signatures, saves them into a temporary folder, adds
warm-up requests and batching parameters, verifies the files in a clean process, and renames the
folder to its version. Below it: versions, the server's text files, warm-up requests.
"""

import contextlib
import copy
import glob
import os
import pathlib
import re
from collections.abc import Sequence

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras import ops
from t2t_keras.data.files import (
    local_path,
    make_folder,
    new_folder,
    tensorflow_path,
    write_checksums,
    write_file,
    write_json,
)
from t2t_keras.data.texts import as_strings
from t2t_keras.errors import InputError, reason_of
from t2t_keras.serving.saved_graph import merge_equal_nodes
from t2t_keras.serving.signatures import signature_function
from t2t_keras.serving.stored_weights import (
    DerivedWeights,
    check_precision,
    release,
    stored_weights,
)
from t2t_keras.serving.verification import (
    CleanProcess,
    Request,
    check_answers,
    check_own_answers,
    line_requests,
    live_answers,
    measure_distance,
    sample_requests,
)
from t2t_keras.settings import EXPORT_DEVICES
from t2t_keras.tasks.bundles import Predictor
from t2t_keras.tasks.requests import sample_lines
from t2t_keras.tasks.shortlist import Shortlist, ShortlistTranslator
from t2t_keras.types import StrPath


def export_saved_model(
    predictor: Predictor,
    directory: StrPath,
    *,
    signatures: Sequence[str] | None = None,
    precision: str = "float32",
    device: str | None = None,
    name: str = "translator",
    lines: Sequence[str] | None = None,
    verify: bool = True,
    shortlist: Shortlist | None = None,
) -> None:
    """Writes a predictor, its tokenizer included, as a SavedModel. LoRA is merged.

    Its signatures run the graph of the predictor, with its beam size, length penalty and maximum
    lengths. The folder appears under its name when it is complete and a clean process has loaded it
    and given the predictor's answers, so that a model server that watches its parent never sees an
    incomplete or broken version. If its name is a version number, a model config and batching
    parameters for the server are written next to it if they are missing.

    Args:
        predictor: `Translator`, `TextGenerator`, `Parser` or `Classifier`.
        directory: folder to make, usually a version number inside the model's folder.
        signatures: names in the predictor's table of requests; None: all that are not `on_request`.
        precision: `float32`; `bfloat16` to store matrices in half the bytes, which are cast to
            float32 when the SavedModel is loaded; or `int8` to store them in a quarter and to
            multiply in int8. The server must then be an x86-64 CPU with oneDNN in TensorFlow.
        device: "cpu" or "gpu", the server's device; None: "gpu" if TensorFlow may use a GPU here,
            else "cpu". Both give the same answers. A "gpu" export contains only the plain forms of
            `t2t_keras.ops`, and no second copies of matrices. The export records its device in
            `assets.extra/export.json`.
        name: the model's name on the server.
        lines: typical sources. All of them are checked, and some warm up the server. None: they are
            sampled from the vocabulary.
        verify: whether a clean process must confirm the answers.
        shortlist: the candidates of a translator's searches; None: the whole vocabulary. With one,
            log P is computed over the candidates, and a score subtracts the shortlist's cost of
            each token.

    Raises:
        InputError: if the folder exists and is not empty or cannot be written, an option is out of
            its range, weights are not finite, or the model has no int8 form.
        VerificationError: if the SavedModel does not load, or its answers differ from the
            predictor's.

    Example:
        >>> t2t.export_saved_model(translator, "export/1")
        >>> translate = tf.saved_model.load("export/1").signatures["serving_default"]
        >>> translate(text=tf.constant(["The old man."]))["translation"].shape
        TensorShape([1])
    """
    if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+", name, flags=re.ASCII):
        raise InputError(  # a URL of requests has it
            f"name is {name!r}: give a model name of letters, digits, '.', '_' and '-'."
        )
    lines = None if lines is None else as_strings(lines, "lines")
    if device not in (None, *EXPORT_DEVICES):
        raise InputError(f"device is {device!r}: choose {' or '.join(EXPORT_DEVICES)}.")
    device = device or ops.device()
    check_precision(precision, device)
    directory = os.path.abspath(local_path(directory))
    if not isinstance(predictor, Predictor):
        raise InputError(
            f"predictor is a {type(predictor).__name__}: give a Translator, or another predictor, "
            "of the model and its tokenizer."
        )
    with new_version(directory) as folder, ops.made_for(device), contextlib.ExitStack() as stack:
        predictor = predictor.merged()
        if shortlist is not None:
            predictor = ShortlistTranslator(predictor, shortlist)
        chosen = _chosen(signatures, predictor.requests)
        requests = sample_requests(predictor, chosen, lines)
        process = stack.enter_context(CleanProcess(device)) if verify else None
        weights = stored_weights(predictor.model, precision)
        derived = DerivedWeights(weights)
        stack.callback(lambda: release([*weights.tracked, *derived.tracked]))
        traced = _reading(predictor, weights)
        # Its graphs are traced here, each once for all signatures.
        traced.precompute = derived.get
        functions = {name: _traced(predictor.requests[name], traced) for name in chosen}
        record = {"device": device, "precision": precision, "requires": weights.requires}
        record.update(predictor.export_record)
        measures = verify and precision == "int8"
        if measures and (distance := _distance_from_float32(predictor, weights, lines)):
            record["distance_from_float32"] = distance._asdict()
        exported = tf.Module()
        exported.tokenizer = predictor.tokenizer
        exported.weights = [*weights.tracked, *derived.tracked, *predictor.tracked]
        try:
            _write(folder, exported, functions, record, requests, name)
        except (tf.errors.OpError, OSError) as error:
            raise InputError(
                f"the export {directory} could not be written ({reason_of(error)}); "
                "nothing was published: correct this, for example by making room on the disk, and "
                "export again."
            ) from error
        if process:
            requests = read_warmup(folder) or requests
            requests += line_requests(predictor, chosen, list(lines or []))
            process.ask(folder, requests)
            expected = live_answers(functions, requests, process.device)
            answers = process.answers()
            check_answers(
                requests,
                expected,
                answers,
                lambda request: _live_ranking(predictor, weights, request),
                "int8" if precision == "int8" else predictor.model.compute_dtype,
            )
            check_own_answers(predictor, requests, answers, precision, lines)
            logging.info("An export for a %s, verified on the %s.", device, process.device)
    if is_version(directory):
        write_server_files(os.path.dirname(directory), name, device)


def _live_ranking(predictor, weights, request):
    """Returns the live model's n-best for a `Request`; None if its signature ranks no answers."""
    ranking = predictor.requests[request.signature].ranking
    if ranking is None:
        return None
    function = _traced(ranking, _reading(predictor, weights))
    [answer] = live_answers({request.signature: function}, [request])
    return answer


def _distance_from_float32(predictor, weights, lines):
    """Returns the `Distance` of an export in int8, None if no request ranks answers by a score.

    Raises VerificationError if it is too large.
    """
    ranked = ((n, row) for n, row in predictor.requests.items() if row.ranking and row.score)
    name, row = next(ranked, (None, None))
    if row is None:
        return None
    texts = lines or sample_lines(predictor.tokenizer, range(1, 21))
    forms = copy.copy(predictor), _reading(predictor, weights)
    functions = (_traced(row.ranking, form) for form in forms)
    requests = line_requests(predictor, [name], list(texts))
    distance = measure_distance(row.ranking, *functions, requests)
    distance.require(lines)
    logging.info("In int8: %s", distance)
    return distance


def _reading(predictor, weights):
    """Returns a copy of a predictor whose graphs read the stored weights."""
    own = copy.copy(predictor)
    own.reading = weights.reading
    return own


def _traced(request, predictor):
    """Returns the concrete function of a signature."""
    return predictor.reading(signature_function(request, predictor)).get_concrete_function()


def _chosen(names, known):
    """Returns the names of the requested signatures."""
    if names is None:
        return [name for name, request in known.items() if not request.on_request]
    names = names if isinstance(names, str) else list(names)
    if isinstance(names, str) or not names:
        raise InputError(f"signatures is {names!r}: give a list of names, or None for the default.")
    for name in names:
        if name not in known:
            raise InputError(f"there is no signature {name!r}: choose from {', '.join(known)}.")
    return names


def _write(folder, exported, functions, record, requests, name):
    """Writes all files of an export into its folder."""
    with _warnings_only(), tensorflow_path(folder) as path:
        tf.saved_model.save(exported, path, signatures=functions)
        merge_equal_nodes(path)
    write_json(os.path.join(folder, RECORD_FILE), record)
    write_checksums(folder)  # of what decides the answers, not of what one may edit
    write_file(os.path.join(folder, BATCHING_FILE), batching_parameters(record["device"]).encode())
    write_warmup(folder, requests, name)


@contextlib.contextmanager
def _warnings_only():
    """Suppresses TensorFlow's list of all tensors that the signatures capture."""
    before = logging.get_verbosity()
    logging.set_verbosity(min(before, logging.WARNING))
    try:
        yield
    finally:
        logging.set_verbosity(before)


# Versions of a model ------------------------------------------------------------------------------


def is_version(directory):
    """Returns whether a folder's name makes it a version for a model server."""
    name = os.path.basename(directory)
    return name.isascii() and name.isdigit()


def next_version(base: StrPath) -> str:
    """Returns the path of the next version: one above the largest number in folder `base`."""
    base = local_path(base)
    entries = os.listdir(base) if os.path.isdir(base) else []
    versions = [int(entry) for entry in entries if is_version(entry)]
    return os.path.join(base, str(max(versions, default=0) + 1))


_LEFTOVER = ".export.tmp"  # ending of a temporary folder


@contextlib.contextmanager
def new_version(directory):
    """Yields the path of a temporary folder, which becomes the version when the block succeeds.

    See `new_folder`. The temporary name is not a number, so that a model server ignores it, even if
    the process is killed and leaves it there.

    Raises:
        InputError: if the version exists and is not empty, even if it appeared during the block.
    """
    directory = os.path.realpath(local_path(directory))
    base = os.path.dirname(directory) if is_version(directory) else directory
    for leftover in glob.glob(f"{glob.escape(os.path.dirname(directory))}/*{_LEFTOVER}"):
        logging.warning(
            "%s belongs to an export that is running, or that was killed: then delete it.", leftover
        )
    with new_folder(
        directory, lambda: f"export to {next_version(base)} instead", _LEFTOVER
    ) as path:
        yield path


# Text files in an export and beside it ------------------------------------------------------------

RECORD_FILE = os.path.join("assets.extra", "export.json")
"""How an export was made; model servers ignore it."""

BATCHING_FILE = "batching_params.pbtxt"
"""TF Serving looks for this name inside a version."""

MODEL_CONFIG_FILE = "models.config"

_BATCHING_PARAMETERS = """\
# How TF Serving joins requests that arrive together into one batch.
# A request of more sentences than this is refused.
max_batch_size { value: 128 }
# How long the first request of a batch waits for others.
batch_timeout_micros { value: 2000 }
# With this many batches waiting, further requests are refused: the client may try again.
max_enqueued_batches { value: 100 }
# Batches that run at the same time, of all models together; %(reason)s.
num_batch_threads { value: %(threads)d }
# Source ids of different lengths can share a batch.
pad_variable_length_inputs: true
"""


def batching_parameters(device):
    """Returns the text of the batching parameters for a server with this device."""
    threads, reason = {
        "cpu": (4, "about the number of cores"),
        "gpu": (2, "one on the GPU, and one whose text is read or written"),
    }[device]
    return _BATCHING_PARAMETERS % {"threads": threads, "reason": reason}


def model_config(name):
    """Returns the text of a model server's config for one model, mounted under /models/`name`."""
    return f"""\
# For TF Serving's --model_config_file. The newest version is served; to go back to an older one:
# model_version_policy {{ specific {{ versions: 1 }} }}
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
  }}
}}
"""


def write_server_files(base, name, device):
    """Writes the model config and the batching parameters into `base`, the folder of versions.

    An existing file may be an operator's own and is kept.
    """
    texts = {MODEL_CONFIG_FILE: model_config(name), BATCHING_FILE: batching_parameters(device)}
    for file, text in texts.items():
        path = pathlib.Path(base, file)
        if not path.exists():
            write_file(path, text.encode())
        elif path.read_bytes() != text.encode():
            logging.info("%s exists and is kept.", path)


# Warm-up requests ---------------------------------------------------------------------------------
# A model server runs them before a version becomes available. Otherwise the first request to each
# signature would wait until the graph is optimized. The file is a TFRecord of `PredictionLog`. If a
# record fails, the version does not load, so the verification of an export replays all of them.

WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")


def write_warmup(folder, requests, name):
    """Writes `Request`s to the model `name` into a SavedModel's folder.

    A model server accepts at most 1,000. Without the package tensorflow-serving-api nothing is
    written, and a warning is logged.
    """
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2  # noqa: PLC0415
    except ImportError:
        logging.warning(
            "Warm-up requests are not written, since they need tensorflow-serving-api: "
            "pip install 't2t_keras[serving]'."
        )
        return
    make_folder(os.path.dirname(os.path.join(folder, WARMUP_FILE)))
    with (
        tensorflow_path(folder) as path,
        tf.io.TFRecordWriter(os.path.join(path, WARMUP_FILE)) as writer,
    ):
        for request in requests:
            predict = predict_pb2.PredictRequest()
            predict.model_spec.name = name
            predict.model_spec.signature_name = request.signature
            for key, value in request.inputs.items():
                predict.inputs[key].CopyFrom(tf.make_tensor_proto(value))
            log = prediction_log_pb2.PredictLog(request=predict)
            record = prediction_log_pb2.PredictionLog(predict_log=log)
            writer.write(record.SerializeToString())


def read_warmup(folder):
    """Returns the warm-up requests of a SavedModel's folder, a list of `Request`; [] if none."""
    if not os.path.exists(os.path.join(folder, WARMUP_FILE)):
        return []
    from tensorflow_serving.apis import prediction_log_pb2  # noqa: PLC0415

    requests = []
    with tensorflow_path(folder) as path:
        records = list(tf.data.TFRecordDataset(os.path.join(path, WARMUP_FILE)))
    for record in records:
        predict = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        # A map of protobuf has no order.
        inputs = sorted(predict.inputs.items())
        inputs = {key: np.array(tf.make_ndarray(value)) for key, value in inputs}
        requests.append(Request(predict.model_spec.signature_name, inputs))
    return requests
