"""A training step whose graph is made once."""

import keras


class OnceTracedModel(keras.Model):
    """A `keras.Model` whose `fit` makes the graph of its training step once instead of twice.

    TensorFlow traces a function a second time if it has made variables in the first one, and Keras
    makes the optimizer's in the first step. Here they stand before.
    """

    def make_train_function(self, force=False):
        if not self.optimizer.built:
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        return super().make_train_function(force)
