"""Every private name of Keras that the library touches, and why.

Private names may change with any release, so they stand here and nowhere else. Each entry says
with which release it was written, the reason, the upstream issue if one is known, and the test that
fails on the day the entry can go. Keras 3.15 (3.12 with Python 3.10), TensorFlow 2.21.
"""

_TRACKERS = {
    "_layers",
    "_metrics",
    "_non_trainable_variables",
    "_operations",
    "_seed_generators",
    "_trainable_variables",
    "_variables",
}


def attributes(owner):
    """Returns [(name, value)] of a Keras object, sorted: public, private, Keras's own collections.

    Keras 3.15. `tf.train.Checkpoint` leaves out layers in lists and variable paths are not unique,
    so a checkpoint names variables by attributes. Keras's collections hold a second time what an
    attribute of the class holds under a better name, and therefore come last.
    Upstream: keras issue 19425.
    Test: tests/training/test_checkpoints.py::test_keras_has_no_unique_names_of_variables.
    """

    def rank(item):
        name = item[0]
        return 2 if name in _TRACKERS or name.startswith("_self_") else name.startswith("_")

    return sorted(vars(owner).items(), key=rank)


def variable_index(optimizer, variable):
    """Returns the index of a weight among those that a built optimizer trains, or None.

    Keras 3.15. `update_step` gets the `tf.Variable`, of one replica under a strategy, and Keras has
    no public way from there to what the optimizer keeps for the weight.
    Upstream: none known.
    Test: tests/training/test_optimizers.py::test_keras_has_no_public_index_of_a_weight.
    """
    try:
        return optimizer._get_variable_index(variable)
    except KeyError:
        return None


def adam_moments(optimizer, index):
    """Returns the means of a weight's gradients and of their squares that Keras's Adam keeps.

    Keras 3.15. Its update goes through the weights many times, and adds up squares instead of
    squaring the sum where an embedding's gradient holds a row twice; ours takes both variables.
    Upstream: keras issue 19992.
    Test: tests/training/test_optimizers.py::test_keras_adam_takes_many_operations.
    """
    return optimizer._momentums[index], optimizer._velocities[index]


class GradientsAfterReduction:
    """Mixin of an optimizer whose gradients are clipped after they are summed over the replicas.

    Subclasses define `process_gradients`, and may call `clip_gradients` in it.

    Keras 3.15. It clips each replica's gradients before their sum, so that the same global batch
    gives another update for another number of devices.
    Upstream: tensorflow issue 33929.
    Test: tests/training/two_devices.py::test_keras_clips_the_gradients_of_each_replica.
    """

    def process_gradients(self, gradients):
        """Returns the gradients to apply.

        Args:
            gradients: list of tensors, summed over all replicas; None for a weight without one.
        """
        raise NotImplementedError

    def clip_gradients(self, gradients):
        """Returns the gradients clipped as Keras's `clipnorm` or `clipvalue` says."""
        return super()._clip_gradients(gradients)

    def _clip_gradients(self, grads):
        return grads

    def _all_reduce_sum_gradients(self, grads_and_vars):
        gradients, variables = zip(*super()._all_reduce_sum_gradients(grads_and_vars), strict=True)
        return list(zip(self.process_gradients(list(gradients)), variables, strict=True))
