"""Where sentence pairs come from: TFDS, folders of aligned text, memory.

A corpus has `splits`, the names of its parts, and `examples(split)`, a `tf.data.Dataset` of
`{"source": string scalar, "target": string scalar}` with a known cardinality.
"""

import itertools
import os

import tensorflow as tf

from t2t_keras.data.options import steady
from t2t_keras.data.text_files import read_lines
from t2t_keras.errors import InputError

_LINES_AT_A_TIME = 1024


class TFDSCorpus:
    """A translation dataset of TensorFlow Datasets, by name.

    Args:
        name: as TFDS spells it: `wmt14_translate/de-en`, `wmt14_translate/fr-en`,
            `ted_hrlr_translate/ru_to_en`, or one of your own whose module is imported.
        source_language: the feature to translate from, such as `en`.
        target_language: the feature to translate into, such as `de`.
        data_dir: where TFDS keeps its files; None for its own default.

    Raises:
        InputError: for an unknown dataset, or a language that is none of its features.

    Example:

    >>> corpus = TFDSCorpus("wmt14_translate/de-en", "en", "de")
    >>> corpus.examples("train").take(1)
    """

    def __init__(self, name, source_language, target_language, data_dir=None):
        import tensorflow_datasets as tfds  # noqa: PLC0415 (slow to import)

        self.name = name
        self.source_language, self.target_language = source_language, target_language
        try:
            self._builder = tfds.builder(name, data_dir=data_dir, try_gcs=False)
        except (ValueError, ImportError, FileNotFoundError) as error:
            reason = str(error).strip().splitlines()[0]
            raise InputError(
                f"TFDS has no dataset {name!r}; give a name such as 'wmt14_translate/de-en' "
                f"({reason})"
            ) from error
        features = list(self._builder.info.features or {})
        for language in (source_language, target_language):
            if language not in features:
                raise InputError(f"{name} has no language {language!r}; it has {_names(features)}")

    @property
    def splits(self):
        """The names of the dataset's parts, which are known once it is prepared."""
        self._prepare()
        return sorted(self._builder.info.splits)

    def examples(self, split):
        """The sentence pairs of a split, downloaded and prepared if they were not yet.

        Args:
            split: a name in `splits`, or a slice of one, such as `train[:90%]`.

        Returns:
            A dataset of `{"source", "target"}` string scalars, always in the same order.

        Raises:
            InputError: for an unknown split, or if the dataset cannot be prepared.
        """
        splits = self.splits  # a mocked dataset knows none and answers to every name
        if splits and split.partition("[")[0] not in splits:
            raise InputError(f"{self.name} has no split {split!r}; it has {_names(splits)}")
        dataset = self._builder.as_dataset(split=split, shuffle_files=False)
        return steady(
            dataset.map(
                lambda pair: {
                    "source": pair[self.source_language],
                    "target": pair[self.target_language],
                }
            )
        )

    def _prepare(self):
        import tensorflow_datasets as tfds  # noqa: PLC0415

        try:
            self._builder.download_and_prepare()
        except (OSError, ImportError, tfds.download.DownloadError) as error:
            raise InputError(
                f"{self.name} could not be downloaded and prepared ({error}); prepare it where "
                "there is a network and give its folder as data_dir"
            ) from error


