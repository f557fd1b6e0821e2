"""Context variables that have a value for a while."""

import contextlib


@contextlib.contextmanager
def holding(variable, value):
    """Lets a `contextvars.ContextVar` have a value inside, and its own one again behind."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)
