"""R-Drop against its equation in float64 NumPy (Wu et al. 2021, equation 4)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import Transformer
from t2t_keras.errors import InputError
from t2t_keras.layers.logit_factors import LogitFactors
from t2t_keras.models.config import TransformerConfig
from t2t_keras.training.fused_cross_entropy import fused_loss
from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.r_drop import DivergencePenalty, RDrop, divergence

rng = np.random.default_rng(0)
FIRST, SECOND = rng.normal(size=(2, 3, 4, 7)) * 3
LABELS = np.array([[1, 2, 0, 0], [6, 5, 4, 3], [0, 0, 0, 0]])
WEIGHTS = np.array([[1, 2, 0, 0], [0.5, 1, 1, 0], [0, 0, 0, 0]])


def log_softmax(logits):
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def both_directions(first, second):
    p, q = log_softmax(first), log_softmax(second)
    forth, back = (np.exp(p) * (p - q)).sum(-1), (np.exp(q) * (q - p)).sum(-1)
    return (forth + back) / 2


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_divergence_and_its_gradients_are_those_of_the_formula(dtype):
    first, second = tf.cast(FIRST, dtype), tf.cast(SECOND, dtype)
    with tf.GradientTape() as tape:
        tape.watch([first, second])
        values = tf.function(divergence)(first, second)
        total = tf.reduce_sum(values * WEIGHTS.astype(np.float32))
    gradients = tape.gradient(total, [first, second])
    exact = [tf.Variable(tf.cast(logits, tf.float64)) for logits in (first, second)]
    np.testing.assert_allclose(
        values, both_directions(*(logits.numpy() for logits in exact)), rtol=1e-5
    )
    with tf.GradientTape() as tape:
        p, q = (tf.nn.log_softmax(logits) for logits in exact)
        plain = 0.5 * tf.reduce_sum((tf.exp(p) - tf.exp(q)) * (p - q), axis=-1)
        total = tf.reduce_sum(plain * WEIGHTS)
    tolerance = {"float32": 1e-5, "bfloat16": 3e-2}[dtype]
    for found, expected in zip(gradients, tape.gradient(total, exact), strict=True):
        assert found.dtype == dtype
        np.testing.assert_allclose(tf.cast(found, tf.float64), expected, atol=tolerance)


def test_far_apart_and_equal_logits():
    far = np.array([[1e4, 0.0, 0.0]])
    np.testing.assert_allclose(divergence(far, -far), 1e4, rtol=1e-6)
    np.testing.assert_array_equal(divergence(FIRST, FIRST), np.zeros([3, 4]))


@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_the_loss_is_half_of_equation_4(alpha):
    targets = 0.9 * np.eye(7)[LABELS] + 0.1 / 7
    likelihood = sum(-(targets * log_softmax(logits)).sum(-1) for logits in (FIRST, SECOND))
    equation_4 = likelihood + alpha * both_directions(FIRST, SECOND)
    loss = RDrop(alpha, 0.1)
    expected = (equation_4 * WEIGHTS).sum() / WEIGHTS.sum() / 2
    assert float(loss.of_two_passes(LABELS, FIRST, SECOND, WEIGHTS)) == pytest.approx(expected)
    unweighted = (equation_4 * (LABELS > 0)).sum() / (LABELS > 0).sum() / 2
    assert float(loss.of_two_passes(LABELS, FIRST, SECOND)) == pytest.approx(unweighted)


def test_one_pass_is_the_cross_entropy_alone():
    one_pass = LabelSmoothedCrossEntropy(0.2)(LABELS, FIRST, WEIGHTS)
    assert float(RDrop(5.0, 0.2)(LABELS, FIRST, WEIGHTS)) == float(one_pass)


def test_a_weight_below_0_is_refused():
    with pytest.raises(InputError, match=r"R-Drop is -0\.5: give 0 or more"):
        RDrop(-0.5)


@pytest.mark.parametrize("rows_at_a_time", [0, 2, 1000])
@pytest.mark.parametrize("alpha", [0.0, 5.0])
def test_the_fused_loss_and_its_gradients_are_those_of_equation_4(alpha, rows_at_a_time):
    hidden, matrix = rng.normal(size=(2, 3, 4, 5)), rng.normal(size=(7, 5))

    @tf.function
    def fused(first, second, matrix):
        passes = [LogitFactors(first, matrix), LogitFactors(second, matrix)]
        with tf.GradientTape() as tape:
            tape.watch([first, second, matrix])
            loss = 3 * fused_loss(
                LABELS,
                passes,
                tf.constant(WEIGHTS, tf.float32),
                0.1,
                DivergencePenalty(alpha),
                rows_at_a_time * 2 * 7,
            )
        return loss, tape.gradient(loss, [first, second, matrix]), passes[0].terms

    loss, gradients, terms = fused(*(tf.constant(x, tf.float32) for x in (*hidden, matrix)))
    exact = [tf.Variable(x) for x in (*hidden, matrix)]
    targets = 0.9 * np.eye(7)[LABELS] + 0.1 / 7
    with tf.GradientTape() as tape:
        p, q = (tf.nn.log_softmax(h @ tf.transpose(exact[2])) for h in exact[:2])
        losses = -tf.reduce_sum(targets * (p + q), axis=-1)
        losses += alpha * 0.5 * tf.reduce_sum((tf.exp(p) - tf.exp(q)) * (p - q), axis=-1)
        equation_4 = 3 * tf.reduce_sum(losses / 2 * WEIGHTS)
    assert float(loss) == pytest.approx(float(equation_4), rel=1e-6)
    for found, expected in zip(gradients, tape.gradient(equation_4, exact), strict=True):
        np.testing.assert_allclose(found, expected, atol=5e-5)
    entropies = -tf.gather(p, LABELS, batch_dims=2)
    np.testing.assert_allclose(terms.cross_entropy, entropies, atol=1e-5)
    np.testing.assert_array_equal(terms.best, tf.argmax(p, axis=-1))


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_training_takes_the_fused_way_to_the_same_step(policy):
    """Without dropout the passes agree, and R-Drop's step is that of the cross-entropy alone."""
    ids = np.random.default_rng(1).integers(1, 13, (3, 4, 6)).astype("int32")
    steps = []
    for loss in (LabelSmoothedCrossEntropy(0.1), RDrop(5.0, 0.1)):
        keras.utils.set_random_seed(3)
        config = TransformerConfig.tiny(13, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0)
        model = Transformer(config, dtype=policy)
        model.compile(keras.optimizers.SGD(0.1), loss)
        model.train_on_batch({"source_ids": ids[0], "target_ids": ids[1]}, ids[2])
        steps.append(np.concatenate([weight.ravel() for weight in model.get_weights()]))
    np.testing.assert_allclose(*steps, atol={"float32": 1e-6, "mixed_bfloat16": 1e-3}[policy])
