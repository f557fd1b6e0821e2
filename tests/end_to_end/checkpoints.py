"""What runs leave, compared."""

import numpy as np

from t2t_keras.training.checkpoint_files import CheckpointReader


def assert_same_checkpoint(workdir, other, step):
    """Asserts that two runs left the same checkpoint of a step, bit by bit."""
    ours, theirs = (
        CheckpointReader(folder / "checkpoints" / f"step_{step:08d}") for folder in (workdir, other)
    )
    assert ours.shapes == theirs.shapes
    for name in ours.shapes:
        np.testing.assert_array_equal(ours.read(name), theirs.read(name), err_msg=name)
