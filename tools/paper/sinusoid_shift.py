"""Sinusoidal positions (section 3.5): a shift by k is a linear function of PE(pos)."""

import numpy as np

from t2t_keras.layers.positions import SinusoidalPositions


def encodings(positions, model_dim):
    """Returns what `SinusoidalPositions` adds at each position, float64 [positions, model_dim]."""
    return SinusoidalPositions().encode(positions, model_dim).numpy().astype(np.float64)


def solve_shift(model_dim, offset, positions):
    """Solves PE(pos + k) = M_k PE(pos) for M_k by least squares, from encodings alone.

    "For any fixed offset k, PE_{pos+k} can be represented as a linear function of PE_pos." Each
    pair of dimensions has a 2 × 2 block of its own; the solution does not use that the pair is a
    sine and a cosine, or their angle.

    Args:
        model_dim: d_model, even.
        offset: k.
        positions: int [n], the positions used.

    Returns:
        float64 [model_dim, model_dim], 0 outside the blocks.
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


def shift_error(matrix, offset, positions):
    """Returns the largest |M_k PE(pos) - PE(pos + k)| over all positions."""
    return float(shift_errors(matrix, offset, positions).max())


def dot_products(model_dim, positions, offsets):
    """Returns PE(pos) · PE(pos + k), float64 [positions, offsets]."""
    shifted = np.asarray(positions)[:, np.newaxis] + np.asarray(offsets)  # [positions, offsets]
    return np.einsum("pd,pkd->pk", encodings(positions, model_dim), encodings(shifted, model_dim))
