"""Gradients of our own, registered once by name instead of once a call.

`tf.custom_gradient` registers a closure for each call that is traced, forever: it keeps the graph
and its variables, so that no model is ever freed. Here the gradient is a function of tensors, all
inputs of its operation, and is registered when its module is imported.
"""

import tensorflow as tf

from t2t_keras import keras_compat


def define_gradient(name):
    """Registers a gradient of a unique name; a decorator.

    The gradient is a function of `upstream`, the gradient with respect to a value, and of tensors:
    the inputs that the value is a function of, then others that the forward pass has computed. It
    returns a gradient for each of the inputs, and becomes a function `attach(value, *tensors)`,
    which returns the value with this gradient, in a graph and in eager code.

    Example:
        >>> @define_gradient("Square")
        ... def square_with_gradient(upstream, x):
        ...     return [upstream * 2.0 * x]
        >>> def square(x):
        ...     return square_with_gradient(x * x, x)
    """
    registered = f"t2t_keras>{name}"

    def decorate(function):
        @tf.RegisterGradient(registered)
        def of_operation(operation, upstream, *others):
            if operation is None:
                return _refused(name, upstream, *others)
            tensors = operation.inputs[1:]
            gradients = function(tf.convert_to_tensor(upstream), *tensors)
            return [None, *gradients, *[None] * (len(tensors) - len(gradients))]

        def attach(value, *tensors):
            tensors = [tf.convert_to_tensor(tensor) for tensor in (value, *tensors)]
            with tf.compat.v1.get_default_graph().gradient_override_map({"IdentityN": registered}):
                value, *_ = outputs = tf.identity_n(tensors)
            inputs = tensors if tf.executing_eagerly() else outputs[0].op.inputs
            keras_compat.record_gradient(registered, inputs, value)
            return value

        return attach

    return decorate


def _refused(name, *gradients):
    """Returns the gradient that a SavedModel keeps: an error.

    TensorFlow traces the gradients of a SavedModel without their operations. Layers attach none
    outside of training.
    """
    message = (
        f"The gradient of {name} is not in the SavedModel: save the model with training=False."
    )
    with tf.control_dependencies([tf.debugging.Assert(tf.constant(False), [message])]):
        return [tf.identity(gradient) for gradient in gradients]
