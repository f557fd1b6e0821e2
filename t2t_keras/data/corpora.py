"""Corpora of sentence pairs: from TensorFlow Datasets, from folders of aligned text, from memory.

A corpus has a method `examples(split)`, which returns a `tf.data.Dataset` of `{"source": string
scalar, "target": string scalar}` with a known cardinality. Any class with this method is a corpus.
`encode_pairs` encodes pairs in memory as input of a `Batcher`; larger corpora go through
`shard_writing.py`.
"""

import functools
import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.data.base_tokenizer import encode_with_eos
from t2t_keras.data.files import (
    existing_folder,
    local_path,
    nfc,
    nfc_names,
    quoted,
    read_lines,
    split_file,
)
from t2t_keras.data.texts import as_pairs
from t2t_keras.errors import InputError, MissingTextError, reason_of
from t2t_keras.graphs import deterministic
from t2t_keras.types import Encoder, StrPath

_PAIRS_PER_STEP = 1024


class TFDSCorpus:
    """A translation dataset of TensorFlow Datasets.

    Args:
        name: its TFDS name, such as `wmt14_translate/de-en` or `ted_hrlr_translate/ru_to_en`. Your
            own dataset's module must be imported.
        source_language, target_language: the features to translate from and into, such as `en`.
        data_dir: folder of TFDS's files; None: TFDS's default.

    Raises:
        InputError: for an unknown dataset or feature, or if both features are the same.
    """

    def __init__(
        self, name: str, source_language: str, target_language: str, data_dir: StrPath | None = None
    ):
        _require_two_sides(source_language, target_language)
        self._open(name, {"source": source_language, "target": target_language}, data_dir)

    def _open(self, name, features, data_dir):
        """Opens a dataset whose texts are in features, {"source": name} or with "target" too."""
        import tensorflow_datasets as tfds  # noqa: PLC0415 (slow to import)

        self.name, self._features = name, features
        data_dir = data_dir and os.path.expanduser(data_dir)
        self._make_builder = functools.partial(tfds.builder, name, data_dir=data_dir, try_gcs=False)
        try:
            self._builder = self._make_builder()
        except (ValueError, ImportError, FileNotFoundError) as error:
            raise InputError(
                f"TFDS has no dataset {name!r}; give a name such as 'wmt14_translate/de-en' "
                f"({reason_of(error)})"
            ) from error
        known = list(self._builder.info.features or {})
        for feature in features.values():
            if feature not in known:
                raise MissingTextError(f"{name} has no feature {feature!r}; it has {quoted(known)}")

    def has_text(self, split: str) -> bool:
        """Returns whether the dataset contains a split, or the split of which it is a slice."""
        self._prepare()
        return split.partition("[")[0] in self._builder.info.splits

    def examples(self, split: str) -> tf.data.Dataset:
        """Returns the pairs of a split, always in the same order.

        It downloads and prepares the dataset if necessary.

        Args:
            split: one of the dataset's splits, or a slice of one, such as `train[:90%]`.

        Raises:
            InputError: for an unknown split, or if the dataset cannot be prepared.
        """
        self._prepare()
        splits = sorted(self._builder.info.splits)  # a mocked dataset has none and accepts all
        if splits and split.partition("[")[0] not in splits:
            raise MissingTextError(f"{self.name} has no split {split!r}; it has {quoted(splits)}")
        files = self._text_files(split)
        if files:
            rows = _read_rows(files, self._features, self._builder.info.disable_shuffling)
            count = self._builder.info.splits[split].num_examples
            return deterministic(rows.apply(tf.data.experimental.assert_cardinality(count)))
        try:
            rows = self._builder.as_dataset(split=split, shuffle_files=False)
        except (ValueError, NotImplementedError) as error:
            raise InputError(
                f"{self.name} has no split {split!r} ({reason_of(error)}): give one of "
                f"{quoted(splits)}, or a slice that is not empty, such as 'train[:90%]'"
            ) from error
        return deterministic(rows.map(lambda row: _sides(row, self._features)))

    def _text_files(self, split):
        """Returns the files of a split if `_read_rows` can read it, or []."""
        import tensorflow_datasets as tfds  # noqa: PLC0415

        info = self._builder.info
        features = [info.features[feature] for feature in self._features.values()]
        can_read = (
            split in info.splits  # not a slice of one
            and info.file_format == tfds.core.FileFormat.TFRECORD
            and all(type(feature) is tfds.features.Text for feature in features)
        )
        return [os.fspath(path) for path in info.splits[split].filepaths] if can_read else []

    def _prepare(self):
        import tensorflow_datasets as tfds  # noqa: PLC0415

        try:
            self._builder.download_and_prepare()
            if not self._builder.info.splits:  # another corpus has prepared it since
                self._builder = self._make_builder()
        except (OSError, ImportError, tfds.download.DownloadError) as error:
            raise InputError(
                f"{self.name} could not be downloaded and prepared ({error}); where there is a "
                f"network: tfds build {self.name} --data_dir=FOLDER; then give FOLDER as data_dir "
                "(--config.data.tfds_data_dir)"
            ) from error


