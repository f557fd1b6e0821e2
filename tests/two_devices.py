"""Two logical devices of the CPU and the strategy for both: made before TensorFlow starts.

A process has one strategy: the collective operations of a second one take its keys.
"""

import numpy as np
import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

from t2t_keras.training.distribution import default_strategy  # noqa: E402

ONE = tf.distribute.get_strategy()
TWO = default_strategy()


def assert_same(one, other, error=1e-6):
    """Asserts that two runs have the same weights and results: (weights, {name: values}) each."""
    for a, b in zip(one[0], other[0], strict=True):
        np.testing.assert_allclose(a, b, atol=error)
    assert one[1].keys() == other[1].keys()
    for name, values in one[1].items():
        np.testing.assert_allclose(values, other[1][name], rtol=1e-5)
