"""Other position embeddings: learned ones and fairseq's sinusoids, which are added to embedded
tokens, and rotary and relative ones, which act in self-attention."""

import math

import keras
import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.graphs import after
from t2t_keras.layers.positions import (
    PositionEmbedding,
    SinusoidalPositions,
    of_real_positions,
    require_places,
)
from t2t_keras.layers.value_checks import length_check
from t2t_keras.types import Array, Shape


@keras.saving.register_keras_serializable(package="t2t_keras")
class LearnedPositions(PositionEmbedding):
    """Adds a learned vector for each position (Table 3, row E).

    Args:
        max_positions: number of positions that have a vector.

    Call arguments and result: see `PositionEmbedding`.

    Raises:
        InputError: if a row is longer than max_positions and its length is known before the graph
            runs.
        tf.errors.InvalidArgumentError: if a row is longer and its length is not known, or if a
            position is max_positions or more. XLA does not check given positions.

    Example:
        >>> layers.LearnedPositions(max_positions=512)(tf.zeros([2, 7, 32])).shape
        TensorShape([2, 7, 32])
    """

    in_ctranslate2 = True
    multiplies = False

    def __init__(self, max_positions: int, **kwargs):
        super().__init__(**kwargs)
        self.max_positions = require_whole_number("max_positions", max_positions)

    @classmethod
    def from_transformer(cls, config, **kwargs) -> "LearnedPositions":
        return cls(config.max_positions, **kwargs)

    @staticmethod
    def count_weights(config) -> int:
        return config.max_positions * config.model_dim

    def build(self, input_shape: Shape) -> None:
        model_dim = input_shape[-1]
        self.table = self.add_weight(
            name="table",
            shape=(self.max_positions, model_dim),
            initializer=keras.initializers.RandomNormal(stddev=model_dim**-0.5),
            autocast=False,  # a position's gradient is a sum over the batch, for float32
        )

    def call(self, x: tf.Tensor, positions=None, mask=None) -> tf.Tensor:
        positions, mask = require_places(x, positions, mask)
        table = tf.convert_to_tensor(self.table)
        if positions is None:
            rows = of_real_positions(self._first_rows(table, x.shape[1], x), mask)
            return x + tf.cast(rows, x.dtype)
        check = tf.debugging.assert_less(
            positions,
            tf.cast(self.max_positions, positions.dtype),
            message="A sequence is longer than the learned positions: cut it, raise "
            "max_positions, or use sinusoidal positions.",
        )
        return x + tf.cast(tf.gather(table, after([check], positions)), x.dtype)

    def _first_rows(self, table, length, x):
        """Returns the rows of the table for x [batch, length, model_dim]: [length, model_dim]."""
        check = length_check(
            "sequences", tf.shape(x)[1] if length is None else length, self.max_positions
        )
        if length is not None and length > self.max_positions:
            raise InputError(f"{check.before}{length}{check.after}")
        with tf.control_dependencies([check.require()] if length is None else []):
            # XLA, which drops the check, refuses the slice.
            return tf.slice(table, [0, 0], [tf.shape(x)[1], self.table.shape[1]])

    def get_config(self) -> dict:
        return super().get_config() | {"max_positions": self.max_positions}


@keras.saving.register_keras_serializable(package="t2t_keras")
class FairseqSinusoidalPositions(SinusoidalPositions):
    """Adds sines and cosines of the position as fairseq computes them, for M2M-100 and NLLB.

    PE(pos, 2i) = sin((pos + 2) r_i), PE(pos, 2i+1) = cos((pos + 2) r_i), where the rates
    r_i = 10000^(−i/(d_model/2 − 1)) end at 1/10000 exactly. As in fairseq, positions are numbered
    from 2; fairseq puts all sines before all cosines, and the import reorders the weights.

    Call arguments and result: see `PositionEmbedding`.

    Raises:
        InputError: if model_dim is odd or below 4.

    Example:
        >>> layers.FairseqSinusoidalPositions()(tf.zeros([1, 2, 4])).numpy().round(2)
        array([[[ 0.91, -0.42,  0.  ,  1.  ],
                [ 0.14, -0.99,  0.  ,  1.  ]]], dtype=float32)
    """

    in_ctranslate2 = True
    multiplies = False
    first_position = 2

    def build(self, input_shape: Shape) -> None:
        if input_shape[-1] % 2 or input_shape[-1] < 4:
            raise InputError(
                f"model_dim is {input_shape[-1]}: fairseq's sinusoids need an even number from 4."
            )

    @classmethod
    def encode(cls, positions: Array, model_dim: int) -> tf.Tensor:
        """Returns PE(positions), float32 [..., model_dim]."""
        half = model_dim // 2
        # In float32 throughout, as there: the differences grow with the position.
        rates = np.exp(np.arange(half, dtype="float32") * np.float32(-math.log(1e4) / (half - 1)))
        positions = tf.cast(positions, tf.float32) + cls.first_position
        angles = tf.expand_dims(positions, -1) * rates
        waves = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)  # [..., model_dim / 2, 2]
        return tf.reshape(waves, [*keras.ops.shape(angles)[:-1], 2 * half])


