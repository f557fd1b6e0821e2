"""Embeddings and output projection share one matrix (paper, section 3.4).

If a config shares less, each of the three gets its own `SharedEmbedding`.
"""

import keras
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers.basic import Rematerialized
from t2t_keras.layers.value_checks import Limit
from t2t_keras.types import Array, Shape


@keras.saving.register_keras_serializable(package="t2t_keras")
class SharedEmbedding(Rematerialized, keras.layers.Layer):
    """Tied embeddings: one matrix for both embeddings and the output projection (section 3.4).

    "In the embedding layers, we multiply those weights by √d_model."

    Args:
        vocab_size: number of ids; 0 is padding.
        model_dim: width of an embedding.
        scale: whether embeddings are multiplied by √model_dim; the paper's are.
        output_bias: whether the logits have a bias; the paper's have none.

    Call arguments:
        inputs: ids, integers [batch, length], 0 on padding; or hidden states if `reverse`.
        reverse: whether to project hidden states [..., model_dim] to logits, as `logits` does.

    Returns:
        [batch, length, model_dim] in the compute dtype, with the mask that is False on padding;
        logits are float32 [..., vocab_size].

    Raises:
        InputError: if ids are not integers, or, outside of a graph, not in the vocabulary.

    Example:
        >>> embedding = layers.SharedEmbedding(vocab_size=100, model_dim=32)
        >>> hidden = embedding(np.array([[5, 8, 2, 0]]))
        >>> embedding(hidden, reverse=True).shape
        TensorShape([1, 4, 100])
    """

    def __init__(self, vocab_size: int, model_dim: int, scale=True, output_bias=False, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True
        self.vocab_size = require_whole_number("vocab_size", vocab_size)
        self.model_dim = require_whole_number("model_dim", model_dim)
        self.scale = scale
        self.output_bias = output_bias

    def build(self, input_shape: Shape | None = None) -> None:
        self.matrix = self.add_weight(
            name="matrix",
            shape=(self.vocab_size, self.model_dim),
            # Embeddings, multiplied by √d_model, and logits, which are not, have variance 1.
            initializer=keras.initializers.RandomNormal(stddev=self.model_dim**-0.5),
            # Rows are looked up before the cast: the gradient of a frequent word adds up more rows
            # than bfloat16 can count.
            autocast=False,
        )
        self.bias = None
        if self.output_bias:
            self.bias = self.add_weight(
                name="bias", shape=(self.vocab_size,), initializer="zeros", autocast=False
            )

    def call(self, inputs: tf.Tensor, reverse: bool = False) -> tf.Tensor:
        if reverse:
            return self.logits(inputs)
        if not inputs.dtype.is_integer:
            raise InputError(
                f"ids are {inputs.dtype.name}: give integers; a functional model or Sequential "
                'starts with keras.Input([None], dtype="int32").'
            )
        if tf.executing_eagerly():
            Limit.of_ids(self.vocab_size).make_check("ids", inputs).require()
        vectors = ops.lookup(inputs, self.matrix)
        vectors = tf.cast(vectors, self.compute_dtype)
        return vectors * tf.cast(self.model_dim**0.5, self.compute_dtype) if self.scale else vectors

    def compute_mask(self, inputs: Array, mask: tf.Tensor | None = None) -> tf.Tensor | None:
        is_ids = keras.backend.is_int_dtype(inputs.dtype)
        return keras.ops.not_equal(inputs, ops.PAD_ID) if is_ids else mask

    def logits(self, hidden: tf.Tensor) -> tf.Tensor:
        """Returns hidden · matrixᵀ + bias, float32 [..., vocab_size], of [..., model_dim]."""
        if isinstance(hidden, keras.KerasTensor):  # a functional model records calls of layers
            return self(hidden, reverse=True)
        rows = tf.reshape(tf.cast(hidden, self.compute_dtype), [-1, self.model_dim])
        logits = tf.cast(ops.logits(rows, self.matrix), tf.float32)
        if self.bias is not None:
            logits += tf.convert_to_tensor(self.bias)
        return ops.reshape(logits, [*hidden.shape[:-1], self.vocab_size], like=hidden)

    def compute_output_shape(self, input_shape: Shape) -> Shape:
        return (*input_shape, self.model_dim)

    def compute_output_spec(self, *args, **kwargs):  # of ids and of hidden states
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self) -> dict:
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "model_dim": self.model_dim,
            "scale": self.scale,
            "output_bias": self.output_bias,
        }
