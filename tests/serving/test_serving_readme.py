"""Every example of the serving README is run unchanged, on a tiny exported model."""

import concurrent.futures
import http.client
import json
import pathlib
import re

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from t2t_keras.serving.signatures import SIGNATURES

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "t2t_keras" / "serving" / "README.md").read_text()
GUIDE = (ROOT / "pipelines" / "docs" / "serving.md").read_text()
JSON = [json.loads(text) for text in re.findall(r"```json\n(.*?)```", README, flags=re.DOTALL)]
PYTHON = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)

# Axes whose lengths depend on the vocabulary, counted with the batch as 0.
TOKENS = {
    "source_pieces": {1}, "target_pieces": {1}, "attention": {3, 4}, "spans": {1, 2},
    "source_spans": {2}, "log_probabilities": {2}, "target_ids": {2},
}  # fmt: skip


def post(server, body):
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port)
    connection.request("POST", "/v1/models/translator:predict", body)
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def signature_of(request):
    return request.get("signature_name", "serving_default")


def form(value, name=None, axis=0):
    """The keys, the types and the lengths of an answer, without its values."""
    if isinstance(value, dict):
        return {key: form(item, key, axis) for key, item in value.items()}
    if isinstance(value, list):
        items = {json.dumps(form(item, name, axis + 1), sort_keys=True) for item in value}
        return [None if axis in TOKENS.get(name, ()) else len(value), *sorted(items)]
    return type(value).__name__


@pytest.mark.parametrize("index", range(0, len(JSON), 2))
def test_each_request_is_answered_in_the_form_that_follows_it(server, index):
    request, answer = JSON[index : index + 2]
    status, found = post(server, json.dumps(request))
    assert status == 200, found
    assert form(found) == form(answer)


def test_every_signature_has_one_example():
    assert [signature_of(request) for request in JSON[::2]] == [
        *SIGNATURES,
        "n_best_tokens",
        "sample",
    ]


def test_odd_text_over_rest(server, translator):
    texts = ["", "   ", {"b64": "//4="}, "\u0000😀\u202e"]
    status, found = post(server, json.dumps({"inputs": {"text": texts}}))
    assert status == 200, found
    expected = translator(["", "   ", b"\xff\xfe", "\u0000😀\u202e"])
    assert found["outputs"]["translation"] == expected
    assert found["outputs"]["truncated"] == [False] * 4


def test_the_instances_of_the_text(server):
    (body,) = re.findall(r'`(\{"instances": .*?\})`', README)
    status, found = post(server, body)
    assert status == 200
    assert found["predictions"][0].keys() == {"translation", "score", "truncated"}


def test_the_request_of_curl(server, translator):
    bodies = re.findall(r"curl -d '(.*?)'", README + GUIDE)
    assert len(bodies) == 2
    for body in bodies:
        status, found = post(server, body)
        assert status == 200
        assert found["outputs"]["translation"] == translator(json.loads(body)["inputs"]["text"])


def test_the_grpc_client(loaded, capsys):
    signatures = loaded.signatures

    class Service(prediction_service_pb2_grpc.PredictionServiceServicer):
        def Predict(self, request, context):
            assert request.model_spec.name == "translator"
            inputs = {
                key: tf.constant(tf.make_ndarray(value)) for key, value in request.inputs.items()
            }
            response = predict_pb2.PredictResponse()
            for key, value in signatures[request.model_spec.signature_name](**inputs).items():
                response.outputs[key].CopyFrom(tf.make_tensor_proto(value))
            return response

    server = grpc.server(concurrent.futures.ThreadPoolExecutor(1))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    (code,) = (code for code in PYTHON if "grpc" in code)
    exec(code.replace("localhost:8500", f"127.0.0.1:{port}"), {})
    server.stop(None)
    assert capsys.readouterr().out.startswith("Der Hund")


def test_the_code_without_a_server(exported, translator, capsys):
    (code,) = (code for code in PYTHON if "saved_model.load" in code)
    exec(code.replace("export/1", exported), {})
    text = "The old dog sees a cat."
    assert capsys.readouterr().out == translator([text])[0] + "\n"
