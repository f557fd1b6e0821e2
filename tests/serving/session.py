"""A SavedModel in TensorFlow's C++ session, as a model server runs it."""

import pathlib

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2, saved_model_pb2

from t2t_keras.serving import export_saved_model

GOOD = "The old man sees a small dog."

ODD = {
    "empty": b"", "spaces": b"    ", "long word": b"x" * 100_000,
    "long text": b"The dog. " * 11_112,
    "long spaces": b"dog" + b" " * 100_000 + b"dog",
    "long marks": ("e" + "\u0301\u0323" * 50_000).encode(),
    "invalid UTF-8": b"\xff\xfe the \xe2\x82 dog \xed\xa0\x80\xf0\x9f",
    "NUL": b"the\x00dog\x00",
    "control characters": bytes(range(32)) + b"\x7f\xc2\x85",
    "right to left": "\u202e\u05d0\u05d1\u05d2 dog \u0645\u0631\u062d\u0628\u0627\u202c".encode(),
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f600".encode(),
    "unknown script": "\U00012000\ua66e \U00010330\U00010331".encode(),
    "combining": "Z\u0351\u036b\u0343 q\u0323\u0307 \u1112\u1161\u11ab \u0344".encode(),
    "noncharacters": "\ufdd0\uffff\U0010ffff\ufeff".encode(),
}  # fmt: skip
"""Texts of all kinds of bytes and of very uneven lengths."""


def loaded_export(predictor, folder, *names, **options):
    """Exports signatures of a predictor, not verified, and returns the loaded SavedModel."""
    options = {"signatures": names or None, "verify": False} | options
    export_saved_model(predictor, folder, **options)
    return tf.saved_model.load(str(folder))


def graph_of(folder):
    """Returns the `MetaGraphDef` in a SavedModel's folder."""
    content = pathlib.Path(folder, "saved_model.pb").read_bytes()
    [meta_graph] = saved_model_pb2.SavedModel.FromString(content).meta_graphs
    return meta_graph


def nodes_of(folder):
    """Returns all nodes of a SavedModel, those of its functions too."""
    graph = graph_of(folder).graph_def
    return [*graph.node, *(node for f in graph.library.function for node in f.node_def)]


class Session:
    """Loads a SavedModel by its tag; whatever is asked goes to the graph as it is.

    Args:
        directory: the SavedModel.

    Example:
        >>> with Session("export/1") as session:
        ...     session("serving_default", text=[b"Hello."])["translation"]
    """

    def __init__(self, directory):
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], directory)
        self.signatures = meta_graph.signature_def
        self._callables = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._callables.clear()
        self._session.close()

    def __call__(self, signature, **inputs):
        """Returns {output: array} for inputs {name: array, or list of strings}."""
        definition = self.signatures[signature]
        key = (signature, *inputs)
        if key not in self._callables:
            # Session.run would itself refuse shapes that do not fit; a model server does not.
            options = config_pb2.CallableOptions(
                feed=[definition.inputs[name].name for name in inputs],
                fetch=[output.name for output in definition.outputs.values()],
            )
            self._callables[key] = self._session._make_callable_from_options(options)
        arrays = [np.array(x, object) if isinstance(x, list) else x for x in inputs.values()]
        return dict(zip(definition.outputs, self._callables[key](*arrays), strict=True))
