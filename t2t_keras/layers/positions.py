"""Position embeddings (paper, section 3.5; learned ones: Table 3, row E).

A `PositionEmbedding` may act in four places: `call` adds to the embedded tokens; in self-attention
`rotate` changes queries and keys, `adjust_scores` the scores, `adjust_context` the result. The
paper's two add to the tokens. Those that act in self-attention are in `variants.positions`.
"""

import dataclasses

import keras
import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.layers.basic import SequenceLayer


class PositionEmbedding(SequenceLayer):
    """Base class of position embeddings (positional encodings); it changes nothing.

    Call arguments:
        x: [batch, length, model_dim], embedded tokens.
        positions: int32, broadcastable to [batch, length]; None: 0, 1, 2, ….

    Returns:
        [batch, length, model_dim].

    Attributes:
        max_positions: int, longest sequence that can be told apart; None: no limit.
        in_attention: bool, where it acts: False, on the embedded tokens; True, in self-attention,
            of which each then has an instance.
    """

    max_positions = None
    in_attention = False

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

    def adjust_scores(self, scores, query, distance):
        """Returns the scores of attention, changed by the distance of query and key.

        Args:
            scores: [..., heads, query, key], before the softmax.
            query: [..., heads, query, key_dim].
            distance: integers [..., query, key], position of the key - position of the query; its
                outer axes may be 1. Masked pairs have any distance.
        """
        del query, distance
        return scores

    def adjust_context(self, context, weights, distance):
        """Returns the result of attention, changed by the distance of query and key.

        Args:
            context: [..., heads, query, value_dim].
            weights: [..., heads, query, key], the attention weights.
            distance: as for `adjust_scores`.
        """
        del weights, distance
        return context


def positions_of(x, positions, axis=1):
    """Returns `positions`; if None, 0, 1, 2, … along an axis of x [batch, length, model_dim]."""
    return ops.arange(tf.shape(x)[axis]) if positions is None else positions


@dataclasses.dataclass(frozen=True)
class Relation:
    """How the distance of queries and keys changes scores and context of self-attention.

    Keras hands it to a layer as it is: it is no nest of tensors.

    Attributes:
        positions: `PositionEmbedding` that acts in attention; None: nothing changes.
        distance: integers [..., query, key], see `PositionEmbedding.adjust_scores`.
    """

    positions: PositionEmbedding | None = None
    distance: tf.Tensor | None = None

    @classmethod
    def between(cls, positions, query_positions, key_positions):
        """Returns the `Relation` of queries and keys at integers [..., query] and [..., key].

        Args:
            positions: `PositionEmbedding` that acts in attention; None: nothing changes.
            query_positions, key_positions: their outer axes are those of scores without heads.
        """
        if positions is None:
            return cls()
        queries, keys = ops.index(query_positions), ops.index(key_positions)
        return cls(positions, keys[..., tf.newaxis, :] - queries[..., tf.newaxis])

    @classmethod
    def of_step(cls, positions, beams, slots):
        """Returns the `Relation` of a decoding step's hypotheses to the slots of the KV cache.

        Args:
            positions: as for `between`.
            beams: int; the slots are those of the last steps, beams varying fastest.
            slots: int32 scalar.
        """
        if positions is None:
            return cls()
        steps_ago = (slots - 1 - tf.range(slots)) // beams  # [slots]
        return cls.between(positions, tf.zeros([beams], tf.int32), -steps_ago)

    def adjust_scores(self, scores, query):
        if self.positions is None:
            return scores
        return self.positions.adjust_scores(scores, query, self.distance)

    def adjust_context(self, context, weights):
        if self.positions is None:
            return context
        return self.positions.adjust_context(context, weights, self.distance)


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

    @staticmethod
    def encode(positions, model_dim):
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
