"""Which positions may attend to which (paper, sections 3.1 and 3.2.3).

Attention masks are bool, True where attention is allowed, and broadcast against attention scores
[batch, heads, query, key]. `Sequences` describes rows of ids, and the masks follow from it.
"""

from typing import NamedTuple

import keras
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.layers.value_checks import require_dense


class Sequences(NamedTuple):
    """Padding, packed sequences and positions of rows of ids; attention masks follow from it.

    Attributes:
        mask: bool [batch, length], False on padding; None: no padding.
        segments: int32 [batch, length], the number of each position's sequence, from 1, if rows
            contain several sequences; 0 on padding. None: one sequence a row.
        positions: integers, broadcastable to [batch, length], each position within its sequence;
            None: 0, 1, 2, ….

    Example:
        >>> rows = layers.Sequences(segments=tf.constant([[1, 1, 2, 2, 2, 0]]))
        >>> layers.MultiHeadSelfAttention(num_heads=4, key_dim=8)(tf.ones([1, 6, 32]), rows).shape
        TensorShape([1, 6, 32])
    """

    mask: tf.Tensor | None = None
    segments: tf.Tensor | None = None
    positions: tf.Tensor | None = None

    @classmethod
    def of(cls, sequences, mask=None):
        """Returns the given `Sequences` of a layer, or else `Sequences` made from its mask."""
        if sequences is not None:
            return cls(*sequences)  # a loaded functional model gives a tuple
        return cls(None if mask is None else tf.cast(mask, tf.bool))


def require_sequences(ids):
    """Raises InputError for ids that are not sequences, [batch, length]."""
    require_dense("ids", ids)
    if ids.shape.rank != 2 or ids.shape[1] == 0:
        raise InputError(
            f"ids have shape {ids.shape}: give [batch, length], and each sequence at least its end "
            "or start id."
        )


def padding_mask(mask):
    """Lets every query attend to the keys that are not padding.

    Args:
        mask: bool [batch, key], False on padding; None: no padding.

    Returns:
        bool [batch, 1, 1, key], or None.

    Example:
        >>> layers.padding_mask(np.array([[True, True, False]])).shape
        TensorShape([1, 1, 1, 3])
    """
    return None if mask is None else _expand(mask, 1, 2)


def causal_mask(length):
    """Lets position i attend only to positions 0 … i: "masking out … illegal connections".

    Args:
        length: int scalar, the number of query positions and of key positions.

    Returns:
        bool [1, 1, query, key].

    Example:
        >>> layers.causal_mask(2).numpy()[0, 0]
        array([[ True, False],
               [ True,  True]])
    """
    positions = ops.arange(length)
    allowed = _expand(positions, 1) >= _expand(positions, 0)  # [query, key]
    return _expand(allowed, 0, 1)


def segment_mask(query_segments, key_segments):
    """Lets queries attend to keys of their own segment, if rows contain several sequences.

    Args:
        query_segments: int32 [batch, query], the number of each position's sequence, 0 on padding.
        key_segments: int32 [batch, key], the same for the keys.

    Returns:
        bool [batch, 1, query, key]; rows of padding queries are False.

    Example:
        >>> layers.segment_mask(np.array([[1, 2]]), np.array([[1, 2, 0]])).numpy()[0, 0]
        array([[ True, False, False],
               [False,  True, False]])
    """
    keys = _expand(key_segments, 1)
    same = keras.ops.equal(_expand(query_segments, 2), keys)
    return _expand(same & (keys > 0), 1)


def attention_mask(queries, keys, causal_length=None):
    """Returns which keys each query may attend to.

    Args:
        queries, keys: `Sequences` of their rows; in self-attention they are the same.
        causal_length: int scalar, the length of a causal self-attention; None: bidirectional.

    Returns:
        bool, broadcastable to [batch, heads, query, key], or None: all may attend to all.
    """
    if keys.segments is not None:
        mask = segment_mask(queries.segments, keys.segments)
    else:
        mask = padding_mask(keys.mask)
    if causal_length is None:
        return mask
    causal = causal_mask(causal_length)
    return causal if mask is None else mask & causal


def cache_mask(beam_history):
    """Returns the mask of the KV cache's slots that belong to each hypothesis's history.

    The cache has a slot for every step and beam; reordering hypotheses moves no keys and values.
    For 3 beams and 2 steps: the hypothesis in beam 0 continues from beam 1, those in beams 1 and 2
    from beam 0. Their histories and their slots (x) are

        beam_history         step 0       step 1
                             a  b  c      a  b  c    beam that wrote the slot
        beam 0:  1, 0        .  x  .      x  .  .
        beam 1:  0, 1        x  .  .      .  x  .
        beam 2:  0, 2        x  .  .      .  .  x

    Args:
        beam_history: integers [batch, beams, steps], the beam that each hypothesis, or its
            ancestor, occupied at each step; beams known statically.

    Returns:
        bool [batch, 1, beams, steps · beams], beams varying fastest; None for one beam: all.
    """
    beams = beam_history.shape[1]
    if beams == 1:
        return None
    batch, _, steps = tf.unstack(tf.shape(beam_history))
    wrote = _expand(beam_history, 3) == ops.arange(beams)  # [batch, beams, steps, beams]
    return tf.reshape(wrote, [batch, 1, beams, steps * beams])


def _expand(x, *axes):
    """Returns x with new axes of size 1; LiteRT has no operation for `tf.newaxis`."""
    for axis in axes:
        x = keras.ops.expand_dims(x, axis)  # of symbolic tensors, too
    return x
