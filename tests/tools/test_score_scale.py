import numpy as np
import pytest
import tensorflow as tf
from formula_plots import draw_score_scale
from score_scale import measure_scores, softmax_gradient

from tests.analysis.drawn import colored, pixels


@pytest.mark.parametrize("key_dim", [4, 64, 256])
def test_the_variance_of_a_score_is_d_k_and_scaled_1(key_dim):
    """Footnote 4: Σ of d_k products of variance 1."""
    assert measure_scores(key_dim, scaled=False).variance == pytest.approx(key_dim, rel=0.05)
    assert measure_scores(key_dim, scaled=True).variance == pytest.approx(1, rel=0.05)


def test_the_gradient_is_that_of_softmax():
    scores = tf.random.stateless_normal([5, 7], [0, 0]) * 3
    with tf.GradientTape() as tape:
        tape.watch(scores)
        weights = tf.nn.softmax(scores)
    jacobian = tape.batch_jacobian(weights, scores)
    expected = np.sqrt(np.sum(jacobian.numpy() ** 2, axis=(1, 2)))
    np.testing.assert_allclose(softmax_gradient(weights.numpy()), expected, atol=1e-5)
    assert softmax_gradient(np.eye(3)) == pytest.approx(0)
    # n equal weights: p (1 - p) on the diagonal, -p² elsewhere, √(n p² - 2 n p³ + n² p⁴) = √(n-1)/n
    assert softmax_gradient(np.full(5, 0.2)) == pytest.approx(4**0.5 / 5)


def test_gradients_shrink_with_d_k_unless_scaled(tmp_path):
    widths = [16, 512]
    unscaled, scaled = ([measure_scores(d, s) for d in widths] for s in (False, True))
    assert unscaled[1].gradient < 0.5 * unscaled[0].gradient
    assert scaled[1].gradient == pytest.approx(scaled[0].gradient, rel=0.1)
    assert unscaled[1].largest > 0.8
    assert scaled[1].largest < 0.2
    assert colored(pixels(draw_score_scale(widths, unscaled, scaled), tmp_path)) > 0.003
