"""Keras's Dense, LayerNormalization and Dropout on the functions of `ops`.

`Linear`, `LayerNorm` and `Dropout` compute the same as these Keras layers. Attention, feed-forward
networks and residual connections use them. `SequenceLayer` is the base of all layers that keep the
shape of their input.
"""

import keras
import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.errors import InputError
from t2t_keras.layers.rematerialization import Rematerialized


@keras.saving.register_keras_serializable(package="t2t_keras")
class Linear(Rematerialized, keras.layers.Dense):
    """x W + b: `keras.layers.Dense` as one product of two matrices, which TensorFlow fuses.

    With LoRA (`enable_lora`, Hu et al. 2022) W is kernel + A B · α / rank, and x W is computed as
    x kernel + (x A) B · α / rank. The gradient of the frozen kernel is never computed.

    Args:
        units, **kwargs: as for `keras.layers.Dense`.

    Call arguments:
        x: [..., width].
        training: whether gradients will be computed; some forms prepare for them.

    Returns:
        [..., units].

    Example:
        >>> layers.Linear(16, activation="relu")(tf.ones([2, 7, 32])).shape
        TensorShape([2, 7, 16])
    """

    def call(self, x, training=False):
        y = ops.matmul(tf.reshape(x, [-1, x.shape[-1]]), *self.factors)
        if self.bias is not None:
            y = ops.add_bias(y, tf.convert_to_tensor(self.bias), training)
        if self.activation is keras.activations.silu:  # keeps each graph: `ops.define_gradient`
            y = ops.silu(y, training)
        else:
            y = self.activation(y)
        return ops.reshape(y, [*x.shape[:-1], self.units], like=x)

    @property
    def factors(self):
        """A tuple of the kernel [width, units] and, with LoRA, A [width, rank] and B · α / rank."""
        return keras_compat.lora_factors(self) if self.lora_enabled else (self.kernel,)

    def save_own_variables(self, store):
        if not self.lora_enabled:
            super().save_own_variables(store)
            return
        store["0"] = ops.merged_kernel(*self.factors)  # Keras's is rounded to the compute dtype
        if self.bias is not None:
            store["1"] = self.bias


class SequenceLayer(Rematerialized, keras.layers.Layer):
    """A Keras layer whose first or only output has the shape of its first input.

    In a functional model Keras derives outputs only from their shape and gives all of them the
    compute dtype. Here `call` is traced instead, so that attention weights keep their float32.
    The output also gets the mask of the first input.
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def compute_output_shape(self, input_shape=None, *_, **shapes):
        # Keras names the shapes of a `call` that was given several tensors.
        return shapes["x_shape"] if input_shape is None else input_shape

    def compute_output_spec(self, *args, **kwargs):
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def with_weights(self, *arguments, **masks):
        """Returns output and attention weights; a graph computes only what is used."""
        return self(*arguments, **masks, return_attention_weights=True)


@keras.saving.register_keras_serializable(package="t2t_keras")
class LayerNorm(SequenceLayer):
    """γ · (x − mean) / √(variance + ε) + β over the last axis (Ba et al. 2016).

    Args:
        epsilon: ε, added to the variance.

    Call arguments:
        x: [..., model_dim], any floating type; the computation is in float32.

    Returns:
        [..., model_dim] in the compute dtype.

    Example:
        >>> layers.LayerNorm()(tf.constant([[1.0, 3.0, 5.0, 7.0]])).numpy().round(2)
        array([[-1.34, -0.45,  0.45,  1.34]], dtype=float32)
    """

    def __init__(self, epsilon=1e-6, **kwargs):
        super().__init__(autocast=False, **kwargs)
        self.epsilon = epsilon

    def build(self, input_shape):
        shape = (input_shape[-1],)
        self.gamma = self.add_weight(name="gamma", shape=shape, initializer="ones", autocast=False)
        self.beta = self.add_weight(name="beta", shape=shape, initializer="zeros", autocast=False)

    def call(self, x):
        x, gamma, beta = (tf.cast(t, tf.float32) for t in (x, self.gamma, self.beta))
        return tf.cast(ops.layer_norm(x, gamma, beta, self.epsilon), self.compute_dtype)

    def get_config(self):
        return super().get_config() | {"epsilon": self.epsilon}


@keras.saving.register_keras_serializable(package="t2t_keras")
class Dropout(Rematerialized, keras.layers.Dropout):
    """`keras.layers.Dropout` that draws different masks on the replicas of `tf.distribute`.

    Args:
        rate: fraction of the elements set to zero in training, 0 to 1.
        noise_shape: None; only the Keras layer supports noise shapes.
        seed: int or None.

    Call arguments:
        inputs: [...], any floating type.
        training: whether to drop; `fit` passes True.

    Returns:
        [...], the elements that are not dropped multiplied by 1 / (1 - rate).

    Raises:
        InputError: if noise_shape is given.

    Example:
        >>> float(tf.reduce_max(layers.Dropout(0.5)(tf.ones([9, 9]), training=True)))
        2.0
    """

    def __init__(self, rate, noise_shape=None, seed=None, **kwargs):
        if noise_shape is not None:
            raise InputError(
                f"noise_shape is {noise_shape}, but this layer drops single elements: use "
                "keras.layers.Dropout."
            )
        super().__init__(rate, seed=seed, **kwargs)

    def call(self, inputs, training=False):
        if not training or self.rate == 0:
            return inputs
        return ops.dropout(inputs, self.rate, next_seed(self.seed_generator))


def next_seed(generator):
    """Returns the next seed of a `keras.random.SeedGenerator`, int32 [2], another on each replica.

    Replicas hold equal copies of the generator's state, whose second element counts calls. The
    replica's number is added to the first.
    """
    seed = tf.cast(generator.next(), tf.uint32)
    replica = tf.distribute.get_replica_context()
    if replica is not None and replica.num_replicas_in_sync > 1:
        seed += tf.cast(tf.stack([replica.replica_id_in_sync_group, 0]), tf.uint32)
    return tf.cast(seed, tf.int32)


def deserialize(part):
    """Returns the Keras object of a saved config, a dict; returns an object or None unchanged."""
    return keras.saving.deserialize_keras_object(part) if isinstance(part, dict) else part
