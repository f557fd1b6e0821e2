"""Warm-up requests, which a model server runs before a version becomes available.

Otherwise the first request to each signature would wait until the graph is optimized. The file is
a TFRecord of `PredictionLog`. A record that fails fails the load of the version, so the
verification of an export replays them all.
"""

import os

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.serving.golden import Request

WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")


def write_warmup(folder, requests, name):
    """Writes warm-up requests into a SavedModel's folder.

    Without the package tensorflow-serving-api nothing is written, and a warning is logged.

    Args:
        folder: the SavedModel's folder.
        requests: list of `Request`; a model server accepts at most 1,000.
        name: the model's name.
    """
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2  # noqa: PLC0415
    except ImportError:
        logging.warning(
            "Warm-up requests are not written, since they need tensorflow-serving-api: "
            "pip install 't2t_keras[serving]'."
        )
        return
    path = os.path.join(folder, WARMUP_FILE)
    os.makedirs(os.path.dirname(path))
    with tf.io.TFRecordWriter(path) as writer:
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
    path = os.path.join(folder, WARMUP_FILE)
    if not os.path.exists(path):
        return []
    from tensorflow_serving.apis import prediction_log_pb2  # noqa: PLC0415

    requests = []
    for record in tf.data.TFRecordDataset(path):
        predict = prediction_log_pb2.PredictionLog.FromString(record.numpy()).predict_log.request
        inputs = {key: np.array(tf.make_ndarray(value)) for key, value in predict.inputs.items()}
        requests.append(Request(predict.model_spec.signature_name, inputs))
    return requests
