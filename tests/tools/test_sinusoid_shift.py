import formula_plots
import numpy as np
import pytest
from sinusoid_shift import (
    dot_products,
    encodings,
    rotation,
    shift_error,
    shift_errors,
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


@pytest.mark.parametrize("offset", [1, 10, 100])
def test_one_matrix_found_from_some_positions_serves_all_others(offset):
    matrix = solve_shift(32, offset, np.arange(0, 1000, 2))
    np.testing.assert_allclose(matrix, rotation(32, offset), atol=1e-5)
    others = np.arange(1, 3000, 2)
    assert shift_error(matrix, offset, others) < 1e-3  # angles of 3,000 in float32
    assert shift_error(np.eye(32), offset, others) > 0.5
    assert shift_errors(matrix, offset, others).shape == (1500,)


def test_dot_products_depend_on_the_offset_alone():
    products = dot_products(64, [50, 400], [-20, 0, 20])
    np.testing.assert_allclose(products[0], products[1], atol=1e-3)
    rates = 10_000 ** -(np.arange(0, 64, 2) / 64)
    np.testing.assert_allclose(products[0, 1:], [32, np.cos(20 * rates).sum()], atol=1e-3)
    assert products[0, 0] == pytest.approx(products[0, 2], abs=1e-3)


def test_the_pictures_of_positions_show_something(tmp_path):
    assert colored(pixels(formula_plots.draw_positions(16, 20), tmp_path)) > 0.2
    positions = np.arange(50)
    errors = {"M": (positions, np.full(50, 1e-5)), "none": (positions, np.ones(50))}
    figure = formula_plots.draw_shift(rotation(8, 3), 3, errors, 16)
    assert colored(pixels(figure, tmp_path)) > 0.01
    figure = formula_plots.draw_learning_rates(steps=5_000)
    peaks = [line.get_ydata().max() for axis in figure.axes for line in axis.lines]
    # Equation 3 at its peak: (d_model · warm-up)^-0.5; warm-ups beyond 5,000 steps still grow.
    expected = [(d * 4_000) ** -0.5 for d in (256, 512, 1_024)]
    expected += [(512 * w) ** -0.5 for w in (2_000, 4_000)]
    expected += [512**-0.5 * 4_999 * w**-1.5 for w in (8_000, 16_000)]
    np.testing.assert_allclose(np.array(peaks) / 1e3, expected, rtol=1e-3)
    assert colored(pixels(figure, tmp_path)) > 0.003
