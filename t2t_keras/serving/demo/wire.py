"""Attention in the format of the page's script."""

import base64

import numpy as np


def attention_to_json(source, target, weights):
    """Returns a JSON-able dict: source, target, layers, heads, weights.

    The weights are in units of 1/65,535 as little-endian uint16 in base64, a tenth of the size of
    decimal digits.

    Args:
        source: list of str, tokens attended to.
        target: list of str, tokens that attend.
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
