"""Attention (paper, section 3.2): scaled dot-product, multi-head self- and cross-attention.

`ScaledDotProductAttention` is equation 1, for all heads together. `MultiHeadSelfAttention` and
`MultiHeadCrossAttention` are multi-head attention (section 3.2.2) in its two uses. `call` computes
all positions, `step` the newest position of each hypothesis of beam search, with a KV cache.

Which positions attend to which (sections 3.1 and 3.2.3) follows from `Sequences`, a description of
rows of ids, and is kept in a `View`. Masks are bool, True where attention is allowed, and broadcast
against attention scores [batch, heads, query, key].
"""

from typing import Any, NamedTuple

import keras
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers import value_checks
from t2t_keras.layers.basic import (
    Dropout,
    FusedProjections,
    HasFastForms,
    Linear,
    MaskedLayer,
    SeparateProjections,
    SequenceLayer,
    are_fields,
    deserialize,
)
from t2t_keras.layers.positions import (
    distances,
    positions_of,
    require_in_attention,
    require_rows,
    step_distances,
)
from t2t_keras.types import Array, Shape

_FORBIDDEN = 1e30
"""Subtracted from a masked score, which it exceeds also at a low temperature; finite,
so that a row without an allowed key has no NaN."""


class KeyValue(NamedTuple):
    """Projected keys and values of a layer; in decoding they are its cache."""

    key: tf.Tensor  # [batch, heads, key, key_dim]
    value: tf.Tensor  # [batch, heads, key, value_dim]


class Sequences(NamedTuple):
    """Padding, packed sequences and positions of rows of ids; attention masks follow from it.

    Example:
        >>> rows = layers.Sequences(segments=tf.constant([[1, 1, 2, 2, 2, 0]]))
        >>> layers.MultiHeadSelfAttention(num_heads=4, key_dim=8)(tf.ones([1, 6, 32]), rows).shape
        TensorShape([1, 6, 32])
    """

    mask: tf.Tensor | None = None  # bool [batch, length], False on padding; None: no padding
    # int32 [batch, length], the number of each position's sequence, from 1; 0 on padding
    segments: tf.Tensor | None = None
    # integers, broadcastable to [batch, length], each within its sequence; None: 0, 1, 2, …
    positions: tf.Tensor | None = None

    @classmethod
    def of(cls, x: tf.Tensor, mask: "Array | Sequences | None", name: str = "x") -> "Sequences":
        """Returns the `Sequences` of rows x [batch, length, ...], or makes them from their mask.

        Raises:
            InputError: for another type, or for rows of another shape than x.
        """
        is_list = isinstance(mask, (tuple, list)) and not isinstance(mask, View)
        if isinstance(mask, cls) or (is_list and are_fields(mask)):
            mask, segments, positions = mask
        elif mask is None or is_list or hasattr(mask, "shape"):
            segments = positions = None
        else:
            raise InputError(
                f"the mask of {name} is a {type(mask).__name__}: give bool [batch, length], False "
                "on padding, or layers.Sequences."
            )
        return cls(
            value_checks.row_mask("mask", mask, x, name),
            value_checks.row_integers("segments", segments, x, name),
            value_checks.row_integers("positions", positions, x, name, broadcast=True),
        )


class View(NamedTuple):
    """Which keys the queries of attention see, and from where; all layers of a stack share it.

    Only `step`, and a `PositionEmbedding` that acts in attention, read positions and distance; else
    they may be None.
    """

    mask: tf.Tensor | None = None  # bool, broadcastable to [batch, heads, query, key]; None: all
    positions: tf.Tensor | None = None  # of the queries, broadcastable to [batch, query]
    distance: tf.Tensor | None = None  # integers [..., query, key]


