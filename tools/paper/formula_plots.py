"""Plots of the paper's formulas: positions and their shifts, learning rate, score scaling."""

import matplotlib.figure
import numpy as np
from sinusoid_shift import dot_products, encodings, rotation

from t2t_keras.training.schedules import InverseSquareRoot

_SIGNED = {"cmap": "RdBu_r", "vmin": -1, "vmax": 1}


def draw_positions(model_dim=128, length=100):
    """Draws PE(pos) as a heat map, and some of its waves (section 3.5)."""
    table = encodings(np.arange(length), model_dim)
    figure = matplotlib.figure.Figure(figsize=(10, 7.4), layout="constrained")
    above, below = figure.subplots(2, height_ratios=[2.2, 1])
    image = above.imshow(table, aspect="auto", interpolation="nearest", **_SIGNED)
    figure.colorbar(image, ax=above, label="PE(pos, dimension)")
    above.set_xlabel("dimension: sine at even ones, cosine at odd ones")
    above.set_ylabel("position")
    above.set_title(f"Sinusoidal positional encoding, d_model = {model_dim}")
    for wave in (0, model_dim // 16, model_dim // 8, model_dim // 4):
        period = 2 * np.pi * 10_000 ** (2 * wave / model_dim)
        label = f"dimension {2 * wave}: a wave of {period:,.0f} positions"
        below.plot(table[:, 2 * wave], label=label)
    below.set_xlabel("position")
    below.set_ylabel("PE")
    below.set_ylim(-1.1, 1.1)
    below.grid(alpha=0.3)
    figure.legend(*below.get_legend_handles_labels(), ncols=2, loc="outside lower center")
    return figure


def draw_shift(matrix, offset, errors, model_dim):
    """Draws PE(pos + k) = M_k PE(pos): dot products by offset, the solved M_k, and its error.

    Args:
        matrix: float [small, small], the solved M_k, small enough to be seen.
        offset: k.
        errors: {name: (positions, largest error up to each position)} of two matrices.
        model_dim: d_model of the dot products.
    """
    figure = matplotlib.figure.Figure(figsize=(13, 4.4), layout="constrained")
    products, solved, error = figure.subplots(1, 3, width_ratios=[1.25, 1, 1.1])
    offsets, positions = np.arange(-100, 101), [100, 300, 1000]
    rows = dot_products(model_dim, positions, offsets)
    for position, row, style in zip(positions, rows, ("-", "--", ":"), strict=True):
        width = {"-": 5, "--": 2.5, ":": 1.2}[style]
        products.plot(offsets, row, style, linewidth=width, label=f"pos = {position}")
    products.set_xlabel("offset k")
    products.set_ylabel("PE(pos) · PE(pos + k)")
    products.set_title(f"The dot product depends on the offset alone\n(d_model = {model_dim})")
    products.legend(frameon=False)
    products.grid(alpha=0.3)
    image = solved.imshow(matrix, interpolation="nearest", **_SIGNED)
    figure.colorbar(image, ax=solved, shrink=0.8)
    gap = np.abs(matrix - rotation(len(matrix), offset)).max()
    solved.set_title(
        f"M_k solved, k = {offset}, d_model = {len(matrix)}\n"
        f"largest difference from rotations: {gap:.0e}"
    )
    for (name, (positions, values)), style in zip(errors.items(), ("-", "--"), strict=True):
        error.semilogy(positions, np.maximum(values, 1e-9), style, label=name, linewidth=2)
    error.set_xlabel("position")
    error.set_ylim(1e-8, 10)
    error.set_title("largest |M_k PE(pos) − PE(pos + k)|\nup to a position (PE is float32)")
    error.legend(frameon=False)
    error.grid(alpha=0.3)
    return figure


def draw_learning_rates(steps=40_000):
    """Draws equation 3 for several d_model and for several warm-ups (section 5.3)."""
    figure = matplotlib.figure.Figure(figsize=(11, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    updates = np.arange(0, steps, max(1, steps // 2_000))
    families = (
        [(256, 4_000), (512, 4_000), (1_024, 4_000)],
        [(512, 2_000), (512, 4_000), (512, 8_000), (512, 16_000)],
    )
    titles = (
        "The wider the model, the lower the rate",
        "The longer the warm-up, the lower the peak",
    )
    for axis, family, title in zip(panels, families, titles, strict=True):
        for model_dim, warmup in family:
            rates = InverseSquareRoot(model_dim, warmup)(updates).numpy()
            label = f"d_model {model_dim:,}, warm-up {warmup:,}"
            axis.plot(updates + 1, 1e3 * rates, label=label)
        axis.set_title(title)
        axis.set_xlabel("step")
        axis.xaxis.set_major_formatter("{x:,.0f}")
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    panels[0].set_ylabel("learning rate / 10⁻³")
    return figure


def draw_score_scale(widths, unscaled, scaled):
    """Draws the variance of q · k, the largest weight and softmax's gradient by d_k.

    Args:
        widths: values of d_k.
        unscaled: a `ScoreScale` for each width.
        scaled: a `ScoreScale` for each width, of scores divided by √d_k.
    """
    figure = matplotlib.figure.Figure(figsize=(13, 4.2), layout="constrained")
    panels = figure.subplots(1, 3)
    titles = {
        "variance": "variance of a score",
        "largest": "mean of the largest weight",
        "gradient": "mean norm of softmax's gradient",
    }
    for axis, (name, title) in zip(panels, titles.items(), strict=True):
        axis.plot(widths, [getattr(s, name) for s in unscaled], "o-", color="C3", label="q · k")
        axis.plot(
            widths, [getattr(s, name) for s in scaled], "s-", color="C0", label="q · k / √d_k"
        )
        axis.set_xscale("log", base=2)
        axis.set_xticks(widths, [str(width) for width in widths])
        axis.set_xlabel("d_k")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    panels[0].plot(widths, widths, ":", color="0.3", label="d_k")
    panels[0].set_yscale("log", base=2)
    panels[0].legend(frameon=False)
    panels[1].set_ylim(0, 1)
    panels[2].set_ylim(0, None)
    return figure
