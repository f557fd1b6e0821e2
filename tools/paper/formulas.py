"""The paper's formulas at work, measured and drawn: positions, learning rate, scaled scores."""

from typing import NamedTuple

import matplotlib.figure
import numpy as np
import tensorflow as tf

from t2t_keras.layers.attention import ScaledDotProductAttention
from t2t_keras.layers.positions import SinusoidalPositions
from t2t_keras.layers.variants.attention import DotProductAttention
from t2t_keras.training.schedules import InverseSquareRoot

_SIGNED = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1}

# Section 3.5: a shift by k is a linear function of PE(pos) ----------------------------------------


def encodings(positions, model_dim):
    """Returns what `SinusoidalPositions` adds at each position, float64 [positions, model_dim]."""
    return SinusoidalPositions().encode(positions, model_dim).numpy().astype(np.float64)


def solve_shift(model_dim, offset, positions):
    """Solves PE(pos + k) = M_k PE(pos) for M_k by least squares, from encodings alone.

    "For any fixed offset k, PE_{pos+k} can be represented as a linear function of PE_pos." Each
    pair of dimensions has a 2 × 2 block of its own in the result, float64 [model_dim, model_dim];
    the solution does not use that the pair is a sine and a cosine, or their angle.
    """
    here = encodings(positions, model_dim)
    there = encodings(np.asarray(positions) + offset, model_dim)
    matrix = np.zeros([model_dim, model_dim])
    for first in range(0, model_dim, 2):
        pair = slice(first, first + 2)
        solved, *_ = np.linalg.lstsq(here[:, pair], there[:, pair], rcond=None)
        matrix[pair, pair] = solved.T
    return matrix


def rotation(model_dim, offset):
    """Returns M_k in closed form, float64 [model_dim, model_dim]: a rotation for each wave.

    By the addition theorems, [sin(a + b), cos(a + b)] = [[cos b, sin b], [-sin b, cos b]] ·
    [sin a, cos a], with the angle b = k / 10000^(2i/d_model) of wave i.
    """
    matrix = np.zeros([model_dim, model_dim])
    for first in range(0, model_dim, 2):
        angle = offset / 10_000 ** (first / model_dim)
        sine, cosine = np.sin(angle), np.cos(angle)
        matrix[first : first + 2, first : first + 2] = [[cosine, sine], [-sine, cosine]]
    return matrix


def shift_errors(matrix, offset, positions):
    """Returns the largest |M_k PE(pos) - PE(pos + k)| of each position, float64 [positions]."""
    model_dim = len(matrix)
    there = encodings(np.asarray(positions) + offset, model_dim)
    return np.abs(encodings(positions, model_dim) @ matrix.T - there).max(axis=1)


def dot_products(model_dim, positions, offsets):
    """Returns PE(pos) · PE(pos + k), float64 [positions, offsets]."""
    shifted = np.asarray(positions)[:, np.newaxis] + np.asarray(offsets)  # [positions, offsets]
    return np.einsum("pd,pkd->pk", encodings(positions, model_dim), encodings(shifted, model_dim))


