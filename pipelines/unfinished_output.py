"""A file of results that is written over hours, and goes on where a kill cut it off."""

import json
import os
import pathlib

from absl import logging


class UnfinishedOutput:
    """The file in the making, hidden beside its place until it is complete.

    A context manager: the file gets its name when the block ends well. After an error, or a kill,
    what is written counts as far as `keep` was called after it: a restart cuts the file there.

    Args:
        path: the place.
        made_of: JSON-able; another run's unfinished file is gone on with only if its was the same.

    Attributes:
        done: of how many inputs an earlier run kept the results.
    """

    def __init__(self, path, made_of):
        path = pathlib.Path(path)
        self._path = path
        self._unfinished = path.with_name(f".{path.name}.unfinished")
        self._journal = path.with_name(f".{path.name}.unfinished.json")
        self._made_of = json.loads(json.dumps(made_of))
        kept = self._kept()
        self.done, size = kept["done"], kept["size"]
        if self.done:
            logging.info("%s: going on behind %d lines", path, self.done)
        else:
            self._journal.unlink(missing_ok=True)
        self._file = self._unfinished.open("ab")
        self._file.truncate(size)

    def write(self, line):
        """Adds a line of text."""
        self._file.write(f"{line}\n".encode())

    def keep(self, done):
        """Makes sure of what is written so far, the results of `done` inputs."""
        self._file.flush()
        os.fsync(self._file.fileno())
        journal = {"made_of": self._made_of, "done": done, "size": self._file.tell()}
        temporary = self._journal.with_suffix(".tmp")
        temporary.write_text(json.dumps(journal))
        os.replace(temporary, self._journal)

    def __enter__(self):
        return self

    def __exit__(self, error, *_):
        self._file.close()
        if error is None:
            os.replace(self._unfinished, self._path)
            self._journal.unlink(missing_ok=True)
        elif not self._journal.exists():  # nothing was kept
            self._unfinished.unlink()

    def _kept(self):
        try:
            kept = json.loads(self._journal.read_text())
            if kept["made_of"] == self._made_of and kept["size"] <= self._unfinished.stat().st_size:
                return kept
        except (FileNotFoundError, ValueError):
            pass
        return {"done": 0, "size": 0}