def _sides(row, features):
    """Returns the texts of a row of a dataset, or of a batch of rows; a missing side is empty."""
    some = row[features["source"]]
    return {"source": tf.zeros_like(some), "target": tf.zeros_like(some)} | {
        side: row[feature] for side, feature in features.items()
    }


def _read_rows(files, features, in_order):
    """Returns what TFDS reads from its TFRecord files, in TFDS's order, ten times as fast.

    TFDS decodes row by row, this function a thousand rows at once. It reads the files of a dataset
    that is in order (`disable_shuffling`) one after another, those of others 16 side by side.
    """
    records = tf.data.Dataset.from_tensor_slices(files).interleave(
        tf.data.TFRecordDataset, cycle_length=1 if in_order else 16, block_length=16
    )
    spec = {feature: tf.io.FixedLenFeature([], tf.string) for feature in features.values()}
    batches = records.batch(_PAIRS_PER_STEP)
    return batches.map(lambda x: _sides(tf.io.parse_example(x, spec), features)).unbatch()


class FolderCorpus:
    """A folder of aligned text files, one sentence on each line, plain or gzipped.

    The names of the files of split `train` begin with `train.` and end in the language, with or
    without `.gz`: `train.en`, `train.de.gz`, `train.lc.norm.tok.en.gz`. `files.split_lines` divides
    them into lines and takes `errors`.

    Raises:
        InputError: if there is no such folder, or both languages are the same.
    """

    def __init__(
        self, folder: StrPath, source_language: str, target_language: str, errors: str = "strict"
    ):
        _require_two_sides(source_language, target_language)
        self.folder = existing_folder(folder, "aligned text")
        self.source_language, self.target_language = source_language, target_language
        self._errors = errors

    def examples(self, split: str) -> tf.data.Dataset:
        """Returns the sentence pairs of a split; errors as of `files` and `aligned_files`."""
        return aligned_files(*self.files(split).values(), self._errors)

    def files(self, split: str) -> dict[str, str]:
        """Returns {"source": path, "target": path}; raises InputError unless each has one file."""
        languages = {"source": self.source_language, "target": self.target_language}
        paths = {side: split_file(self.folder, split, code) for side, code in languages.items()}
        if paths["source"] == paths["target"]:
            raise InputError(
                f"{os.path.basename(paths['source'])!r} of {self.folder} matches both "
                f"{self.source_language} and {self.target_language}: rename it"
            )
        return paths

    def has_text(self, split: str) -> bool:
        """Returns whether there is any file of a split in one of the two languages.

        A file of another form counts, such as `test.en.bz2`, which `examples` refuses.
        """
        both = self.source_language, self.target_language
        split, *languages = (re.escape(nfc(name)) for name in (split, *both))
        form = re.compile(rf"{split}\.(.*\.)?({'|'.join(languages)})(\.\w+)?")
        return any(map(form.fullmatch, nfc_names(self.folder)))


class MemoryCorpus:
    """Sentence pairs held in memory, `{split: pairs}`, in the forms of `texts.as_pairs`.

    Raises:
        InputError: if pairs is not a dict of splits, or an item is not a pair of texts.
    """

    def __init__(
        self, pairs: Mapping, source: str | int | None = None, target: str | int | None = None
    ):
        if not isinstance(pairs, Mapping):
            raise InputError(
                f"pairs is a {type(pairs).__name__}: give a dict of splits, such as "
                '{"train": [("a house", "ein Haus")]}.'
            )
        self._texts = {
            split: as_pairs(rows, f"pairs[{split!r}]", source, target)
            for split, rows in pairs.items()
        }

    def examples(self, split: str) -> tf.data.Dataset:
        """Returns the sentence pairs of a split; raises InputError if it is unknown or empty."""
        if split not in self._texts:
            raise InputError(
                f"there is no split {split!r} in memory; its splits: {quoted(sorted(self._texts))}"
            )
        sources, targets = self._texts[split]
        if not sources:
            raise InputError(f"split {split!r} has no sentence pairs; give at least one")
        texts = {"source": sources, "target": targets}
        return deterministic(tf.data.Dataset.from_tensor_slices(texts))


