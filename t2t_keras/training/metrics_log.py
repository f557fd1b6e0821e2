"""The metrics of a run on disk: one CSV file, and TensorBoard's event files."""

import csv
import io
import os
import pathlib
import tempfile
import time
import zlib
from collections.abc import Mapping

import tensorflow as tf
from absl import logging

from t2t_keras.data.files import local_path, make_folder, write_file
from t2t_keras.errors import InputError
from t2t_keras.training.distribution import is_chief
from t2t_keras.types import StrPath


class MetricsLog:
    """A run's scalars by step, in `metrics.csv` and, for TensorBoard, under `logs`.

    The CSV file contains the columns `step`, `seconds` (of training, over all sessions), `crc32`
    (of the row's other names and values) and one for each scalar, empty in rows without it. A
    resumed run continues the same file. Rows after the step from which it resumes, left by the
    interrupted session, move to `metrics.superseded.csv`, which has the additional column
    `resumed_at`.

    Of several workers only the chief writes. `step` is the number of updates made before this
    session.

    Raises:
        InputError: if metrics.csv is damaged.
    """

    def __init__(self, workdir: StrPath, step: int = 0):
        if not is_chief():
            workdir = tempfile.mkdtemp()  # gone with its host's temporary files
        workdir = pathlib.Path(local_path(workdir))
        make_folder(workdir)
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

    def write(self, step: int, scalars: Mapping[str, float]) -> None:
        """Appends a row of scalars by name; step: the number of updates made."""
        new = [name for name in scalars if name not in self._columns]
        if new:
            rows = _read(self.path)[1]
            self._columns += new
            _write(self.path, self._columns, rows)
        seconds = f"{time.monotonic() - self._started:.1f}"
        numbers = {name: f"{value:.6g}" for name, value in scalars.items()}
        row = _text(self._columns, [{"step": step, "seconds": seconds} | numbers])
        with self.path.open("ab") as file:
            file.write(row)
            file.flush()
            os.fsync(file.fileno())  # before the step's checkpoint is on the disk
        with self._writer.as_default(step):
            for name, value in scalars.items():
                tf.summary.scalar(name, value)
        self._writer.flush()

    def values(self, name: str) -> list[tuple[int, float]]:
        """Returns [(step, value)] of one scalar, in the order written."""
        return [
            (int(row["step"]), float(row[name])) for row in _read(self.path)[1] if row.get(name)
        ]

    def _set_aside(self, rows):
        path = self.path.with_name("metrics.superseded.csv")
        columns, earlier = _read(path, ["resumed_at", *_COLUMNS])
        columns += [name for name in self._columns if name not in columns]
        _write(path, columns, earlier + rows)
        logging.info("Moved %d rows of metrics beyond the restored step to %s", len(rows), path)


_COLUMNS = ("step", "seconds", "crc32")


def _read(path, columns=_COLUMNS):
    """Returns the columns and the rows of a CSV file, or `columns` and none if it is missing."""
    try:
        lines = path.read_text().splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):
            logging.warning("%s: the last row is incomplete and is dropped", path)
            lines.pop()  # a loss of power cut it off
        reader = csv.DictReader(lines)
        rows = list(reader)
        for row in rows:
            int(row["step"]), float(row["seconds"])
            if None in row or None in row.values():
                raise ValueError(f"step {row['step']} does not have a value for each column")
            if row.get("crc32", "") not in ("", _checksum(row)):  # older rows have none
                raise ValueError(f"the checksum of step {row['step']} does not match")
    except (ValueError, TypeError, KeyError, csv.Error) as error:
        raise InputError(
            f"{path} is damaged ({error}): correct it, or rename it to begin a new one."
        ) from error
    written = list(reader.fieldnames or columns)
    return written + [name for name in columns if name not in written], rows


def _write(path, columns, rows):
    header = ",".join(columns) + "\n"
    write_file(path, header.encode() + _text(columns, rows))


def _text(columns, rows):
    """Returns rows of a CSV file, bytes, each with its checksum."""
    file = io.StringIO()
    writer = csv.DictWriter(file, columns, restval="", lineterminator="\n")
    writer.writerows(row | {"crc32": _checksum(row)} for row in rows)
    return file.getvalue().encode()


def _checksum(row):
    """Returns the CRC-32 of the values of a row, each with its column's name, as 8 digits."""
    values = [f"{name}={value}" for name, value in row.items() if name != "crc32" and value != ""]
    return f"{zlib.crc32(chr(10).join(sorted(values)).encode()):08x}"
