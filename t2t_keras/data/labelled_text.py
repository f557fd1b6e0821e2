"""Where labelled text comes from: TFDS, folders, memory; and the labels as ids.

A corpus has `examples(split)` as those of `sources` do: a dataset of `{"source", "target"}` string
scalars, where the source is a text and the target the name of its class.
"""

import os

import tensorflow as tf

from t2t_keras.data.ids import END_ID
from t2t_keras.data.sources import MemoryCorpus, TFDSCorpus
from t2t_keras.data.text_files import open_text
from t2t_keras.errors import InputError


class Labels:
    """The classes of texts by name, and the tokenizer of their names: each one is an id.

    Args:
        names: the classes, a list of str; each one's id is its place.

    Raises:
        InputError: if there are fewer than two, or one comes twice or is empty.
    """

    end_id = END_ID

    def __init__(self, names):
        self.names = list(names)
        if len(self.names) < 2 or len(set(self.names)) < len(self.names) or not all(self.names):
            raise InputError(f"labels are {self.names}: give two or more, all different.")
        table = tf.lookup.KeyValueTensorInitializer(self.names, tf.range(len(self.names)))
        self._table = tf.lookup.StaticHashTable(table, default_value=-1)

    def encode(self, texts):
        """Returns the ids of class names: string [batch] → RaggedTensor int32 [batch, (1)].

        Raises:
            tf.errors.InvalidArgumentError: if one is no class.
        """
        ids = self._table.lookup(tf.convert_to_tensor(texts, tf.string))
        check = tf.debugging.assert_non_negative(ids, f"a label is none of {self.names}")
        with tf.control_dependencies([check] if check is not None else []):
            return tf.RaggedTensor.from_uniform_row_length(tf.identity(ids), 1)

    def check(self, label, place):
        """Raises InputError, naming the place, if a label is no class.

        Args:
            label: str.
            place: str, where it stands.
        """
        if label not in self.names:
            raise InputError(
                f"{place} has the label {label!r}: give one of {', '.join(self.names)}."
            )


class LabelledMemory:
    """Labelled text held in memory.

    Args:
        pairs: `{split: [(text, label), …]}`, of str.
        labels: `Labels`.

    Raises:
        InputError: if a label is no class, naming the split and the place.

    Example:

    >>> LabelledMemory({"train": [("a fine film", "pos")]}, Labels(["neg", "pos"]))
    """

    def __init__(self, pairs, labels):
        for split, rows in pairs.items():
            for place, (_, label) in enumerate(rows, start=1):
                labels.check(label, f"pair {place} of split {split!r}")
        self._corpus = MemoryCorpus(pairs)

    def examples(self, split):
        """The texts of a split and their classes, a dataset of `{"source", "target"}`."""
        return self._corpus.examples(split)


class LabelledFolder:
    """A folder of labelled text, in one of two forms.

    Either split `train` is a file for each class, plain or gzipped, with a text on each line:
    `train.neg`, `train.pos.gz`. Or it is a folder with a folder for each class, with a text in each
    file whose name ends in `.txt`: `train/neg/0_3.txt`. Line breaks in such a file count as spaces.

    Args:
        folder: the folder.
        labels: `Labels`, how the files or folders of the classes are called.

    Raises:
        InputError: if there is no such folder.
    """

    def __init__(self, folder, labels):
        if not os.path.isdir(folder):
            raise InputError(f"there is no folder {folder!r}; give one that holds labelled text")
        self.folder, self._labels = folder, labels

    def examples(self, split):
        """The texts of a split and their classes, class by class.

        Args:
            split: how the files' names begin, or the folder's name.

        Returns:
            A dataset of `{"source", "target"}` string scalars.

        Raises:
            InputError: if a class has no text, or a file cannot be read, or a text is empty or no
                UTF-8, naming its file and line.
        """
        pairs = [
            (text, label) for label in self._labels.names for text in self._texts(split, label)
        ]
        return MemoryCorpus({split: pairs}).examples(split)

    def _texts(self, split, label):
        base = os.path.join(self.folder, split)
        texts = []
        if os.path.isdir(base):
            folder = os.path.join(base, label)
            names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
            for path in (os.path.join(folder, name) for name in names if name.endswith(".txt")):
                texts.append(_text(_read(path).replace(b"\n", b" "), path))
            wanted = f"{folder}{os.sep}*.txt"
        else:
            wanted = f"{base}.{label}"
            for path in (wanted, f"{wanted}.gz"):
                if os.path.isfile(path):
                    texts += text_lines(path)
        if not texts:
            raise InputError(
                f"split {split!r} has no text of the class {label!r}: give {wanted}, or name the "
                "classes that there are"
            )
        return texts


class LabelledTFDS(TFDSCorpus):
    """A labelled dataset of TensorFlow Datasets, by name.

    Args:
        name: as TFDS spells it, such as `imdb_reviews`.
        labels: `Labels`, the names of the dataset's own classes, in any order.
        text: the feature that holds a text.
        label: the feature that holds its class.
        data_dir: where TFDS keeps its files; None for its own default.

    Raises:
        InputError: for an unknown dataset or feature, or other classes than the dataset's.
    """

    def __init__(self, name, labels, text="text", label="label", data_dir=None):
        super().__init__(name, text, label, data_dir=data_dir)
        self._names = getattr(self._builder.info.features[label], "names", None) or []
        if sorted(self._names) != sorted(labels.names):
            raise InputError(
                f"{name} has the classes {', '.join(self._names) or 'none'} in {label!r}, not "
                f"{', '.join(labels.names)}: name these"
            )

    def examples(self, split):
        """The texts of a split and their classes.

        Args:
            split: one of the dataset's splits, or a slice of one, such as `train[:90%]`.

        Returns:
            A dataset of `{"source", "target"}` string scalars.

        Raises:
            InputError: for an unknown split, or one whose texts have no labels.
        """
        examples = super().examples(split)
        lowest = examples.reduce(
            tf.constant(0, tf.int64), lambda least, pair: tf.minimum(least, pair["target"])
        )
        if lowest < 0:
            raise InputError(
                f"split {split!r} of {self.name} holds texts without a label: take another"
            )
        names = tf.constant(self._names)
        return examples.map(
            lambda pair: {"source": pair["source"], "target": tf.gather(names, pair["target"])}
        )


def text_lines(path):
    """Returns the texts of a file, one on each line, gzipped if its name ends in `.gz`.

    Returns:
        List of str.

    Raises:
        InputError: if the file cannot be read, or a line is empty or no UTF-8, naming it.
    """
    lines = _read(path).removesuffix(b"\n").split(b"\n")
    return [_text(line, f"{path} line {number}") for number, line in enumerate(lines, start=1)]


def _read(path):
    with open_text(path) as file:
        return file.read()


def _text(line, place):
    try:
        text = line.decode().strip()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{place} is not valid UTF-8 ({error.reason}): mend or delete it"
        ) from error
    if not text:
        raise InputError(f"{place} is empty: delete it, or give it a text")
    return text