def draw_positions(model_dim=128, length=100):
    """Draws PE(pos) as a heat map, and some of its waves."""
    table = encodings(np.arange(length), model_dim)
    figure = matplotlib.figure.Figure(figsize=(10, 7.4), layout="constrained")
    above, below = figure.subplots(2, height_ratios=[2.2, 1])
    image = above.imshow(table, aspect="auto", interpolation="nearest", **_SIGNED)
    figure.colorbar(image, ax=above, label="PE(pos, dimension)")
    above.set(
        xlabel="dimension: sine at even ones, cosine at odd ones",
        ylabel="position",
        title=f"Sinusoidal positional encoding, d_model = {model_dim}",
    )
    for wave in (0, model_dim // 16, model_dim // 8, model_dim // 4):
        period = 2 * np.pi * 10_000 ** (2 * wave / model_dim)
        label = f"dimension {2 * wave}: a wave of {period:,.0f} positions"
        below.plot(table[:, 2 * wave], label=label)
    below.set(xlabel="position", ylabel="PE", ylim=(-1.1, 1.1))
    below.grid(alpha=0.3)
    figure.legend(*below.get_legend_handles_labels(), ncols=2, loc="outside lower center")
    return figure


def draw_shift(matrix, offset, errors, model_dim):
    """Draws PE(pos + k) = M_k PE(pos): dot products by offset, the solved M_k, and its error.

    The matrix, M_k, is small enough to be seen; `model_dim` is that of the dot products. `errors`
    are {name: (positions, largest error up to each position)} of two matrices.
    """
    figure = matplotlib.figure.Figure(figsize=(13, 4.4), layout="constrained")
    products, solved, error = figure.subplots(1, 3, width_ratios=[1.25, 1, 1.1])
    offsets, positions = np.arange(-100, 101), [100, 300, 1000]
    rows = dot_products(model_dim, positions, offsets)
    for position, row, style, width in zip(
        positions, rows, ("-", "--", ":"), (5, 2.5, 1.2), strict=True
    ):
        products.plot(offsets, row, style, linewidth=width, label=f"pos = {position}")
    products.set(
        xlabel="offset k",
        ylabel="PE(pos) · PE(pos + k)",
        title=f"The dot product depends on the offset alone\n(d_model = {model_dim})",
    )
    image = solved.imshow(matrix, interpolation="nearest", **_SIGNED)
    figure.colorbar(image, ax=solved, shrink=0.8)
    gap = np.abs(matrix - rotation(len(matrix), offset)).max()
    solved.set_title(
        f"M_k solved, k = {offset}, d_model = {len(matrix)}\n"
        f"largest difference from rotations: {gap:.0e}"
    )
    for (name, (positions, values)), style in zip(errors.items(), ("-", "--"), strict=True):
        error.semilogy(positions, np.maximum(values, 1e-9), style, label=name, linewidth=2)
    title = "largest |M_k PE(pos) − PE(pos + k)|\nup to a position (PE is float32)"
    error.set(xlabel="position", ylim=(1e-8, 10), title=title)
    for axis in (products, error):
        axis.legend(frameon=False)
        axis.grid(alpha=0.3)
    return figure


# Section 5.3: the learning rate -------------------------------------------------------------------


def draw_learning_rates(steps=40_000):
    """Draws equation 3 for several d_model and for several warm-ups."""
    figure = matplotlib.figure.Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    updates = np.arange(0, steps, max(1, steps // 2_000))
    wider = [(model_dim, 4_000) for model_dim in (256, 512, 1_024)]
    longer = [(512, warmup) for warmup in (2_000, 4_000, 8_000, 16_000)]
    families = {
        "The wider the model, the lower the rate": wider,
        "The longer the warm-up, the lower the peak": longer,
    }
    for axis, (title, family) in zip(panels, families.items(), strict=True):
        for model_dim, warmup in family:
            rates = InverseSquareRoot(model_dim, warmup)(updates).numpy()
            label = f"d_model {model_dim:,}, warm-up {warmup:,}"
            axis.plot(updates + 1, 1e3 * rates, label=label)
        axis.set(title=title, xlabel="step")
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    panels[0].set_ylabel("learning rate / 10⁻³")
    return figure


# Section 3.2.1, footnote 4: why scores are divided by √d_k ----------------------------------------


class ScoreScale(NamedTuple):
    """Statistics of the scores of standard normal queries and keys.

    "Their dot product has mean 0 and variance d_k", and softmax is pushed "into regions where it
    has extremely small gradients".
    """

    variance: float  # of a score
    gradient: float  # mean norm of softmax's gradient, see `softmax_gradient`
    largest: float  # mean of the largest weight of a query


def measure_scores(key_dim, scaled):
    """Returns the `ScoreScale` of d_k = key_dim, computed by the library's attention.

    Each of 512 queries has 64 keys of its own; scaled: whether scores are divided by √d_k.
    """
    attend = (ScaledDotProductAttention if scaled else DotProductAttention)()
    shapes = [512, 1, key_dim], [512, 64, key_dim]
    query, key = (tf.random.stateless_normal(shape, [0, i]) for i, shape in enumerate(shapes))
    _, weights = attend(query, key, key)
    weights = weights.numpy()[:, 0].astype(np.float64)
    return ScoreScale(
        variance=float(np.var(attend.score(query, key))),
        gradient=float(softmax_gradient(weights).mean()),
        largest=float(weights.max(axis=-1).mean()),
    )


def softmax_gradient(weights):
    """Returns the Frobenius norm of softmax's gradient, diag(p) - p pᵀ, by p [..., keys]: [...]."""
    squares = np.sum(weights**2, axis=-1)
    # Σ (p_i δ_ij - p_i p_j)² = Σ p_i² - 2 Σ p_i³ + (Σ p_i²)²
    norm = squares - 2 * np.sum(weights**3, axis=-1) + squares**2
    return np.sqrt(np.maximum(norm, 0.0))


def draw_score_scale(widths, unscaled, scaled):
    """Draws the variance of q · k, the largest weight and softmax's gradient by d_k, `widths`."""
    figure = matplotlib.figure.Figure(figsize=(13, 4.2), layout="constrained")
    panels = figure.subplots(1, 3)
    titles = {
        "variance": "variance of a score",
        "largest": "mean of the largest weight",
        "gradient": "mean norm of softmax's gradient",
    }
    for axis, (name, title) in zip(panels, titles.items(), strict=True):
        for scales, style, label in (
            (unscaled, "C3o-", "q · k"),
            (scaled, "C0s-", "q · k / √d_k"),
        ):
            axis.plot(widths, [getattr(scale, name) for scale in scales], style, label=label)
        axis.set_xscale("log", base=2)
        axis.set_xticks(widths, [str(width) for width in widths])
        axis.set(xlabel="d_k", title=title)
        axis.grid(alpha=0.3)
    panels[0].plot(widths, widths, ":", color="0.3", label="d_k")
    panels[0].set_yscale("log", base=2)
    panels[0].legend(frameon=False)
    panels[1].set_ylim(0, 1)
    panels[2].set_ylim(0, None)
    return figure
