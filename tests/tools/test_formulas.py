import formulas
import numpy as np
import pytest
import tensorflow as tf
from formulas import (
    draw_score_scale,
    encodings,
    measure_scores,
    rotation,
    shift_errors,
    softmax_gradient,
    solve_shift,
)

from tests.analysis.drawn import colored, pixels


def test_the_encoding_is_the_papers():
    """PAPER: d_model 6, position 3."""
    expected = [0.14112, -0.98999, 0.13879, 0.99032, 0.00646, 0.99997]
    np.testing.assert_allclose(encodings([3], 6)[0], expected, atol=1e-5)


def test_the_shift_is_a_rotation_of_each_wave():
    """d_model 4: waves of angle 1 and 1/100 a position; k = 5."""
    a, b = 5.0, 5.0 / 100
    by_hand = [
        [np.cos(a), np.sin(a), 0, 0],
        [-np.sin(a), np.cos(a), 0, 0],
        [0, 0, np.cos(b), np.sin(b)],
        [0, 0, -np.sin(b), np.cos(b)],
    ]
    np.testing.assert_allclose(rotation(4, 5), by_hand)
    np.testing.assert_allclose(rotation(4, 5) @ rotation(4, 5).T, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(rotation(4, 2) @ rotation(4, 3), rotation(4, 5), atol=1e-12)


def test_one_matrix_found_from_some_positions_serves_all_others():
    matrix = solve_shift(32, 10, np.arange(0, 1000, 2))
    np.testing.assert_allclose(matrix, rotation(32, 10), atol=1e-5)
    others = np.arange(1, 3000, 2)
    assert shift_errors(matrix, 10, others).max() < 1e-3  # angles of 3,000 in float32
    assert shift_errors(np.eye(32), 10, others).max() > 0.5


def test_the_pictures_of_positions_show_something(tmp_path):
    assert colored(pixels(formulas.draw_positions(16, 20), tmp_path)) > 0.2
    positions = np.arange(50)
    errors = {"M": (positions, np.full(50, 1e-5)), "none": (positions, np.ones(50))}
    figure = formulas.draw_shift(rotation(8, 3), 3, errors, 16)
    assert colored(pixels(figure, tmp_path)) > 0.01
    figure = formulas.draw_learning_rates(steps=5_000)
    peaks = [line.get_ydata().max() for axis in figure.axes for line in axis.lines]
    # Equation 3 at its peak: (d_model · warm-up)^-0.5; warm-ups beyond 5,000 steps still grow.
    expected = [(d * 4_000) ** -0.5 for d in (256, 512, 1_024)]
    expected += [(512 * w) ** -0.5 for w in (2_000, 4_000)]
    expected += [512**-0.5 * 4_999 * w**-1.5 for w in (8_000, 16_000)]
    np.testing.assert_allclose(np.array(peaks) / 1e3, expected, rtol=1e-3)
    assert colored(pixels(figure, tmp_path)) > 0.003


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
