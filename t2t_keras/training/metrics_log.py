"""Where the numbers of a run are kept: one CSV file, and TensorBoard's."""

import csv
import os
import pathlib
import tempfile
import time

import tensorflow as tf

from t2t_keras.training.distribution import is_chief


class MetricsLog:
    """A run's scalars by step, in `metrics.csv` and, for TensorBoard, under `logs`.

    The CSV file has the columns `step`, `seconds` (of training, over all its sessions) and one for
    each scalar; what a row does not have is left empty. A resumed run goes on in the same file:
    rows beyond its first step, left by the session that was cut off, are dropped.

    Of several workers only the chief writes.

    Args:
        workdir: the run's folder.
        step: the number of updates made before this session.
    """

    def __init__(self, workdir, step=0):
        if not is_chief():
            workdir = tempfile.mkdtemp()  # gone with its host's temporary files
        workdir = pathlib.Path(workdir)
        workdir.mkdir(parents=True, exist_ok=True)
        self.path = workdir / "metrics.csv"
        self._columns, rows = self._read()
        kept = [row for row in rows if int(row["step"]) <= step]
        self._rewrite(kept)
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
            rows = self._read()[1]
            self._columns += new
            self._rewrite(rows)
        seconds = f"{time.monotonic() - self._started:.1f}"
        numbers = {name: f"{value:.6g}" for name, value in scalars.items()}
        with self.path.open("a", newline="") as file:
            self._csv(file).writerow({"step": step, "seconds": seconds} | numbers)
        with self._writer.as_default(step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def values(self, name):
        """Returns [(step, value)] of one scalar, in the order written."""
        return [(int(row["step"]), float(row[name])) for row in self._read()[1] if row.get(name)]

    def _read(self):
        text = self.path.read_text() if self.path.exists() else ""
        whole_lines = text.splitlines(keepends=True)
        if whole_lines and not whole_lines[-1].endswith("\n"):
            whole_lines.pop()  # a kill cut it off
        reader = csv.DictReader(whole_lines)
        return list(reader.fieldnames or ["step", "seconds"]), list(reader)

    def _rewrite(self, rows):
        temporary = self.path.with_suffix(".tmp")
        with temporary.open("w", newline="") as file:
            writer = self._csv(file)
            writer.writeheader()
            writer.writerows(rows)
        os.replace(temporary, self.path)

    def _csv(self, file):
        return csv.DictWriter(file, self._columns, restval="", lineterminator="\n")
