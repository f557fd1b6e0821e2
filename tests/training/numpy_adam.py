"""Adam in NumPy, for the tests of optimizers."""

import numpy as np


def numpy_adam(weights, gradients, rate, beta_1=0.9, beta_2=0.98, epsilon=1e-9):
    """Returns the weights after updates by each gradient (Kingma and Ba 2015, algorithm 1)."""
    mean, square = np.zeros_like(weights), np.zeros_like(weights)
    for step, gradient in enumerate(gradients, start=1):
        mean = beta_1 * mean + (1 - beta_1) * gradient
        square = beta_2 * square + (1 - beta_2) * gradient**2
        scale = np.sqrt(1 - beta_2**step) / (1 - beta_1**step)
        weights = weights - rate * scale * mean / (np.sqrt(square) + epsilon)
    return weights
