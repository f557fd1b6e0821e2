"""Position embeddings (paper, section 3.5; learned ones: Table 3, row E).

A `PositionEmbedding` may act in two places: `call` adds to the embedded tokens, `rotate` changes
queries and keys in self-attention. The paper's two add; a subclass in `variants` may rotate.
"""

import keras
import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.layers.basic import SequenceLayer


class PositionEmbedding(SequenceLayer):
    """Base class of position embeddings (positional encodings); it adds nothing.

    Call arguments:
        x: [batch, length, model_dim], embedded tokens.
        positions: int32, broadcastable to [batch, length]; None: 0, 1, 2, ….

    Returns:
        [batch, length, model_dim].

    Attributes:
        max_positions: int, longest sequence that can be told apart; None: no limit.
        rotates: bool, whether `rotate` is used: if so, every self-attention gets an instance.
    """

    max_positions = None
    rotates = False

    @classmethod
    def from_transformer(cls, config, **kwargs):
        """Returns the layer for a `TransformerConfig`."""
        del config
        return cls(**kwargs)

    def call(self, x, positions=None):
        del positions
        return x

    def rotate(self, x, positions=None):
        """Returns queries or keys x, rotated by their positions.

        Args:
            x: [batch, heads, length, key_dim].
            positions: int32, broadcastable to [batch, length]; None: 0, 1, 2, ….
        """
        del positions
        return x


def positions_of(x, positions):
    """Returns `positions`; if None, 0, 1, 2, … for x [batch, length, model_dim]."""
    return ops.arange(tf.shape(x)[1]) if positions is None else positions


@keras.saving.register_keras_serializable(package="t2t_keras")
class SinusoidalPositions(PositionEmbedding):
    """Adds sines and cosines of the position, for sequences of any length (section 3.5).

    PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos(pos / 10000^(2i/d_model)).

    Call arguments and result: see `PositionEmbedding`.

    Example:
        >>> layers.SinusoidalPositions()(tf.zeros([1, 2, 4])).numpy().round(2)
        array([[[0.  , 1.  , 0.  , 1.  ],
                [0.84, 0.54, 0.01, 1.  ]]], dtype=float32)
    """

    def call(self, x, positions=None):
        encoding = self.encode(positions_of(x, positions), x.shape[-1])
        return x + tf.cast(encoding, x.dtype)

    def encode(self, positions, model_dim):
        """Returns PE(positions), float32 [..., model_dim]; bfloat16 cannot count past 256."""
        even = tf.constant(np.arange(0, model_dim, 2), tf.float32)  # 2i
        rates = tf.pow(10_000.0, -even / model_dim)  # [model_dim / 2]
        angles = tf.expand_dims(tf.cast(positions, tf.float32), -1) * rates
        waves = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)  # [..., model_dim / 2, 2]
        shape = [*keras.ops.shape(angles)[:-1], 2 * even.shape[0]]
        return tf.reshape(waves, shape)[..., :model_dim]  # sine and cosine alternate


@keras.saving.register_keras_serializable(package="t2t_keras")
class LearnedPositions(PositionEmbedding):
    """Adds a learned vector for each position (Table 3, row E).

    Args:
        max_positions: number of positions that have a vector.

    Call arguments and result: see `PositionEmbedding`.

    Raises:
        tf.errors.InvalidArgumentError: if a position is max_positions or more.

    Example:
        >>> layers.LearnedPositions(max_positions=512)(tf.zeros([2, 7, 32])).shape
        TensorShape([2, 7, 32])
    """

    def __init__(self, max_positions, **kwargs):
        super().__init__(**kwargs)
        self.max_positions = max_positions

    @classmethod
    def from_transformer(cls, config, **kwargs):
        return cls(config.max_positions, **kwargs)

    def build(self, input_shape):
        model_dim = input_shape[-1]
        self.table = self.add_weight(
            name="table",
            shape=(self.max_positions, model_dim),
            initializer=keras.initializers.RandomNormal(stddev=model_dim**-0.5),
        )

    def call(self, x, positions=None):
        positions = positions_of(x, positions)
        check = tf.debugging.assert_less(
            positions,
            tf.cast(self.max_positions, positions.dtype),
            message="A sequence is longer than the learned positions: cut it, raise "
            "max_positions, or use sinusoidal positions.",
        )
        with tf.control_dependencies([check] if check is not None else []):
            return x + tf.gather(tf.cast(self.table, x.dtype), positions)

    def get_config(self):
        return super().get_config() | {"max_positions": self.max_positions}
