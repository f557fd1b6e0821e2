"""The paper's formulas in plain NumPy float64: what layers and optimizers are tested against."""

import numpy as np


def assert_close(found, expected, error=1e-5):
    """Asserts that results in float32 differ by less than `error` of the largest magnitude.

    Rounding is relative to the magnitude of what is added up, and differs between CPUs.
    """
    expected = np.asarray(expected, np.float64)
    largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
    np.testing.assert_allclose(found, expected, rtol=0, atol=error * (largest or 1.0))


def softmax(x):
    x = np.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def attention(query, key, value, mask=None):
    """Equation 1, over the last two dimensions."""
    scores = query @ np.swapaxes(key, -1, -2) / np.sqrt(key.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    return softmax(scores) @ value


def window_mask(causal, window, segments):
    """Which keys each query may attend to, one after the other: bool [batch, 1, query, key]."""
    segments = np.asarray(segments)
    mask = np.zeros((*segments.shape, segments.shape[1]), bool)
    for row, query in np.argwhere(segments):
        own = np.flatnonzero(segments[row] == segments[row, query])
        if causal:
            neighborhood = own[(own <= query) & (own > query - window)]
        else:
            begin = np.clip(query - window // 2, own[0], max(own[0], own[-1] + 1 - window))
            neighborhood = own[(own >= begin) & (own < begin + window)]
        mask[row, query, neighborhood] = True
    return mask[:, np.newaxis]


def multi_head(x, memory, w_query, w_key, w_value, w_output, mask=None):
    """Section 3.2.2, one head after the other; w_query is a list of a matrix for each head."""
    heads = [
        attention(x @ q, memory @ k, memory @ v, mask)
        for q, k, v in zip(w_query, w_key, w_value, strict=True)
    ]
    return np.concatenate(heads, -1) @ w_output


def feed_forward(x, w_1, b_1, w_2, b_2):
    """Equation 2."""
    return np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2


def layer_norm(x, gamma, beta, epsilon=1e-6):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


def positions(length, model_dim):
    """Section 3.5, one element after the other."""
    table = np.zeros((length, model_dim))
    for position in range(length):
        for column in range(model_dim):
            angle = position / 10_000 ** ((column - column % 2) / model_dim)
            table[position, column] = np.cos(angle) if column % 2 else np.sin(angle)
    return table


def smoothed_cross_entropy(labels, logits, smoothing):
    """Section 5.4: cross-entropy against (1 - ε) · one-hot + ε / V."""
    vocab = logits.shape[-1]
    targets = (1 - smoothing) * np.eye(vocab)[labels] + smoothing / vocab
    return -(targets * np.log(softmax(logits))).sum(-1)


def gradients(function, *arrays, step=1e-5):
    """Returns the gradients of a scalar function of float64 arrays, by central differences."""
    found = []
    for i, array in enumerate(arrays):
        gradient = np.zeros(array.shape)
        for index in np.ndindex(*array.shape):
            values = []
            for sign in (1, -1):
                moved = array.copy()
                moved[index] += sign * step
                values.append(function(*arrays[:i], moved, *arrays[i + 1 :]))
            gradient[index] = (values[0] - values[1]) / (2 * step)
        found.append(gradient)
    return found


def adam(weights, gradients, rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9):
    """Returns the weights after updates by each gradient: section 5.3, Kingma and Ba 2015."""
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step, gradient in enumerate(gradients, start=1):
        mean = beta_1 * mean + (1 - beta_1) * gradient
        square = beta_2 * square + (1 - beta_2) * gradient**2
        scale = np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
        weights = weights - rate * scale * mean / (np.sqrt(square) + epsilon)
    return weights