@keras.saving.register_keras_serializable(package="t2t_keras")
class RotaryPositions(PositionEmbedding):
    """Rotates queries and keys, so that scores depend on distances (Su et al. 2021, "RoFormer").

    The elements 2i and 2i+1 of a query or key at position m are a vector in the plane; it is
    rotated by the angle m / 10000^(2i/d_k), the angle of the paper's sinusoids.

    Raises:
        InputError: if d_k is odd.

    Example:
        >>> positions = layers.RotaryPositions()
        >>> layers.MultiHeadSelfAttention(4, 8, positions=positions)(tf.ones([2, 7, 32])).shape
        TensorShape([2, 7, 32])
    """

    in_attention = True
    multiplies = False

    def build(self, input_shape: Shape) -> None:
        if input_shape[-1] % 2:
            raise InputError(
                f"key_dim is {input_shape[-1]}, but rotary positions rotate pairs of elements: "
                "give an even key_dim."
            )

    def rotate(self, x: tf.Tensor, positions: tf.Tensor | None = None) -> tf.Tensor:
        if positions is None:
            positions = ops.arange(tf.shape(x)[2])
        elif positions.shape.rank == 2:
            positions = tf.expand_dims(positions, 1)  # [batch, 1, length]: of all heads
        waves = SinusoidalPositions.encode(positions, x.shape[-1])  # [..., key_dim]
        sine, cosine = waves[..., ::2], waves[..., 1::2]  # [..., key_dim / 2]
        even, odd = (tf.cast(part, tf.float32) for part in (x[..., ::2], x[..., 1::2]))
        pairs = tf.stack([even * cosine - odd * sine, even * sine + odd * cosine], axis=-1)
        return tf.cast(ops.reshape(pairs, [*x.shape], like=x), x.dtype)


@keras.saving.register_keras_serializable(package="t2t_keras")
class RelativePositions(PositionEmbedding):
    """Learned vectors for the distance of query and key (Shaw et al. 2018).

    e_ij = q_i (k_j + a^K_ij)ᵀ / √d_k and z_i = Σ_j α_ij (v_j + a^V_ij), where a_ij is the vector of
    the distance j − i, clipped to ±max_distance. The heads of a layer share the vectors.

    Args:
        max_distance: longest distance with its own vectors; Shaw et al. use 16.
        value_dim: d_v, width of the values of one head; d_k if None.

    Raises:
        InputError: if an argument is below 1, or value_dim is not that of the attention.

    Example:
        >>> positions = layers.RelativePositions(max_distance=16)
        >>> layers.MultiHeadSelfAttention(4, 8, positions=positions)(tf.ones([2, 7, 32])).shape
        TensorShape([2, 7, 32])
    """

    in_attention = True
    multiplies = True

    def __init__(self, max_distance: int = 16, value_dim: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.max_distance = require_whole_number("max_distance", max_distance)
        if value_dim is not None:
            value_dim = require_whole_number("value_dim", value_dim)
        self.value_dim = value_dim

    @classmethod
    def from_transformer(cls, config, **kwargs) -> "RelativePositions":
        return cls(config.max_relative_distance, config.value_dim, **kwargs)

    @staticmethod
    def count_weights(config) -> int:
        return (2 * config.max_relative_distance + 1) * (config.key_dim + config.value_dim)

    def build(self, input_shape: Shape) -> None:
        rows, key_dim = 2 * self.max_distance + 1, input_shape[-1]
        self.key_table = self.add_weight(name="key_table", shape=(rows, key_dim))
        self.value_table = self.add_weight(
            name="value_table", shape=(rows, self.value_dim or key_dim)
        )

    def adjust_scores(self, scores: tf.Tensor, query: tf.Tensor, distance: tf.Tensor) -> tf.Tensor:
        scale = tf.cast(query.shape[-1] ** -0.5, query.dtype)
        table = tf.cast(self.key_table, query.dtype)  # [rows, key_dim]
        by_row = tf.matmul(query * scale, table, transpose_b=True)  # [..., heads, query, rows]
        one_hot = self._one_hot(distance, query.dtype)  # [..., query, key, rows]
        adjustment = tf.einsum("...hqr,...qkr->...hqk", by_row, one_hot)
        return scores + tf.cast(adjustment, scores.dtype)

    def adjust_context(self, context, weights: tf.Tensor, distance: tf.Tensor) -> tf.Tensor:
        width = self.value_table.shape[-1]
        if context.shape[-1] != width:
            raise InputError(
                f"RelativePositions have value_dim {width}, but the values of attention "
                f"{context.shape[-1]}: give them the same value_dim."
            )
        one_hot = self._one_hot(distance, weights.dtype)  # [..., query, key, rows]
        by_row = tf.einsum("...hqk,...qkr->...hqr", weights, one_hot)
        return context + tf.matmul(by_row, tf.cast(self.value_table, weights.dtype))

    def _one_hot(self, distance, dtype):
        """Returns the rows of the tables for distances [..., query, key] as one-hot vectors."""
        clipped = tf.clip_by_value(distance, -self.max_distance, self.max_distance)
        return tf.one_hot(clipped + self.max_distance, 2 * self.max_distance + 1, dtype=dtype)

    def get_config(self) -> dict:
        return super().get_config() | {
            "max_distance": self.max_distance,
            "value_dim": self.value_dim,
        }