def aligned_files(source: StrPath, target: StrPath, errors: str = "strict") -> tf.data.Dataset:
    """Returns the sentence pairs of two files, of which line n translates line n, streamed.

    They are plain or gzipped; `files.split_lines` takes `errors`.

    Raises:
        InputError: if a file is missing, broken, empty or not UTF-8 (with the number of the line),
            or the files have different numbers of lines.
    """
    paths = local_path(source), local_path(target)
    if os.path.realpath(paths[0]) == os.path.realpath(paths[1]):
        raise InputError(f"{source} is both source and target: give two files")
    count, others = (count_lines(path, errors) for path in paths)
    if count != others:
        raise InputError(
            f"{source} has {count} lines and {target} has {others}; line n of one must be the "
            "translation of line n of the other"
        )

    def pairs():
        return zip(*(read_lines(path, errors) for path in paths), strict=True)

    return stream_pairs(pairs, count)


def stream_pairs(pairs: Callable[[], Iterable], count: int) -> tf.data.Dataset:
    """Makes a dataset of `count` pairs of text from a Python function.

    It returns an iterable of (source, target), str or bytes, the same ones at each call.
    """

    def steps():
        rest = iter(pairs())
        while step := list(itertools.islice(rest, _PAIRS_PER_STEP)):
            sources, targets = as_pairs(step)
            yield {"source": sources, "target": targets}

    texts = tf.TensorSpec([None], tf.string)
    dataset = tf.data.Dataset.from_generator(
        steps, output_signature={"source": texts, "target": texts}
    )
    return deterministic(dataset.unbatch().apply(tf.data.experimental.assert_cardinality(count)))


def text_digests(examples: tf.data.Dataset) -> dict[str, str]:
    """Returns the SHA-256 of all sources and of all targets in their order, hexadecimal."""
    digests = {"source": hashlib.sha256(), "target": hashlib.sha256()}
    for texts in deterministic(examples.batch(_PAIRS_PER_STEP)).as_numpy_iterator():
        for side, digest in digests.items():
            digest.update(np.array([len(text) for text in texts[side]], "<i8").tobytes())
            digest.update(b"".join(texts[side]))
    return {side: digest.hexdigest() for side, digest in digests.items()}


def encode_pairs(
    pairs: Any,
    tokenizer: Encoder,
    target_tokenizer: Encoder | None = None,
    source: str | int | None = None,
    target: str | int | None = None,
) -> tf.data.Dataset:
    """Encodes pairs of text to the examples that a `Batcher` takes.

    Args:
        pairs: pairs of texts, rows that are dicts, or a table, in the forms of `texts.as_pairs`.
            They stay in memory as ids. Bytes that are not UTF-8 and lone surrogates in a str
            count as U+FFFD. Line breaks at the ends of texts are dropped.
        tokenizer: every source and target gets its end-of-sequence id.
        target_tokenizer: tokenizer of the targets if their vocabulary differs, such as
            `LabelEncoder`; None: `tokenizer.target`.
        source, target: the names of the two columns to read; None: each row is a pair, or a dict
            of "source" and "target".

    Returns:
        `{"source": int32 [n], "target": int32 [m]}`.

    Raises:
        InputError: if there is no pair, an item is not a pair of texts, a column is missing or not
            named, or a target is none of the labels of a `LabelEncoder`.

    Example:
        >>> examples = t2t.encode_pairs([("a house", "ein Haus")], tokenizer)
        >>> int(examples.cardinality())
        1
        >>> rows = [{"en": "a house", "de": "ein Haus"}]
        >>> examples = t2t.encode_pairs(rows, tokenizer, source="en", target="de")
    """
    sources, targets = as_pairs(pairs, "pairs", source, target)
    if not sources:
        raise InputError("there are no pairs: give at least one source with its target")
    if hasattr(target_tokenizer, "check"):  # of labels
        for i, label in enumerate(targets):
            target_tokenizer.check(label.decode("utf-8", "replace"), f"pairs[{i}]")
    examples = {"source": encode_with_eos(sources, tokenizer)}
    examples["target"] = encode_with_eos(targets, target_tokenizer or tokenizer.target)
    return deterministic(tf.data.Dataset.from_tensor_slices(examples))


def _require_two_sides(source, target):
    if source == target:
        raise InputError(
            f"source and target are both {source!r}: give two different languages, such as src "
            "and trg for the files train.src and train.trg."
        )


def count_lines(path: StrPath, errors: str = "strict") -> int:
    """Returns the number of lines of a file; raises InputError if there is none, or no file."""
    if not os.path.isfile(path):
        what = "not a regular" if os.path.exists(path) else "there is no"
        raise InputError(f"{what} file {path!r}; give one with a sentence on each line")
    count = sum(1 for _ in read_lines(path, errors))
    if not count:
        raise InputError(f"{path} is empty; give one with a sentence on each line")
    return count
