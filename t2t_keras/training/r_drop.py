"""R-Drop (Wu et al. 2021, "R-Drop: Regularized Dropout for Neural Networks")."""

import keras
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.layers.logit_factors import factors_of
from t2t_keras.training.cross_entropy import softmax_terms, token_weights
from t2t_keras.training.fused_cross_entropy import fused_loss, pick
from t2t_keras.training.losses import LabelSmoothedCrossEntropy, global_mean

_LARGEST_PART = 2**22  # logits at a time; some ten tensors of their size are made of them


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
        passes = [factors_of(logits), factors_of(other_logits)]
        if all(passes):
            loss_sum = fused_loss(
                labels,
                passes,
                weights,
                self.smoothing,
                DivergencePenalty(self.alpha),
                _LARGEST_PART,
            )
        else:
            losses = 0.5 * (self.call(labels, logits) + self.call(labels, other_logits))
            losses += 0.5 * self.alpha * divergence(logits, other_logits)
            loss_sum = tf.reduce_sum(losses * weights)
        return global_mean(loss_sum, weights)

    def get_config(self):
        return super().get_config() | {"alpha": self.alpha}


class DivergencePenalty:
    """The `penalize` of `fused_loss` that makes it `RDrop`.

    The pass with the probabilities p is penalized with h · KL(p ‖ q), where h = α/2, and the other
    one with h · KL(q ‖ p). The gradient of both together by the logits of p is

        h · (p · (log p - log q - KL(p ‖ q)) + p - q).

    Args:
        alpha: α.

    Call arguments:
        softmax: `SoftmaxRows` of the first pass and then of the other one.
    """

    def __init__(self, alpha):
        self.half = alpha / 2

    def __call__(self, softmax):
        p, q = tf.split(softmax.probabilities, 2)  # [rows, vocab]
        logits, other_logits = tf.split(softmax.logits, 2)
        normalizer, other_normalizer = tf.split(softmax.log_normalizer, 2)  # [rows]
        apart = logits - other_logits
        shift = normalizer - other_normalizer  # log p - log q is apart - shift
        kl = tf.reduce_sum(p * apart, axis=-1) - shift
        back_kl = shift - tf.reduce_sum(q * apart, axis=-1)
        apart *= self.half
        own, other = (
            1.0 + self.half * (1.0 - kl - shift),
            1.0 + self.half * (1.0 - back_kl + shift),
        )
        label, _ = tf.split(softmax.labels, 2)  # equal, as passes are of the same tokens
        at_label = self._sides(*tf.split(softmax.at_label, 2), pick(apart, label), own, other)
        sides = self._sides(p, q, apart, own[:, tf.newaxis], other[:, tf.newaxis])
        return self.half * tf.concat([kl, back_kl], axis=0), sides, at_label

    def _sides(self, p, q, apart, own, other):
        """Returns what takes the place of p and of q, one after the other."""
        by_first = p * (own + apart) - self.half * q
        by_second = q * (other - apart) - self.half * p
        return tf.concat([by_first, by_second], axis=0)


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
