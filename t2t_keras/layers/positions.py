"""Positional encoding (paper, section 3.5; learned positions: Table 3, row E)."""

import keras
import tensorflow as tf


def _as_positions(x, positions):
    return tf.range(tf.shape(x)[1]) if positions is None else positions


@keras.saving.register_keras_serializable(package="t2t_keras")
class SinusoidalPositions(keras.layers.Layer):
    """Adds sine and cosine waves of the position, for sequences of any length (section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)).

    Call arguments:
        x: [batch, length, model_dim].
        positions: int32, broadcastable to [batch, length]; 0, 1, 2 … if None.

    Returns:
        x + PE(positions): [batch, length, model_dim].
    """

    max_positions = None  # no limit

    def call(self, x, positions=None):
        encoding = self.encode(_as_positions(x, positions), x.shape[-1])
        return x + tf.cast(encoding, x.dtype)

    def encode(self, positions, model_dim):
        """Returns PE(positions), float32 [..., model_dim]; bfloat16 can't count past 256."""
        even = tf.range(0, model_dim, 2, dtype=tf.float32)  # the exponents' 2i
        rates = tf.pow(10_000.0, -even / model_dim)  # [model_dim / 2]
        angles = tf.cast(positions, tf.float32)[..., tf.newaxis] * rates
        waves = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)  # [..., model_dim / 2, 2]
        shape = tf.concat([tf.shape(angles)[:-1], [2 * even.shape[0]]], axis=0)
        return tf.reshape(waves, shape)[..., :model_dim]  # sine and cosine take turns


@keras.saving.register_keras_serializable(package="t2t_keras")
class LearnedPositions(keras.layers.Layer):
    """Adds a learned vector for each position (Table 3, row E).

    Args:
        max_positions: number of positions that have a vector; longer input is an error.

    Call arguments:
        x: [batch, length, model_dim].
        positions: int32, broadcastable to [batch, length]; 0, 1, 2 … if None.

    Returns:
        x + the positions' vectors: [batch, length, model_dim].

    Raises:
        tf.errors.InvalidArgumentError: if a position is max_positions or more.
    """

    def __init__(self, max_positions, **kwargs):
        super().__init__(**kwargs)
        self.max_positions = max_positions

    def build(self, input_shape):
        model_dim = input_shape[-1]
        self.table = self.add_weight(
            name="table",
            shape=(self.max_positions, model_dim),
            initializer=keras.initializers.RandomNormal(stddev=model_dim**-0.5),
        )

    def call(self, x, positions=None):
        positions = _as_positions(x, positions)
        check = tf.debugging.assert_less(
            positions,
            self.max_positions,
            message="A sequence is longer than the learned positions: cut it, raise "
            "max_positions, or use sinusoidal positions.",
        )
        with tf.control_dependencies([check] if check is not None else []):
            return x + tf.gather(tf.cast(self.table, x.dtype), positions)

    def get_config(self):
        return super().get_config() | {"max_positions": self.max_positions}
