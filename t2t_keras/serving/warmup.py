"""Warm-up requests: what a model server runs before it says that a version is ready.

A server's first request to each signature would otherwise wait until the graph is optimized. The
file is a TFRecord of `PredictionLog`; a record that fails fails the load of the version, so that
the self-check replays them all.
"""

import os

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.errors import InputError
from t2t_keras.serving.golden import Request

WARMUP_FILE = os.path.join("assets.extra", "tf_serving_warmup_requests")
MOST_RECORDS = 1000
"""A model server refuses a version with more."""


def write_warmup(folder, requests, name):
    """Writes warm-up requests into a SavedModel's folder.

    Without the package tensorflow-serving-api nothing is written, and a log line says so.

    Args:
        folder: the SavedModel's folder.
        requests: list of `Request`, at most `MOST_RECORDS`.
        name: the model's name.

    Raises:
        InputError: if there are too many requests.
    """
    if len(requests) > MOST_RECORDS:
        raise InputError(
            f"{len(requests)} warm-up requests are more than the {MOST_RECORDS} that a model "
            "server takes: give fewer lines."
        )
    try:
        from tensorflow_serving.apis import predict_pb2, prediction_log_pb2  # noqa: PLC0415
    except ImportError:
        logging.warning(
            "Warm-up requests are left out, since they need tensorflow-serving-api: "
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
