"""The graphs of TensorFlow that somebody holds."""

import gc


def graphs():
    return [o for o in gc.get_objects() if type(o).__name__.endswith("FuncGraph")]
