"""Catalogs of messages as input and output of `pipelines.translate`; see `tasks.catalogs`."""

import json

from absl import logging

from pipelines.batch_inference import ResumableOutput
from t2t_keras.tasks.catalogs import Catalog


class CatalogOutput(ResumableOutput):
    """A catalog whose writing can resume: until it is complete, its file has the translations."""

    def __init__(self, path: str, fingerprint: dict, catalog: Catalog, fuzzy: bool):
        super().__init__(path, fingerprint | {"texts": catalog.texts})
        self._catalog, self._fuzzy = catalog, fuzzy

    def write(self, line, end="\n"):
        super().write(json.dumps(line))  # a translation may have several lines

    def __exit__(self, error, *rest):
        report = None
        if error is None:
            self._file.flush()
            translations = map(json.loads, self._unfinished.read_bytes().splitlines())
            text, report = self._catalog.fill(list(translations), self._fuzzy)
            self._file.truncate(0)
            self._file.write(text.encode())
        super().__exit__(error, *rest)
        if report:
            logging.info("%s: %s", self._path, report)
