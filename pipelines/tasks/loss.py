"""The loss that a config's train part names, the same for every task."""

from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.r_drop import RDrop


def make_loss(train, r_drop=True):
    """Returns the loss of config.train: smoothed cross-entropy, with R-Drop if it has a weight.

    Args:
        train: config.train.
        r_drop: whether R-Drop may come in.
    """
    if train.r_drop and r_drop:
        return RDrop(train.r_drop, train.label_smoothing)
    return LabelSmoothedCrossEntropy(train.label_smoothing)