@keras.saving.register_keras_serializable(package="t2t_keras")
class Softmax:
    """Attention weights of scores: exp(score) / Σ exp(score) over the allowed keys.

    Scores are [..., query, key], of any floating type; the mask, bool, is broadcastable to them;
    None allows all. The weights are float32, or float64 as the scores; rows sum to 1.

    Example:
        >>> layers.Softmax()(tf.zeros([1, 4]), mask=np.array([[True, True, False, False]])).numpy()
        array([[0.5, 0.5, 0. , 0. ]], dtype=float32)
    """

    def __call__(self, scores: tf.Tensor, mask: tf.Tensor | None = None) -> tf.Tensor:
        return ops.softmax(masked(scores, mask))

    def get_config(self) -> dict:
        return {}

    @classmethod
    def from_config(cls, config: dict) -> "Softmax":
        return cls(**config)


def masked(scores, mask):
    """Returns the scores, at least in float32, minus a large number where mask is False."""
    scores = scores if scores.dtype == tf.float64 else tf.cast(scores, tf.float32)
    if mask is None:
        return scores
    return scores - _FORBIDDEN * (1.0 - tf.cast(value_checks.as_mask(mask), scores.dtype))


@keras.saving.register_keras_serializable(package="t2t_keras")
class ScaledDotProductAttention(SequenceLayer):
    """Attention(Q, K, V) = softmax(Q Kᵀ / √d_k) V (section 3.2.1, equation 1).

    A subclass with another `score` is another attention; see `variants`.

    Args:
        normalize: turns scores into weights; `Softmax()` if None.
        dropout: rate at which weights are dropped in training; the paper has none.

    Call arguments:
        query: [..., query, key_dim].
        key: [..., key, key_dim].
        value: [..., key, value_dim].
        mask: bool, broadcastable to [..., query, key]; None allows all. A query without an allowed
            key gets zeros.
        positions: `PositionEmbedding` that acts in attention; None in the paper.
        distance: integers [..., query, key], which `positions` reads; see `adjust_scores`.

    Returns:
        Context [..., query, value_dim] and the attention weights, float32 [..., query, key], or
        float64 as the scores.

    Raises:
        InputError: if the mask is not broadcastable to the scores.

    Example:
        >>> query, key, value = (tf.random.normal([2, 4, length, 8]) for length in (5, 7, 7))
        >>> context, weights = layers.ScaledDotProductAttention()(query, key, value)
        >>> context.shape, weights.shape
        (TensorShape([2, 4, 5, 8]), TensorShape([2, 4, 5, 7]))
    """

    in_ctranslate2 = True

    def __init__(self, normalize: Softmax | dict | None = None, dropout: float = 0.0, **kwargs):
        super().__init__(**kwargs)
        self.normalize = deserialize(normalize) or Softmax()
        self.dropout = Dropout(dropout, dtype=self.dtype_policy, name="dropout")

    def build(self, query_shape: Shape, key_shape=None, value_shape=None) -> None:
        """Builds the dropout; a variant also makes its weights."""
        self.dropout.build((*query_shape[:-1], None))

    def call(self, query: tf.Tensor, key, value, mask=None, positions=None, distance=None) -> tuple:
        mask = value_checks.as_mask(mask)
        scores = self.score(query, key)  # [..., query, key]
        value_checks.require_broadcastable("mask", mask, scores.shape, "[..., query, key]")
        if positions is not None:
            scores = positions.adjust_scores(scores, query, distance)
        weights = self.normalize(scores, mask)  # [..., query, key]
        dropped = self.dropout(tf.cast(weights, value.dtype))  # [..., query, key]
        context = ops.batch_matmul(dropped, value)  # [..., query, value_dim]
        if positions is not None:
            context = positions.adjust_context(context, dropped, distance)
        if mask is not None:  # zeros for a query without an allowed key
            has_key = tf.reduce_any(mask, axis=-1, keepdims=True)  # [..., query, 1]
            context *= tf.cast(has_key, context.dtype)
        return context, weights

    def score(self, query: tf.Tensor, key: tf.Tensor) -> tf.Tensor:
        """Returns Q Kᵀ / √d_k, [..., query, key]."""
        scale = tf.cast(key.shape[-1] ** -0.5, query.dtype)
        return ops.batch_matmul(query * scale, key, transpose_b=True)

    def compute_output_shape(self, query_shape, key_shape, value_shape) -> tuple[Shape, Shape]:
        rows = tuple(query_shape[:-1])
        return (*rows, value_shape[-1]), (*rows, key_shape[-2])

    def get_config(self) -> dict:
        return super().get_config() | {
            "normalize": keras.saving.serialize_keras_object(self.normalize),
            "dropout": self.dropout.rate,
        }


