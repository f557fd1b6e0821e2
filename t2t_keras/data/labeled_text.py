"""Labeled text for classification: corpora, the labels as ids, and batches.

In a corpus, the source is a text and the target the name of its class. `LabelEncoder` replaces the
target tokenizer, and `LabeledBuckets` makes the batches.
"""

import hashlib
import itertools
import os
import re
from collections.abc import Sequence

import tensorflow as tf
import tensorflow_text as tf_text
from absl import logging

from t2t_keras.data.base_tokenizer import EOS_ID, is_blank, lookup_table
from t2t_keras.data.batching import LengthBuckets
from t2t_keras.data.corpora import MemoryCorpus, TFDSCorpus
from t2t_keras.data.files import (
    existing_folder,
    nfc,
    nfc_names,
    read_text,
    stored_path,
    visible_names,
)
from t2t_keras.data.shards import RaggedPairs
from t2t_keras.data.texts import as_batch, as_strings
from t2t_keras.errors import InputError, MissingTextError, require_whole_number
from t2t_keras.graphs import after
from t2t_keras.types import Array, Batch, StrPath, Texts

_SHOWN = 5  # files in a warning
_TEXT_FILE = re.compile(r"\.txt(\.(gz|bz2|xz|zst|zip))?$")  # all but gz are refused when read


class LabelEncoder:
    """Converts class names to ids, their indices in `names`; used as the tokenizer of the targets.

    Raises:
        InputError: if there are fewer than two names, or a name is repeated or empty.
    """

    eos_id = EOS_ID

    def __init__(self, names: Texts):
        self.names = as_strings(names, "labels")
        self._forms = list(map(nfc, self.names))
        if len(self.names) < 2 or len(set(self._forms)) < len(self.names) or not all(self.names):
            raise InputError(
                f"labels are {self.names}: give two or more names, all different and none empty."
            )
        self._table = lookup_table(self._forms, tf.range(len(self.names)), -1)

    def encode(self, texts: Array) -> tf.RaggedTensor:
        """Returns the ids of class names, string `[batch]`: int32 `[batch, (1)]`.

        Raises:
            tf.errors.InvalidArgumentError: if a name is not the name of a class.
        """
        names = tf_text.normalize_utf8(as_batch(texts, "labels"), "NFC")
        ids = self._table.lookup(names)
        check = tf.debugging.assert_non_negative(ids, f"a label is not one of {self.names}")
        return tf.RaggedTensor.from_uniform_row_length(after([check], ids), 1)

    def fingerprint(self) -> str:
        """Returns a str that differs between encoders with different classes."""
        return hashlib.sha256(repr(self.names).encode()).hexdigest()

    def check(self, label: str, place: str) -> None:
        """Raises InputError, naming the place, if a label is not the name of a class."""
        if nfc(label) not in self._forms:
            raise InputError(
                f"{place} has the label {label!r}: give one of {', '.join(self.names)}."
            )


class LabeledFolder:
    """A folder of labeled text, in one of two forms.

    In the first form split `train` consists of one file for each class, plain or gzipped, with a
    text on each line: `train.neg`, `train.pos.gz`. In the second it is a folder that contains one
    folder for each class, with a text in each `.txt` or `.txt.gz` file: `train/neg/0_3.txt`. There
    line breaks count as spaces. A warning names other files of the split, which are not read.

    Args:
        labels: the endings of the files, or the folders' names.
        errors: as for `files.split_lines`.

    Raises:
        InputError: if there is no such folder.
    """

    def __init__(self, folder: StrPath, labels: LabelEncoder | Texts, errors: str = "strict"):
        self.folder, self._errors = existing_folder(folder, "labeled text"), errors
        self._labels = labels if isinstance(labels, LabelEncoder) else LabelEncoder(labels)

    def examples(self, split: str) -> tf.data.Dataset:
        """Returns the texts of a split and their classes, class by class.

        Raises:
            InputError: if a class has no text or several files, there is a folder of another
                class, a file cannot be read, or a text is empty or not UTF-8, naming its file and
                line.
        """
        self._check_all_are_named(split)
        pairs = [
            (text, label) for label in self._labels.names for text in self._texts(split, label)
        ]
        return MemoryCorpus({split: pairs}).examples(split)

    def _check_all_are_named(self, split):
        """Warns of files of a split that are not read; raises InputError for a class's folder."""
        start, known = f"{nfc(split)}.", [nfc(name) for name in self._labels.names]
        unread = [
            name
            for name in nfc_names(self.folder)
            if name.startswith(start) and name[len(start) :].removesuffix(".gz") not in known
        ]
        base = stored_path(os.path.join(self.folder, split))
        for name in visible_names(base) if os.path.isdir(base) else ():
            path = os.path.join(base, name)
            names = visible_names(path) if os.path.isdir(path) else []
            if names and nfc(name) not in known:
                raise InputError(
                    f"{path} is the folder of a class that is not one of "
                    f"{', '.join(self._labels.names)}: name it too (data.labels), or move it."
                )
            if not os.path.isdir(path):
                unread.append(os.path.join(split, name))
            odd = [other for other in names if not _TEXT_FILE.search(other)]
            unread += [os.path.join(split, name, other) for other in odd]
        if unread:
            logging.warning(
                "%s: %d files of split %r are of no class that is named, or do not end in .txt, "
                "and are not read: %s",
                self.folder,
                len(unread),
                split,
                ", ".join(unread[:_SHOWN]) + (", …" if len(unread) > _SHOWN else ""),
            )

    def has_text(self, split: str) -> bool:
        """Returns whether there is a folder of a split, or a file of one of its classes."""
        files = tuple(nfc(f"{split}.{label}") for label in self._labels.names)
        names = nfc_names(self.folder)
        return nfc(split) in names or any(name.startswith(files) for name in names)

    def _texts(self, split, label):
        base = stored_path(os.path.join(self.folder, split))
        texts, wanted = [], f"{base}.{label}"
        places = map(stored_path, (wanted, f"{wanted}.gz"))
        places = [path for path in places if os.path.isfile(path)]
        places += [base] * os.path.isdir(base)
        if len(places) > 1:
            raise InputError(
                f"split {split!r} has texts of the class {label!r} in {' and in '.join(places)}: "
                "keep one of them"
            )
        if places == [base]:
            folder = stored_path(os.path.join(base, label))
            wanted = os.path.join(folder, "*.txt")
            names = visible_names(folder) if os.path.isdir(folder) else []
            names = [name for name in names if _TEXT_FILE.search(name)]
            for path in (os.path.join(folder, name) for name in names):
                if os.path.basename(f"{path}.gz") in names:
                    raise InputError(f"{path} and {path}.gz are both there: keep one of them")
                texts.append(" ".join(read_text(path, self._errors)).strip())
                _require_texts(texts[-1:], [path])
        elif places:
            texts = text_lines(*places, self._errors)
        if not texts:
            raise MissingTextError(
                f"split {split!r} has no text of the class {label!r}: give {wanted}, or name the "
                "existing classes"
            )
        return texts


