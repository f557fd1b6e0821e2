"""The loss of a run or of one of its stages, the same for every task."""

from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.r_drop import RDrop


def make_loss(smoothing, r_drop):
    """Returns the smoothed cross-entropy, with R-Drop of weight `r_drop` if that is not 0."""
    if r_drop:
        return RDrop(r_drop, smoothing)
    return LabelSmoothedCrossEntropy(smoothing)