class MultiHeadAttention(HasFastForms, MaskedLayer):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_h) W^O (section 3.2.2); base of both kinds.

    Args:
        num_heads: h.
        key_dim: d_k, width of a query and a key of one head.
        value_dim: d_v, width of a value of one head; `key_dim` if None.
        attention: `ScaledDotProductAttention`, the default, or a variant.
        fused: whether the projections of one input (Q, K, V of self-attention; K, V of
            cross-attention) are one matrix.
        use_bias: whether every projection adds a bias; the paper's do not.
    """

    rematerializes = True
    positions = None  # that act in attention

    def __init__(
        self,
        num_heads: int,
        key_dim: int,
        value_dim: int | None = None,
        attention: ScaledDotProductAttention | dict | None = None,
        fused: bool = True,
        use_bias: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.input_spec = keras.layers.InputSpec(ndim=3)
        self.num_heads = require_whole_number("num_heads", num_heads)
        self.key_dim = require_whole_number("key_dim", key_dim)
        value_dim = key_dim if value_dim is None else value_dim
        self.value_dim = require_whole_number("value_dim", value_dim)
        self.attention = deserialize(attention) or ScaledDotProductAttention(
            dtype=self.dtype_policy, name="scores"
        )
        self.fused = fused
        self.use_bias = use_bias

    def get_config(self) -> dict:
        return super().get_config() | {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "attention": keras.saving.serialize_keras_object(self.attention),
            "fused": self.fused,
            "use_bias": self.use_bias,
        }

    def build_attention(self, model_dim):
        """Builds the attention and W^O."""
        if not self.attention.built:  # deserialized ones are
            self.attention.build((None, self.num_heads, None, self.key_dim))
        self.output_projection = Linear(
            model_dim, use_bias=self.use_bias, dtype=self.dtype_policy, name="output_projection"
        )
        self.output_projection.build((None, None, self.num_heads * self.value_dim))

    def make_projections(self, head_dims, name):
        """Returns the projections to heads, one for each width in `head_dims`."""
        kind = FusedProjections if self.fused else SeparateProjections
        widths = [self.num_heads * width for width in head_dims]
        return kind(widths, self.use_bias, dtype=self.dtype_policy, name=name)

    def split_heads(self, x):
        """Splits x [batch, length, heads · width] into heads: [batch, heads, length, width]."""
        width = x.shape[-1] // self.num_heads
        x = ops.reshape(x, [*x.shape[:2], self.num_heads, width], like=x)
        return ops.transpose(x, [0, 2, 1, 3])

    def attend(self, query, key, value, view: View) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns Concat(head_1, …, head_h) W^O, [batch, query, model_dim], and the weights."""
        context, weights = self.attention(
            query, key, value, view.mask, positions=self.positions, distance=view.distance
        )
        return self.output_projection(self.merge_heads(context)), weights

    def merge_heads(self, x):
        """Merges the heads of x [batch, heads, length, width]: [batch, length, heads · width]."""
        x = ops.transpose(x, [0, 2, 1, 3])
        return ops.reshape(x, [*x.shape[:2], x.shape[2] * x.shape[3]], like=x)


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiHeadSelfAttention(MultiHeadAttention):
    """Multi-head attention of a sequence to itself (section 3.2.3).

    No position attends to masked positions. The outputs at masked positions have no meaning.

    Args:
        causal: whether a position attends only to itself and earlier ones, as in a decoder.
        positions: `PositionEmbedding` that acts in attention; None: positions are added to the
            embedded tokens.
        num_heads, key_dim, value_dim, **kwargs: as for `MultiHeadAttention`.

    Call arguments:
        x: [batch, length, model_dim].
        mask: bool [batch, length], False on padding; None: no padding. Keras passes the mask of x.
            Rows of several sequences give `Sequences`, and a stack gives the `View` of its layers.
        return_attention_weights: whether to return the weights as well.

    Returns:
        [batch, length, model_dim]; with it, if asked for, float32 [batch, heads, query, key].

    Raises:
        InputError: if a size is below 1, positions do not act in attention, or a mask has another
            shape or kind.

    Example:
        >>> x = keras.layers.Embedding(100, 32, mask_zero=True)(np.array([[5, 8, 2, 0]]))
        >>> layer = layers.MultiHeadSelfAttention(num_heads=4, key_dim=8)
        >>> y, weights = layer(x, return_attention_weights=True)
        >>> y.shape, float(weights[0, 0, 0, 3])  # 0 is padding
        (TensorShape([1, 4, 32]), 0.0)
    """

    fast_forms = {"with_room": ("initial_cache", "step", "step_view")}  # noqa: RUF012

    def __init__(
        self, num_heads: int, key_dim, value_dim=None, *, causal=False, positions=None, **kwargs
    ):
        super().__init__(num_heads, key_dim, value_dim, **kwargs)
        self.causal = causal
        self.positions = deserialize(positions)
        if self.positions is not None:
            require_in_attention(self.positions)

    def build(self, input_shape: Shape) -> None:
        model_dim = input_shape[-1]
        widths = [self.key_dim, self.key_dim, self.value_dim]
        self.qkv_projection = self.make_projections(widths, "qkv_projection")
        self.qkv_projection.build((None, None, model_dim))
        if self.positions is not None and not self.positions.built:  # deserialized ones are
            self.positions.build((None, self.num_heads, None, self.key_dim))
        self.build_attention(model_dim)

    def call(self, x: tf.Tensor, mask=None, *, return_attention_weights=False) -> Any:
        view = self.view(x, mask)
        query, key_value = self.project(x, view.positions)  # [batch, heads, length, width] each
        y, weights = self.attend(query, *key_value, view)
        return (y, weights) if return_attention_weights else y

    def view(self, x: tf.Tensor, mask=None) -> View:
        """Returns the `View` of rows x, which a stack makes once; `mask` is as for a call."""
        is_view = isinstance(mask, View)
        return mask if is_view else self.make_view(tf.shape(x)[1], Sequences.of(x, mask))

    def make_view(self, length: tf.Tensor, sequences: Sequences) -> View:
        """Returns the `View` of rows of a length, int32 []."""
        mask = attention_mask(sequences, sequences, length if self.causal else None)
        if self.positions is None:  # those of the paper are added to the embedded tokens
            return View(mask)
        positions = positions_of(length, sequences)
        return View(mask, positions, distances(positions, positions))

    def step_view(self, beam_history, num_steps: tf.Tensor) -> tuple[tf.Tensor, View]:
        """Begins a step: each hypothesis takes its own beam's slot in the KV cache.

        Returns the history, see `cache_mask`, with a step more than `num_steps`, int32 [], and the
        `View` from the newest positions to the slots.
        """
        batch, beams, _ = tf.unstack(tf.shape(beam_history))
        own = _expand(tf.broadcast_to(ops.arange(beam_history.shape[1]), [batch, beams]), 2)
        history = ops.append(beam_history, own, num_steps)
        distance = None if self.positions is None else step_distances(history, num_steps)
        return history, View(cache_mask(history), num_steps, distance)

    def project(self, x: tf.Tensor, positions=None) -> tuple[tf.Tensor, KeyValue]:
        """Returns queries [batch, heads, length, key_dim] and the `KeyValue` of x.

        `positions`, integers broadcastable to [batch, length], may rotate them; None: 0, 1, 2, ….
        In `step`, beams take the place of length, all at one position.
        """
        # [batch, heads, length, width] each
        query, key, value = (self.split_heads(y) for y in self.qkv_projection(x))
        if self.positions is not None:
            query, key = (self.positions.rotate(y, positions) for y in (query, key))
        return query, KeyValue(key, value)

    def full_weights(self, weights: tf.Tensor, length: tf.Tensor) -> tf.Tensor:
        """Returns the attention weights that `call` gave, of one layer or stacked over layers.

        They are float32 [..., heads, query, key] of sequences of a length, an int32 scalar. Only a
        variant that computes fewer keys for each query must convert them.
        """
        return weights

    def initial_cache(self, batch: int | tf.Tensor) -> KeyValue:
        """Returns the `KeyValue` of sentences that have no token yet, [batch, heads, 0, width]."""
        shapes = ([batch, self.num_heads, 0, width] for width in (self.key_dim, self.value_dim))
        return KeyValue(*(tf.zeros(shape, self.compute_dtype) for shape in shapes))

    def with_room(self, cache: KeyValue, slots: tf.Tensor) -> KeyValue:
        """Returns a cache with more slots, int32 [], for steps of fixed sizes, see `ops.append`."""
        return KeyValue(*(ops.pad_axis(x, slots, axis=2) for x in cache))

    def step(self, x: tf.Tensor, cache: KeyValue, view: View) -> tuple[tf.Tensor, KeyValue]:
        """Computes attention of each hypothesis's newest position to itself and all earlier ones.

        Args:
            x: [batch, beams, model_dim].
            cache: `KeyValue` of the earlier positions, [batch, heads, steps · beams, width], beams
                varying fastest; each step appends a slot for each beam, and none is reordered.
            view: `View` of the slots, from `step_view`.

        Returns:
            [batch, beams, model_dim], and the cache with one more step.
        """
        query, newest = self.project(x, view.positions)  # [batch, heads, beams, width]
        # [batch, heads, slots, width]
        cache = KeyValue(*map(ops.append, cache, newest, [view.positions] * 2))
        y, _ = self.attend(query, *cache, view)
        return y, cache

    def get_config(self) -> dict:
        return super().get_config() | {
            "causal": self.causal,
            "positions": keras.saving.serialize_keras_object(self.positions),
        }


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiHeadCrossAttention(MultiHeadAttention):
    """Multi-head attention of one sequence to another: "encoder-decoder attention" (3.2.3).

    Args: as for `MultiHeadAttention`.

    Call arguments:
        x: [batch, target, model_dim], from which queries are projected.
        memory: [batch, source, model_dim], from which keys and values are projected.
        x_mask, memory_mask: bool [batch, target] and [batch, source], False on padding; None: no
            padding. Keras passes the masks of x and memory. Rows of several sequences give
            `Sequences` of both, and a stack gives the `View` of the memory as memory_mask.
        return_attention_weights: whether to return the weights as well.

    Returns:
        [batch, target, model_dim]; with it, if asked for, float32 [batch, heads, target, source].

    Raises:
        InputError: if a size is below 1, a mask has another shape or kind, or only one of x and
            memory has segments.

    Example:
        >>> x, memory = tf.random.normal([2, 5, 32]), tf.random.normal([2, 7, 32])
        >>> layers.MultiHeadCrossAttention(num_heads=4, key_dim=8)(x, memory).shape
        TensorShape([2, 5, 32])
    """

    masks = {"x_mask": "target", "memory_mask": "source"}  # noqa: RUF012

    def build(self, x_shape: Shape, memory_shape: Shape | None = None) -> None:
        model_dim, memory_dim = x_shape[-1], (memory_shape or x_shape)[-1]
        self.query_projection = Linear(
            self.num_heads * self.key_dim,
            use_bias=self.use_bias,
            dtype=self.dtype_policy,
            name="query_projection",
        )
        self.query_projection.build((None, None, model_dim))
        self.kv_projection = self.make_projections([self.key_dim, self.value_dim], "kv_projection")
        self.kv_projection.build((None, None, memory_dim))
        self.build_attention(model_dim)

    def call(
        self, x, memory, x_mask=None, memory_mask=None, *, return_attention_weights=False
    ) -> Any:
        view = self.view(x, memory, x_mask, memory_mask)
        query = self.split_heads(self.query_projection(x))  # [batch, heads, target, key_dim]
        y, weights = self.attend(query, *self.project_memory(memory), view)
        return (y, weights) if return_attention_weights else y

    def view(self, x: tf.Tensor, memory: tf.Tensor, x_mask=None, memory_mask=None) -> View:
        """Returns the `View` of the memory; masks are as for a call."""
        if isinstance(memory_mask, View):
            return memory_mask
        require_rows(memory, "memory")
        queries, keys = Sequences.of(x, x_mask), Sequences.of(memory, memory_mask, "memory")
        if (queries.segments is None) != (keys.segments is None):
            raise InputError("x and memory: give Sequences with segments for both, or for neither.")
        return View(attention_mask(queries, keys))

    def project_memory(self, memory: tf.Tensor) -> KeyValue:
        """Returns the `KeyValue` of memory [batch, source, model_dim]."""
        return KeyValue(*(self.split_heads(y) for y in self.kv_projection(memory)))

    def step(self, x: tf.Tensor, key_value: KeyValue, view: View) -> tuple[tf.Tensor, tf.Tensor]:
        """Computes attention of x to a memory whose `KeyValue`, of `project_memory`, is known.

        In a search the newest positions of a sentence's hypotheses, which share keys and values,
        take the place of the target. The result is that of a call with weights.
        """
        query = self.split_heads(self.query_projection(x))  # [batch, heads, target, key_dim]
        return self.attend(query, *key_value, view)


