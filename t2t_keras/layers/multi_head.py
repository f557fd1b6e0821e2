"""Multi-head attention, to itself and to a memory (paper, section 3.2.2)."""

from typing import NamedTuple

import keras
import tensorflow as tf

from t2t_keras.layers.attention import ScaledDotProductAttention, revived
from t2t_keras.layers.few_queries import attend_from
from t2t_keras.layers.heads import split_heads
from t2t_keras.layers.linear import Linear
from t2t_keras.layers.projections import PROJECTIONS


class KeyValue(NamedTuple):
    """What queries attend to: the keys and values of one layer, heads apart.

    Attributes:
        key: [batch, heads, key, key_dim].
        value: [batch, heads, key, value_dim].
    """

    key: tf.Tensor
    value: tf.Tensor


class _MultiHead(keras.layers.Layer):
    """What self- and cross-attention share: the split into heads and the output projection W^O.

    head_i = Attention(Q W_i^Q, K W_i^K, V W_i^V); MultiHead = Concat(head_1 … head_h) W^O.
    """

    def __init__(
        self,
        heads,
        key_dim,
        value_dim=None,
        attend=None,
        projections="stacked",
        kernel_initializer="glorot_uniform",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.heads = heads
        self.key_dim = key_dim
        self.value_dim = value_dim or key_dim
        self.attend = revived(attend) or ScaledDotProductAttention(dtype=self.dtype_policy)
        self.projections = projections
        self.kernel_initializer = kernel_initializer

    def get_config(self):
        return super().get_config() | {
            "heads": self.heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "attend": keras.saving.serialize_keras_object(self.attend),
            "projections": self.projections,
            "kernel_initializer": self.kernel_initializer,
        }

    def _projection(self, width, model_dim, name):
        # The paper's W are plain matrices: no bias.
        dense = Linear(width, use_bias=False, **self._layer_arguments(name))
        dense.build((None, None, model_dim))
        return dense

    def _several_projections(self, widths, model_dim, name):
        widths = [self.heads * width for width in widths]
        layer = PROJECTIONS[self.projections](widths, **self._layer_arguments(name))
        layer.build((None, None, model_dim))
        return layer

    def _layer_arguments(self, name):
        initializer = self.kernel_initializer
        return {"kernel_initializer": initializer, "dtype": self.dtype_policy, "name": name}

    def _build_rest(self, model_dim):
        if not self.attend.built:  # one that comes from a file is
            self.attend.build((None, self.heads, None, self.key_dim))
        width = self.heads * self.value_dim
        self.output_projection = self._projection(model_dim, width, "output_projection")

    def _output(self, context):
        """Returns [batch, length, model_dim] of a context [batch, heads, length, value_dim]."""
        context = tf.transpose(context, [0, 2, 1, 3])  # [batch, length, heads, value_dim]
        batch, length = tf.unstack(tf.shape(context)[:2])
        return self.output_projection(
            tf.reshape(context, [batch, length, self.heads * self.value_dim])
        )


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiHeadSelfAttention(_MultiHead):
    """Multi-head attention of a sequence to itself (paper, sections 3.2.2 and 3.2.3).

    The matrices W^Q, W^K, W^V of all heads usually stand side by side in one, so that one product
    serves queries, keys and values.

    Args:
        heads: number of heads h.
        key_dim: width d_k of a query and a key of one head.
        value_dim: width d_v of a value of one head; `key_dim` if None.
        attend: `Attention` of each head; `ScaledDotProductAttention()` if None.
        projections: "stacked" or "separate", how W^Q, W^K, W^V are kept, see `projections.py`.
        kernel_initializer: of all matrices, as Keras names or describes it.

    Call arguments:
        x: [batch, length, model_dim].
        attention_mask: bool, broadcastable to [batch, heads, query, key], True where allowed.

    Returns:
        [batch, length, model_dim].
    """

    def build(self, input_shape):
        model_dim = input_shape[-1]
        self.qkv_projection = self._several_projections(
            [self.key_dim, self.key_dim, self.value_dim], model_dim, "qkv_projection"
        )
        self._build_rest(model_dim)

    def call(self, x, attention_mask=None):
        query, memory = self.project(x)
        return self._output(self.attend(query, *memory, attention_mask=attention_mask))

    def weigh(self, x, attention_mask=None):
        """Returns the attention weights of `call`, float32 [batch, heads, query, key]."""
        query, memory = self.project(x)
        return self.attend.weigh(query, memory.key, attention_mask)

    def project(self, x):
        """Returns the queries [batch, heads, length, key_dim] and the `KeyValue` of x.

        Args:
            x: [batch, length, model_dim].
        """
        query, *memory = self.qkv_projection(x, heads=self.heads)
        return query, KeyValue(*memory)

    def initial_cache(self, batch):
        """Returns the `KeyValue` of sentences without a token yet: [batch, heads, 0, width]."""

        def empty(width):
            return tf.zeros([batch, self.heads, 0, width], self.compute_dtype)

        return KeyValue(empty(self.key_dim), empty(self.value_dim))

    def step(self, x, cache, rows, ancestors=None):
        """Attends from one new position of every hypothesis to itself and all before it.

        The cache has a slot for each step and beam, and only ever grows: a search that replaces
        some hypotheses by others tells the slots of each one's ancestors apart by a mask, and
        copies no keys and values.

        Args:
            x: [batch · beams, model_dim], the newest position of each hypothesis.
            cache: `KeyValue` of the positions before, [batch, heads, steps · beams, width], beams
                running fastest.
            rows: `BeamRows` of x.
            ancestors: bool [batch, 1, beams, (steps + 1) · beams], which slots each hypothesis goes
                back to, its own newest one included; None: all, for one beam.

        Returns:
            [batch · beams, model_dim] and the cache with one step more.
        """
        # The beams stand where length does: [batch, heads, beams, width].
        query, *new = (rows.split(y, self.heads) for y in self.qkv_projection(x))
        cache = KeyValue(
            *(tf.concat([old, newest], axis=2) for old, newest in zip(cache, new, strict=True))
        )
        context = attend_from(query, lambda: self.attend(query, *cache, attention_mask=ancestors))
        return self.output_projection(rows.join(context)), cache


@keras.saving.register_keras_serializable(package="t2t_keras")
class MultiHeadCrossAttention(_MultiHead):
    """Multi-head attention of one sequence to another: "encoder-decoder attention" (3.2.3).

    Args:
        heads: number of heads h.
        key_dim: width d_k of a query and a key of one head.
        value_dim: width d_v of a value of one head; `key_dim` if None.
        attend: `Attention` of each head; `ScaledDotProductAttention()` if None.
        projections: "stacked" or "separate", how W^K, W^V are kept, see `projections.py`.
        kernel_initializer: of all matrices, as Keras names or describes it.

    Call arguments:
        x: [batch, query, model_dim], where queries come from.
        memory: [batch, key, model_dim], where keys and values come from.
        attention_mask: bool, broadcastable to [batch, heads, query, key], True where allowed.

    Returns:
        [batch, query, model_dim].
    """

    def build(self, x_shape, memory_shape=None):
        model_dim = x_shape[-1]
        memory_dim = (memory_shape or x_shape)[-1]
        self.query_projection = self._projection(
            self.heads * self.key_dim, model_dim, "query_projection"
        )
        self.kv_projection = self._several_projections(
            [self.key_dim, self.value_dim], memory_dim, "kv_projection"
        )
        self._build_rest(model_dim)

    def call(self, x, memory, attention_mask=None):
        memory = self.project_memory(memory)
        query = split_heads(self.query_projection(x), self.heads)
        return self._output(self.attend(query, *memory, attention_mask=attention_mask))

    def weigh(self, x, memory, attention_mask=None):
        """Returns the attention weights of `call`, float32 [batch, heads, query, key]."""
        key = self.project_memory(memory).key
        query = split_heads(self.query_projection(x), self.heads)
        return self.attend.weigh(query, key, attention_mask)

    def project_memory(self, memory):
        """Returns the `KeyValue` of memory [batch, key, model_dim]."""
        return KeyValue(*self.kv_projection(memory, heads=self.heads))

    def read(self, x, memory, rows, attention_mask=None):
        """Attends from one position of every hypothesis to a projected memory.

        The hypotheses of a sentence stand on the query axis, so that all of them share its keys
        and values.

        Args:
            x: [batch · beams, model_dim].
            memory: `KeyValue` [batch, heads, key, width].
            rows: `BeamRows` of x.
            attention_mask: bool, broadcastable to [batch, heads, beams, key].

        Returns:
            [batch · beams, model_dim].
        """
        query = rows.split(self.query_projection(x), self.heads)
        context = attend_from(
            query, lambda: self.attend(query, *memory, attention_mask=attention_mask)
        )
        return self.output_projection(rows.join(context))