class FolderCorpus:
    """A folder of aligned text files, one sentence a line, plain or gzipped.

    The files of split `train` are those whose names begin with `train.` and end in the
    language, with or without `.gz`: `train.en`, `train.de.gz`, `train.lc.norm.tok.en.gz`.
    Lines end at a line feed and nowhere else; a carriage return before it is dropped.

    Args:
        folder: the folder.
        source_language: how the source files end, such as `en`.
        target_language: how the target files end, such as `de`.

    Raises:
        InputError: if there is no such folder.
    """

    def __init__(self, folder, source_language, target_language):
        if not os.path.isdir(folder):
            raise InputError(f"there is no folder {folder!r}; give one that holds aligned text")
        self.folder = folder
        self.source_language, self.target_language = source_language, target_language

    @property
    def splits(self):
        """What stands before the first dot of the names that both languages share."""
        sides = [
            {name.split(".")[0] for name in os.listdir(self.folder) if _is_text(name, language)}
            for language in (self.source_language, self.target_language)
        ]
        return sorted(sides[0] & sides[1])

    def examples(self, split):
        """The sentence pairs of a split, streamed from its two files.

        Args:
            split: how the file names begin.

        Returns:
            A dataset of `{"source", "target"}` string scalars, in the order of the files.

        Raises:
            InputError: if there is not exactly one file per language, if the two have unequal
                numbers of lines or none, or if a file cannot be read.
        """
        return aligned_files(
            self._file(split, self.source_language), self._file(split, self.target_language)
        )

    def _file(self, split, language):
        names = sorted(os.listdir(self.folder))
        found = [n for n in names if n.startswith(f"{split}.") and _is_text(n, language)]
        if len(found) == 1:
            return os.path.join(self.folder, found[0])
        number = _names(found) if found else "none"
        raise InputError(
            f"split {split!r} wants one file named {split}.….{language} or {split}.….{language}.gz "
            f"in {self.folder}; there is {number}, among {_names(names)}"
        )


class MemoryCorpus:
    """Sentence pairs held in memory.

    Args:
        pairs: `{split: [(source, target), …]}`, of str or bytes.

    Example:

    >>> corpus = MemoryCorpus({"train": [("a house", "ein Haus")]})
    """

    def __init__(self, pairs):
        self._pairs = {split: list(rows) for split, rows in pairs.items()}

    @property
    def splits(self):
        """The names of the splits."""
        return sorted(self._pairs)

    def examples(self, split):
        """The sentence pairs of a split.

        Args:
            split: a name in `splits`.

        Returns:
            A dataset of `{"source", "target"}` string scalars.

        Raises:
            InputError: for an unknown or empty split.
        """
        if split not in self._pairs:
            raise InputError(
                f"there is no split {split!r} in memory; there is {_names(self.splits)}"
            )
        if not self._pairs[split]:
            raise InputError(f"split {split!r} has no sentence pairs; give at least one")
        sources, targets = zip(*self._pairs[split], strict=True)
        return steady(
            tf.data.Dataset.from_tensor_slices({"source": list(sources), "target": list(targets)})
        )


def aligned_files(source, target):
    """The sentence pairs of two files, streamed.

    Args:
        source: path of a text file, one sentence a line, gzipped if it ends in `.gz`.
        target: likewise; line n translates line n of the other.

    Returns:
        A dataset of `{"source", "target"}` string scalars, in the order of the files.

    Raises:
        InputError: if a file is missing, broken or empty, or the two are of unequal length.
    """
    source, target = os.fspath(source), os.fspath(target)
    count, others = _count_lines(source), _count_lines(target)
    if count != others:
        raise InputError(
            f"{source} has {count} lines and {target} has {others}; line n of one must be the "
            "translation of line n of the other"
        )

    def blocks():
        sources, targets = read_lines(source), read_lines(target)
        while block := list(itertools.islice(sources, _LINES_AT_A_TIME)):
            yield {"source": block, "target": list(itertools.islice(targets, len(block)))}

    text = tf.TensorSpec([None], tf.string)
    dataset = tf.data.Dataset.from_generator(
        blocks, output_signature={"source": text, "target": text}
    )
    return steady(dataset.unbatch().apply(tf.data.experimental.assert_cardinality(count)))


def _is_text(name, language):
    return name.endswith((f".{language}", f".{language}.gz"))


def _names(names):
    return ", ".join(map(repr, names)) or "nothing"


def _count_lines(path):
    if not os.path.isfile(path):
        raise InputError(f"there is no file {path!r}; give one that holds a sentence a line")
    count = sum(1 for _ in read_lines(path))
    if not count:
        raise InputError(f"{path} is empty; it must hold one sentence a line")
    return count
