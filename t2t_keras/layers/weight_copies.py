"""Copies of weights in another form: made where they are wanted, or by somebody who keeps them.

A search makes its copies anew in every run of its graph, since the weights may have changed. Who
knows that they never will, as an export does, keeps the copies.
"""

import contextvars

from t2t_keras.layers.context_variables import holding

_keeper = contextvars.ContextVar("keeper", default=None)


def copied(key, make):
    """Returns what make() returns, a tensor that depends on weights alone.

    Args:
        key: hashable, the same for the same copy.
        make: function without arguments.
    """
    keep = _keeper.get()
    return make() if keep is None else keep(key, make)


def kept_by(keep):
    """Lets a function (key, make) answer every `copied` inside."""
    return holding(_keeper, keep)
