"""A stand-in for TF Serving's REST API: the documented rules, an exported model behind them.

The rules are those of TF Serving's page on its RESTful API: the path, exactly one of `instances`
and `inputs`, every input given, no other, bytes as {"b64": …}, and the form of the answers.
"""

import base64
import json
import re

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops

from tests import local_server

_PATH = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict")


class _Refused(Exception):
    def __init__(self, status, message):
        super().__init__(message)
        self.status = status


def serving(loaded, version, name="translator"):
    """Serves a loaded SavedModel, see `local_server.running`.

    `requests` lists the headers and the body of each POST.
    """

    class Handler(local_server.Handler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self.server.requests.append((dict(self.headers), body))
            try:
                found = _PATH.fullmatch(self.path)
                if not found:
                    raise _Refused(400, f"Malformed request: {self.command} {self.path}")
                if found[1] != name:
                    raise _Refused(404, f"Servable not found for request: Latest({found[1]})")
                if found[2] and int(found[2]) != version:
                    raise _Refused(
                        404, f"Servable not found for request: Specific({name}, {found[2]})"
                    )
                status, content = 200, _predict(loaded.signatures, body)
            except _Refused as refused:
                status, content = refused.status, {"error": str(refused)}
            content = json.dumps(content, ensure_ascii=False).encode()
            self.send(content, status, Content_Type="application/json")

    return local_server.running(Handler)


def _predict(signatures, body):
    try:
        request = json.loads(body.decode("utf-8"))
    except ValueError as error:
        raise _Refused(400, f"JSON Parse error: {error}") from error
    if not isinstance(request, dict) or ("instances" in request) == ("inputs" in request):
        raise _Refused(400, "give an object with either 'instances' or 'inputs'")
    if unknown := request.keys() - {"instances", "inputs", "signature_name"}:
        raise _Refused(400, f"unknown keys {sorted(unknown)}")
    name = request.get("signature_name", "serving_default")
    if name not in signatures:
        raise _Refused(400, f'Serving signature name: "{name}" not found in signature def')
    specs = signatures[name].structured_input_signature[1]
    rows = "instances" in request
    columns = _columns_of_rows(request["instances"], specs) if rows else request["inputs"]
    if not isinstance(columns, dict):
        if len(specs) > 1:
            raise _Refused(400, f"inputs is no object, but there are {len(specs)} inputs")
        columns = dict.fromkeys(specs, columns)
    if columns.keys() != specs.keys():
        raise _Refused(400, f"inputs are {sorted(columns)}, but must be {sorted(specs)}")
    try:
        tensors = {key: _tensor(columns[key], specs[key]) for key in specs}
        outputs = {key: v.numpy() for key, v in signatures[name](**tensors).items()}
    except (ValueError, TypeError, tf.errors.InvalidArgumentError) as error:
        raise _Refused(400, str(error)) from error
    if rows:
        assert len({len(value) for value in outputs.values()}) == 1, "one dimension 0 for all"
    answer = {key: _json_value(value.tolist(), key) for key, value in outputs.items()}
    if len(answer) == 1:
        (answer,) = answer.values()
    elif rows:
        values = zip(*answer.values(), strict=True)
        answer = [dict(zip(answer, row, strict=True)) for row in values]
    return {"predictions" if rows else "outputs": answer}


def _columns_of_rows(instances, specs):
    if not isinstance(instances, list) or not instances:
        raise _Refused(400, "instances must be a list that is not empty")
    if len(specs) == 1:
        (name,) = specs
        named = [isinstance(row, dict) and "b64" not in row for row in instances]
        if not any(named):
            return {name: instances}
    for row in instances:
        if not isinstance(row, dict) or row.keys() != specs.keys():
            raise _Refused(400, f"each of instances must have {sorted(specs)}, not {row!r:.80}")
    return {name: [row[name] for row in instances] for name in specs}


def _tensor(value, spec):
    def leaf(value):
        if spec.dtype == tf.string:
            if isinstance(value, dict) and value.keys() == {"b64"}:
                return base64.b64decode(value["b64"], validate=True)
            if isinstance(value, str):
                return value.encode()
        elif type(value) is int or (spec.dtype.is_floating and type(value) is float):
            return value
        raise ValueError(f"JSON value {value!r:.80} is not of type {spec.dtype.name}")

    def convert(value):
        return [convert(item) for item in value] if isinstance(value, list) else leaf(value)

    tensor = tf.constant(convert(value), spec.dtype)
    if not spec.is_compatible_with(tensor):
        raise ValueError(f"shape {tensor.shape} does not fit {spec.shape}")
    return tensor


def _json_value(value, name):
    if isinstance(value, list):
        return [_json_value(item, name) for item in value]
    if isinstance(value, bytes):
        if name.endswith("_bytes"):
            return {"b64": base64.b64encode(value).decode()}
        return value.decode("utf-8")
    return float(np.float32(value)) if isinstance(value, float) else value