class LabeledTFDS(TFDSCorpus):
    """A labeled dataset of TensorFlow Datasets, such as `imdb_reviews`.

    Args:
        labels: `LabelEncoder` of the names of the dataset's own classes, in any order.
        text, label: the features that hold a text and its class.

    Raises:
        InputError: as `TFDSCorpus`, or for other classes than the dataset's.
    """

    def __init__(
        self,
        name: str,
        labels: LabelEncoder,
        text: str = "text",
        label: str = "label",
        data_dir: StrPath | None = None,
    ):
        super().__init__(name, text, label, data_dir)
        self._names = getattr(self._builder.info.features[label], "names", None) or []
        if sorted(self._names) != sorted(labels.names):
            raise InputError(
                f"{name} has the classes {', '.join(self._names) or 'none'} in {label!r}, not "
                f"{', '.join(labels.names)}: give the names of its classes"
            )

    def examples(self, split: str) -> tf.data.Dataset:
        """Returns the texts of a split and their classes; raises InputError if some have none."""
        examples = super().examples(split)
        lowest = examples.reduce(
            tf.constant(0, tf.int64), lambda least, pair: tf.minimum(least, pair["target"])
        )
        if lowest < 0:
            raise InputError(
                f"split {split!r} of {self.name} holds texts without a label: choose another"
            )
        names = tf.constant(self._names)
        return examples.map(
            lambda pair: {"source": pair["source"], "target": tf.gather(names, pair["target"])}
        )


class LabeledBuckets(LengthBuckets):
    """Batches of texts of similar length, each with the id of its class.

    `write_shards` or `encode_pairs` make its examples, with a `LabelEncoder` as the target
    tokenizer: a source is a text's ids and the end-of-sequence id, a target begins with the id of
    the class.

    Args:
        max_length: maximum tokens of a text, end of sequence included; longer texts are truncated
            and keep their end of sequence.
        tokens_per_batch, batch_multiple, bucket_lengths: as for `LengthBuckets`.

    Raises:
        InputError: if max_length is below 2 or above the last of bucket_lengths, or another number
            is below 1.
    """

    padded_sides = ("source",)  # a class may be 0

    def __init__(
        self,
        tokens_per_batch: int,
        max_length: int,
        batch_multiple: int = 1,
        bucket_lengths: Sequence[int | tuple[int, int]] | None = None,
    ):
        super().__init__(tokens_per_batch, batch_multiple, bucket_lengths)
        self.max_length = require_whole_number("max_length", max_length, least=2)  # with the end
        self.check_length(max_length)
        self.max_lengths = None  # texts are truncated

    def assign_batches(self, lengths: tf.Tensor, seed: tf.Tensor | None) -> tf.RaggedTensor:
        return super().assign_batches(tf.minimum(lengths, self.max_length), seed)

    def make_batch(self, pairs: RaggedPairs, members: tf.Tensor) -> Batch:
        """Makes `({"source_ids"}, labels, weights)`.

        They are int32 `[batch, length]`, int32 `[batch]` and float32 `[batch]`, 0 in rows of
        padding, else 1.
        """
        texts = tf.gather(pairs.source, members)
        ends = texts[:, -1:]
        [ids] = self.shapes.pad(tf.concat([texts[:, :-1][:, : self.max_length - 1], ends], axis=1))
        labels = tf.gather(pairs.target, members)[:, :1].values
        padding = [[0, tf.shape(ids)[0] - tf.size(labels)]]  # rows that fill up a bucket
        weights = tf.pad(tf.ones_like(labels, tf.float32), padding)
        return {"source_ids": ids}, tf.pad(labels, padding), weights


def text_lines(path: StrPath, errors: str = "strict") -> list[str]:
    """Returns the texts of a file, one on each line; raises InputError for a blank line."""
    texts = [line.strip() for line in read_text(path, errors)] or [""]
    _require_texts(texts, [f"{path} line {number}" for number in range(1, len(texts) + 1)])
    return texts


def _require_texts(texts, places):
    for place in itertools.compress(places, is_blank(texts).numpy()):
        raise InputError(f"{place} is empty: delete it, or give it a text")
