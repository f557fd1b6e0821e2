"""Losses that compare two passes of a batch through the model's dropout."""

import keras


class TwoPassModel(keras.Model):
    """A `keras.Model` that trains a loss of two passes, each under its own dropout masks.

    A loss asks for it by having `of_two_passes(labels, logits, other_logits, sample_weight)`, such
    as `RDrop`. The second pass is made where the loss is computed, so that batches, micro-batches,
    replicas and metrics know nothing of it. Evaluation makes one pass and calls the loss as usual.
    """

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        if training and hasattr(self.loss, "of_two_passes"):
            return self.loss.of_two_passes(y, y_pred, self(x, training=True), sample_weight)
        return super().compute_loss(x, y, y_pred, sample_weight, training)
