import os
import sys

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.serving import export, export_saved_model
from t2t_keras.serving.export import read_warmup, write_warmup
from t2t_keras.serving.signatures import SIGNATURES
from t2t_keras.serving.verification import Request, VerificationError
from tests.tasks import tiny

PATH = os.path.join("assets.extra", "tf_serving_warmup_requests")


@pytest.mark.slow
def test_records_ask_each_signature_of_the_model(exported, loaded):
    """Parsed by the server's own messages; a verification replays them."""
    from tensorflow_serving.apis import prediction_log_pb2  # noqa: PLC0415

    records = [r.numpy() for r in tf.data.TFRecordDataset(os.path.join(exported, PATH))]
    assert len(records) == 3 * len(loaded.signatures) >= 3 * len(SIGNATURES)
    asked = set()
    for record in records:
        request = prediction_log_pb2.PredictionLog.FromString(record).predict_log.request
        sizes = {value.tensor_shape.dim[0].size for value in request.inputs.values()}
        asked |= {(request.model_spec.name, request.model_spec.signature_name, n) for n in sizes}
    assert asked == {("translator", name, size) for name in loaded.signatures for size in (1, 4)}


def test_a_record_that_fails_publishes_nothing(tmp_path, monkeypatch):
    def write_bad(folder, requests, name):
        bad = Request(
            "score", {name: np.array([[b"rank 2"]], object) for name in ("text", "translation")}
        )
        write_warmup(folder, [*requests, bad], name)

    monkeypatch.setattr(export, "write_warmup", write_bad)
    with pytest.raises(VerificationError, match=r"'score' fails for text \[\['rank 2'\]\]"):
        export_saved_model(tiny.translator(), tmp_path / "1", signatures=["score"])
    assert not os.listdir(tmp_path)


def test_without_the_package_the_export_says_what_is_missing(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with caplog.at_level("WARNING", logger="absl"):
        export_saved_model(tiny.translator(), tmp_path / "1", signatures=["score"], verify=False)
    (record,) = [r for r in caplog.records if "Warm-up" in r.message]
    assert record.message.endswith("pip install 't2t_keras[serving]'.")
    assert (tmp_path / "1" / "saved_model.pb").exists()
    assert read_warmup(tmp_path / "1") == []
