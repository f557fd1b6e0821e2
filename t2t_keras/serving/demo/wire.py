"""Attention as the page's script takes it."""

import base64

import numpy as np


def packed_attention(source, target, weights):
    """Returns a dict that JSON can hold: source, target, layers, heads, weights.

    The weights are in units of 1/65,535 as little-endian uint16 in base64, a tenth of what their
    decimal digits would be.

    Args:
        source: list of str, pieces that are looked at.
        target: list of str, pieces that look.
        weights: float [layers, heads, target, source].
    """
    layers, heads = weights.shape[:2]
    units = np.rint(weights * 65_535).astype("<u2")
    return {
        "source": source,
        "target": target,
        "layers": layers,
        "heads": heads,
        "weights": base64.b64encode(units.tobytes()).decode("ascii"),
    }
