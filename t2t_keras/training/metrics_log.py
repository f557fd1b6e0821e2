"""The metrics of a run on disk: one CSV file, and TensorBoard's event files."""

import csv
import os
import pathlib
import tempfile
import time

import tensorflow as tf
from absl import logging

from t2t_keras.errors import InputError
from t2t_keras.training.distribution import is_chief


class MetricsLog:
    """A run's scalars by step, in `metrics.csv` and, for TensorBoard, under `logs`.

    The CSV file has the columns `step`, `seconds` (of training, over all sessions) and one for each
    scalar, empty in rows without it. A resumed run continues the same file. Rows beyond the step
    from which it resumes, left by the session that was cut off, move to `metrics.superseded.csv`,
    which has the column `resumed_at` as well.

    Of several workers only the chief writes.

    Args:
        workdir: the run's folder.
        step: the number of updates made before this session.

    Raises:
        InputError: if metrics.csv cannot be parsed.
    """

    def __init__(self, workdir, step=0):
        if not is_chief():
            workdir = tempfile.mkdtemp()  # gone with its host's temporary files
        workdir = pathlib.Path(workdir)
        workdir.mkdir(parents=True, exist_ok=True)
        self.path = workdir / "metrics.csv"
        self._columns, rows = _read(self.path)
        kept = [row for row in rows if int(row["step"]) <= step]
        superseded = [{"resumed_at": step} | row for row in rows if int(row["step"]) > step]
        if superseded:
            self._set_aside(superseded)
        _write(self.path, self._columns, kept)
        earlier = float(kept[-1]["seconds"]) if kept else 0.0
        self._started = time.monotonic() - earlier
        self._writer = tf.summary.create_file_writer(os.fspath(workdir / "logs"))

    def write(self, step, scalars):
        """Appends a row.

        Args:
            step: the number of updates made.
            scalars: {name: float}.
        """
        new = [name for name in scalars if name not in self._columns]
        if new:
            rows = _read(self.path)[1]
            self._columns += new
            _write(self.path, self._columns, rows)
        seconds = f"{time.monotonic() - self._started:.1f}"
        numbers = {name: f"{value:.6g}" for name, value in scalars.items()}
        with self.path.open("a", newline="") as file:
            _writer(file, self._columns).writerow({"step": step, "seconds": seconds} | numbers)
        with self._writer.as_default(step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def values(self, name):
        """Returns [(step, value)] of one scalar, in the order written."""
        return [
            (int(row["step"]), float(row[name])) for row in _read(self.path)[1] if row.get(name)
        ]

    def _set_aside(self, rows):
        path = self.path.with_name("metrics.superseded.csv")
        columns, earlier = _read(path, ["resumed_at", "step", "seconds"])
        columns += [name for name in self._columns if name not in columns]
        _write(path, columns, earlier + rows)
        logging.info("Moved %d rows of metrics beyond the restored step to %s", len(rows), path)


def _read(path, columns=("step", "seconds")):
    """Returns the columns and the rows of a CSV file, or `columns` and none if it is missing."""
    try:
        text = path.read_text() if path.exists() else ""
        lines = text.splitlines(keepends=True)
        if lines and not lines[-1].endswith("\n"):
            lines.pop()  # a kill cut it off
        reader = csv.DictReader(lines)
        rows = list(reader)
        for row in rows:
            int(row["step"]), float(row["seconds"])
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise InputError(
            f"{path} is damaged ({error!r}): correct its line, or rename the file to begin another."
        ) from error
    return list(reader.fieldnames or columns), rows


def _write(path, columns, rows):
    temporary = path.with_suffix(".tmp")
    with temporary.open("w", newline="") as file:
        writer = _writer(file, columns)
        writer.writeheader()
        writer.writerows(rows)
        file.flush()
        os.fsync(file.fileno())  # against a loss of power
    os.replace(temporary, path)


def _writer(file, columns):
    return csv.DictWriter(file, columns, restval="", lineterminator="\n")
