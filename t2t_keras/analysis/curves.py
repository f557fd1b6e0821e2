"""The course of a training as one picture: loss, perplexity and score by step and wall-clock."""

import csv

import matplotlib.figure
import numpy as np

from t2t_keras.analysis.pictures import save_figure

_PANELS = (
    ("loss", {"loss": "training", "validation_loss": "validation"}),
    ("perplexity", {"perplexity": "training", "validation_perplexity": "validation"}),
    ("BLEU", {"validation_bleu": "validation"}),
    ("F1", {"validation_f1": "validation"}),
)


def draw_curves(metrics, picture):
    """Draws what a run's `metrics.csv` holds.

    Above each panel stands the time of training in minutes, all sessions together. Panels without
    a single number are left out; a run that has none at all gets no picture.

    Args:
        metrics: path of the CSV file that `MetricsLog` writes.
        picture: path of the PNG file to write.

    Returns:
        Whether there was something to draw.
    """
    with open(metrics, newline="") as file:
        rows = list(csv.DictReader(file))
    panels = [
        (title, curves)
        for title, names in _PANELS
        if (
            curves := {
                label: points for name, label in names.items() if (points := _points(rows, name))
            }
        )
    ]
    if not panels:
        return False
    figure = matplotlib.figure.Figure(figsize=(7, 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axis, (title, curves) in zip(axes, panels, strict=True):
        for label, points in curves.items():
            few = len(points) < 50
            axis.plot(*zip(*points, strict=True), marker="." if few else None, label=label)
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
    if "perplexity" in dict(panels):
        axes[[title for title, _ in panels].index("perplexity")].set_yscale("log")
    axes[-1].set_xlabel("step")
    steps, minutes = _clock(rows)
    axes[0].secondary_xaxis(
        "top",
        functions=(lambda x: np.interp(x, steps, minutes), lambda x: np.interp(x, minutes, steps)),
    ).set_xlabel("minutes")
    save_figure(figure, picture)
    return True


def _points(rows, name):
    return [(int(row["step"]), float(row[name])) for row in rows if row.get(name)]


def _clock(rows):
    """Returns rising steps, from 0, and the minutes of training at each."""
    minutes = {0: 0.0} | {int(row["step"]): float(row["seconds"]) / 60 for row in rows}
    return list(minutes), np.maximum.accumulate(list(minutes.values()))
