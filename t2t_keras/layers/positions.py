"""Position embeddings (paper, section 3.5); learned ones and others are in `variants.positions`."""

import keras
import numpy as np
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.layers.basic import SequenceLayer
from t2t_keras.layers.value_checks import row_integers, row_mask
from t2t_keras.types import Array


class PositionEmbedding(SequenceLayer):
    """Base class of position embeddings (positional encodings); it changes nothing.

    `call` adds to the embedded tokens; in self-attention `rotate` changes queries and keys,
    `adjust_scores` the scores, `adjust_context` the result. The paper's two kinds,
    sinusoidal and learned, add to the tokens.

    Call arguments:
        x: [batch, length, model_dim], embedded tokens.
        positions: int32, broadcastable to [batch, length]; None: 0, 1, 2, ….
        mask: bool [batch, length], False on padding, which is not counted if `positions` is None;
            None: no padding. Keras passes the mask of x.

    Returns:
        [batch, length, model_dim].

    Attributes:
        max_positions: int, longest sequence that has positions; None: no limit.
        in_attention: bool, whether it acts in self-attention; each self-attention then has its own
            instance. False: it is added to the embedded tokens.
        multiplies: bool, whether it has matrix products. Each class must set it: if it is unset
            or True, `analysis.counts` refuses to count FLOPs.
    """

    max_positions = None
    in_attention = False

    @classmethod
    def from_transformer(cls, config, **kwargs) -> "PositionEmbedding":
        """Returns the layer for a `TransformerConfig`."""
        return cls(**kwargs)

    @staticmethod
    def count_weights(config) -> int:
        """Returns the number of weights of an instance for a `TransformerConfig`."""
        return 0

    def call(self, x: tf.Tensor, positions=None, mask=None) -> tf.Tensor:
        if self.in_attention:
            raise InputError(
                f"{type(self).__name__} act in attention and add nothing to embedded tokens: give "
                "them to MultiHeadSelfAttention, as positions=."
            )
        return x

    def rotate(self, x: tf.Tensor, positions: tf.Tensor | None = None) -> tf.Tensor:
        """Returns queries or keys x [batch, heads, length, key_dim], rotated by their positions."""
        return x

    def adjust_scores(self, scores: tf.Tensor, query: tf.Tensor, distance: tf.Tensor) -> tf.Tensor:
        """Returns the scores of attention, changed by the distance of query and key.

        Scores are [..., heads, query, key], before the softmax, queries [..., heads, query,
        key_dim]. The distance, integers [..., query, key], is the position of the key - that of the
        query; its outer axes may be 1. Masked pairs have any distance.
        """
        return scores

    def adjust_context(self, context, weights: tf.Tensor, distance: tf.Tensor) -> tf.Tensor:
        """Returns the result of attention, [..., heads, query, value_dim], changed by the distance.

        Attention weights are [..., heads, query, key].
        """
        return context


_IN_ATTENTION = ("rotate", "adjust_scores", "adjust_context")


def require_in_attention(positions):
    """Raises InputError for an object that is not a position embedding which acts in attention."""
    kind = type(positions)
    if not isinstance(positions, PositionEmbedding):
        raise InputError(f"positions is {positions!r}: give a PositionEmbedding, or None.")
    acts = [getattr(kind, name) is not getattr(PositionEmbedding, name) for name in _IN_ATTENTION]
    if not positions.in_attention and not any(acts):
        raise InputError(
            f"positions is a {kind.__name__}, which is added to embedded tokens and does nothing "
            "in attention: call it on them, or give RotaryPositions or RelativePositions."
        )


def require_rows(x, name="x"):
    """Raises InputError for embedded tokens that are not [batch, length, model_dim]."""
    if x.shape.rank != 3:
        raise InputError(
            f"{name} has shape {x.shape}: give embedded tokens [batch, length, model_dim]."
        )


def require_places(x, positions, mask):
    """Returns the positions and the mask of embedded tokens x as tensors; None: None.

    Raises InputError for another shape or kind than `PositionEmbedding` describes.
    """
    require_rows(x)
    positions = row_integers("positions", positions, x, broadcast=True)
    return positions, row_mask("mask", mask, x)


def positions_of(length, sequences):
    """Returns the positions of `Sequences` of this length; padding is not counted.

    They are integers [batch, length], or [length] if no position is padding.
    """
    if sequences.positions is not None:
        return sequences.positions
    return ops.arange(length) if sequences.mask is None else _count(sequences.mask)


def of_real_positions(encodings, mask):
    """Returns the encoding of each position, if padding is not counted as a position.

    The encodings are [length, model_dim], of positions 0, 1, 2, …, the result [batch, length,
    model_dim]. The mask is bool [batch, length], False on padding. Without a mask the encodings
    are returned as they are.
    """
    return encodings if mask is None else tf.gather(encodings, _count(mask))


def _count(mask):
    """Returns the positions 0, 1, 2, … of the tokens without padding, integers [batch, length]."""
    return tf.maximum(tf.cumsum(tf.cast(mask, ops.index_dtype()), axis=1) - 1, 0)


def distances(query_positions, key_positions):
    """Returns key positions [..., key] minus query positions: integers [..., query, key]."""
    queries, keys = ops.to_index(query_positions), ops.to_index(key_positions)
    return tf.expand_dims(keys, -2) - tf.expand_dims(queries, -1)


def step_distances(beam_history, position):
    """Returns `distances` of a step's hypotheses to the KV cache's slots, [beams, steps · beams].

    The step is at a position, int32 []; see `attention.cache_mask`.
    """
    beams, steps = beam_history.shape[1], tf.shape(beam_history)[2]
    return distances(tf.fill([beams], position), tf.range(steps * beams) // beams)


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

    in_ctranslate2 = True
    multiplies = False

    def call(self, x: tf.Tensor, positions=None, mask=None) -> tf.Tensor:
        positions, mask = require_places(x, positions, mask)
        known = ops.arange(tf.shape(x)[1]) if positions is None else positions
        encodings = tf.cast(self.encode(known, x.shape[-1]), x.dtype)
        return x + (of_real_positions(encodings, mask) if positions is None else encodings)

    @staticmethod
    def encode(positions: Array, model_dim: int) -> tf.Tensor:
        """Returns PE(positions), float32 [..., model_dim]; bfloat16 cannot count past 256."""
        even = tf.constant(np.arange(0, model_dim, 2), tf.float32)  # 2i
        rates = tf.pow(10_000.0, -even / model_dim)  # [model_dim / 2]
        angles = tf.expand_dims(tf.cast(positions, tf.float32), -1) * rates
        waves = tf.stack([tf.sin(angles), tf.cos(angles)], axis=-1)  # [..., model_dim / 2, 2]
        shape = [*keras.ops.shape(angles)[:-1], 2 * even.shape[0]]
        return tf.reshape(waves, shape)[..., :model_dim]  # sine and cosine alternate
