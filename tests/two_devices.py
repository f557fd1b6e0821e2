"""Two logical devices of the CPU and the strategy for both: made before TensorFlow starts.

A process has one strategy: the collective operations of a second one take its keys.
"""

import tensorflow as tf

tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)

from t2t_keras.training.distribution import default_strategy  # noqa: E402

ONE = tf.distribute.get_strategy()
TWO = default_strategy()