# Masks -------------------------------------------------------------------------------------------


def padding_mask(mask: Array | None) -> tf.Tensor | None:
    """Lets every query attend to the keys that are not padding, a mask [batch, 1, 1, key].

    The given one is bool [batch, key], False on padding; None: no padding, and no mask.

    Example:
        >>> layers.padding_mask(np.array([[True, True, False]])).shape
        TensorShape([1, 1, 1, 3])
    """
    return None if mask is None else _expand(mask, 1, 2)


def causal_mask(length: int | tf.Tensor) -> tf.Tensor:
    """Lets position i attend only to positions 0 … i: "masking out … illegal connections".

    Returns a mask [1, 1, length, length] for an int scalar `length`.

    Example:
        >>> layers.causal_mask(2).numpy()[0, 0]
        array([[ True, False],
               [ True,  True]])
    """
    positions = ops.arange(length)
    allowed = _expand(positions, 1) >= _expand(positions, 0)  # [query, key]
    return _expand(allowed, 0, 1)


def segment_mask(query_segments: Array, key_segments: Array) -> tf.Tensor:
    """Lets queries attend to keys of their own segment, a mask [batch, 1, query, key].

    `query_segments` and `key_segments` are integers [batch, length], the number of each position's
    sequence, 0 on padding.

    Example:
        >>> layers.segment_mask(np.array([[1, 2]]), np.array([[1, 2, 0]])).numpy()[0, 0]
        array([[ True, False, False],
               [False,  True, False]])
    """
    keys = _expand(key_segments, 1)
    same = keras.ops.equal(_expand(query_segments, 2), keys)
    return _expand(same & (keys > 0), 1)


def attention_mask(queries, keys, causal_length=None):
    """Returns which keys `Sequences` of queries may attend to; None: all may attend to all.

    A causal self-attention has a `causal_length`, int scalar; None: bidirectional. The mask is
    broadcastable to [batch, heads, query, key].
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

    The history, integers [batch, beams, steps], is the beam that each hypothesis, or its ancestor,
    occupied at each step, -1 in the room of `ops.append`; beams are known statically. The mask is
    bool [batch, 1, beams, steps · beams], beams varying fastest; None for one beam: all.
    """
    beams = beam_history.shape[1]
    if beams == 1 and not ops.options().fixed_sizes:
        return None
    batch, _, steps = tf.unstack(tf.shape(beam_history))
    wrote = _expand(beam_history, 3) == ops.arange(beams)  # [batch, beams, steps, beams]
    return tf.reshape(wrote, [batch, 1, beams, steps * beams])


def _expand(x, *axes):
    """Returns x with new axes of size 1; LiteRT has no operation for `tf.newaxis`."""
    for axis in axes:
        x = keras.ops.expand_dims(x, axis)  # of symbolic tensors, too
    return x
