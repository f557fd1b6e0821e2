"""Functions of tensors, each in a plain form, the definition, and at most one fast form."""

from t2t_keras.ops.switch import plain

__all__ = ["plain"]
