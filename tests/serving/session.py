"""A SavedModel in TensorFlow's C++ session, as a model server runs it."""

import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import config_pb2


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
