"""The one error that a user's mistake raises."""


class InputError(ValueError):
    """A mistake in what the user gave: its message names the value, the place and the mend.

    The binaries of `pipelines` print the message as one line and exit with 1; every other
    exception is a fault of the program and keeps its traceback.
    """
