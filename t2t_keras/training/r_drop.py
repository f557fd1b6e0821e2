"""R-Drop (Wu et al. 2021, "R-Drop: Regularized Dropout for Neural Networks")."""

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.training.cross_entropy import softmax_terms, token_weights
from t2t_keras.training.losses import LabelSmoothedCrossEntropy, global_mean


@keras.saving.register_keras_serializable(package="t2t_keras")
class RDrop(LabelSmoothedCrossEntropy):
    """Label-smoothed cross-entropy of two passes, and how far apart dropout sets their answers.

    With P₁ and P₂ what the two passes say of a token, the loss in training is half of the paper's
    equation 4, which keeps it on the scale of one pass:

        ½ (CE(P₁) + CE(P₂)) + α/2 · ½ (KL(P₁ ‖ P₂) + KL(P₂ ‖ P₁))

    as a mean over the tokens of the global batch. Called as a loss of one pass, as in evaluation,
    it is the cross-entropy alone. It needs a model that makes two passes, as `TwoPassModel` does.

    Args:
        alpha: α, 0 or more; 5 in the paper's translation.
        smoothing: ε of the cross-entropy.

    Raises:
        InputError: if alpha is below 0, or smoothing is not in [0, 1).

    Example:
        >>> model.compile(adam(512), RDrop(alpha=5.0, smoothing=0.1))
    """

    def __init__(self, alpha, smoothing=0.1, name="r_drop", **kwargs):
        super().__init__(smoothing, name=name, **kwargs)
        if not alpha >= 0:
            raise InputError(f"The weight of R-Drop is {alpha}: give 0 or more.")
        self.alpha = alpha

    def of_two_passes(self, labels, logits, other_logits, sample_weight=None):
        """Returns the loss in training, as `__call__` returns that of one pass.

        Args:
            labels: int [batch, target], 0 on padding.
            logits: [batch, target, vocab], of any floating type.
            other_logits: likewise, of the other pass.
            sample_weight: [batch, target], 0 on padding; None: 1 for each label that is not 0.
        """
        labels = tf.convert_to_tensor(labels)
        weights = token_weights(labels, sample_weight)
        losses = 0.5 * (self.call(labels, logits) + self.call(labels, other_logits))
        losses += 0.5 * self.alpha * divergence(logits, other_logits)
        return global_mean(tf.reduce_sum(losses * weights), weights)

    def get_config(self):
        return super().get_config() | {"alpha": self.alpha}


def divergence(first, second):
    """Kullback-Leibler divergence of two softmax distributions, both directions averaged.

    With p and q the distributions it is ½ Σ (p - q) (log p - log q). By the logits of p its
    gradient is ½ (p · (log p - log q - KL(p ‖ q)) + p - q), and likewise by those of q.

    Args:
        first: [..., vocab], logits of any floating type; the computation is in float32.
        second: likewise.

    Returns:
        float32 [...].
    """
    terms = softmax_terms(first), softmax_terms(second)

    @tf.custom_gradient
    def divergence_of(first, second):
        p, q = (exponentials / total[..., tf.newaxis] for exponentials, total, _ in terms)
        log_normalizers = terms[0][2] - terms[1][2]  # [...]
        ratio = tf.cast(first, tf.float32) - tf.cast(second, tf.float32)
        ratio -= log_normalizers[..., tf.newaxis]  # log p - log q

        def gradient(upstream):  # [...]
            half = 0.5 * upstream[..., tf.newaxis]

            def side(own, other, log_ratio):
                kl = tf.reduce_sum(own * log_ratio, axis=-1, keepdims=True)
                return half * (own * (log_ratio - kl) + own - other)

            by_first, by_second = side(p, q, ratio), side(q, p, -ratio)
            return tf.cast(by_first, first.dtype), tf.cast(by_second, second.dtype)

        return 0.5 * tf.reduce_sum((p - q) * ratio, axis=-1), gradient

    return divergence_of(first, second)
