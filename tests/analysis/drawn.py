"""What a picture shows, by its pixels."""

import matplotlib.image
import numpy as np

from t2t_keras.analysis.plots import save_figure


def pixels(figure, folder):
    """Returns the pixels of a figure, float [height, width, 3], 1 is white."""
    save_figure(figure, folder / "figure.png")
    return matplotlib.image.imread(folder / "figure.png")[..., :3]


def inked(image):
    """Returns the fraction of pixels that are not white."""
    return float(np.mean(np.any(image < 0.95, axis=-1)))


def colored(image):
    """Returns the fraction of pixels that are neither white nor gray nor black."""
    return float(np.mean(np.ptp(image, axis=-1) > 0.2))
