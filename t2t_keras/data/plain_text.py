"""Plain text for language models: corpora of single texts, and their batches.

In a corpus, the source is a text and the target is empty. `NoTarget` replaces the target tokenizer
and `TextFilters` the filters, so that token shards hold texts.

`TextBuckets` and `TextPacking` make a row, or a part of a row, of each text. `TextStream` joins the
texts of a shard, each with its end-of-sequence id, and cuts them into rows of one length.
"""

import tensorflow as tf

from t2t_keras.data.base_tokenizer import BOS_ID, EOS_ID, PAD_ID, encode_with_eos
from t2t_keras.data.batching import FixedRows, LengthBuckets, Packing, decoder_batch
from t2t_keras.data.corpora import TFDSCorpus, count_lines, stream_pairs
from t2t_keras.data.files import existing_folder, read_lines, split_file, split_names
from t2t_keras.data.shard_writing import Filters
from t2t_keras.data.shards import RaggedPairs
from t2t_keras.data.texts import as_list
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.graphs import deterministic
from t2t_keras.types import Batch, Encoder, StrPath, Texts

_TABLES = (".csv", ".tsv", ".json", ".jsonl", ".ndjson")


class TextFolder:
    """A folder of plain text: one file for each split, a text on each line, plain or gzipped.

    Args:
        language: ending of the files, such as `de` for `train.de`, `train.lc.de.gz`; empty: each
            split has only one file, such as `train.txt`.
        errors: as for `files.split_lines`.

    Raises:
        InputError: if there is no such folder.
    """

    def __init__(self, folder: StrPath, language: str = "", errors: str = "strict"):
        self.folder = existing_folder(folder, "text")
        self.language, self._errors = language, errors

    def examples(self, split: str) -> tf.data.Dataset:
        """Returns the texts of a split in order; raises InputError unless one file has them."""
        advice = "" if self.language else "; name one by its language"
        path, errors = split_file(self.folder, split, self.language, advice), self._errors
        if path.removesuffix(".gz").endswith(_TABLES):
            raise InputError(f"{path} is a table: give its texts in a file, one on each line.")
        count = count_lines(path, errors)
        return stream_pairs(lambda: ((line, b"") for line in read_lines(path, errors)), count)

    def has_text(self, split: str) -> bool:
        """Returns whether there is a file of a split."""
        return bool(split_names(self.folder, split, self.language))


class TextTFDS(TFDSCorpus):
    """The texts of a dataset of TensorFlow Datasets, such as `lm1b`; errors as of `TFDSCorpus`."""

    def __init__(self, name: str, text: str = "text", data_dir: StrPath | None = None):
        self._open(name, {"source": text}, data_dir)


class NoTarget:
    """Stands for the target tokenizer of texts without a target: it encodes to no id."""

    eos_id, adds_eos = EOS_ID, False

    def encode(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Returns int32 [batch, (0)] for texts string [batch]."""
        splits = tf.zeros([tf.size(texts) + 1], tf.int64)
        return tf.RaggedTensor.from_row_splits(tf.zeros([0], tf.int32), splits, validate=False)

    def fingerprint(self) -> str:
        """Returns a str that no tokenizer has."""
        return "no target"


class TextFilters(Filters):
    """The limits of `Filters` for texts without a target."""

    def reject_reasons(self, source_texts, target_texts, source_ids, target_ids) -> tf.Tensor:
        """See `Filters.reject_reasons`."""
        return super().reject_reasons(source_texts, source_texts, source_ids, source_ids)


def encode_texts(texts: Texts, tokenizer: Encoder) -> tf.data.Dataset:
    """Encodes texts to the examples that `TextBuckets`, `TextPacking` and `TextStream` take.

    Args:
        texts: in the forms of `texts.as_list`; all of them stay in memory as ids. Line breaks at
            the ends of texts are dropped.
        tokenizer: every text gets its end-of-sequence id.

    Returns:
        `{"source": int32 [n], "target": int32 [0]}`.

    Raises:
        InputError: if there is no text, or an item is not a text.

    Example:
        >>> examples = t2t.encode_texts(["a house", "a dog sees me"], tokenizer)
        >>> inputs, labels, weights = next(iter(t2t.TextBuckets(4096)(examples)))
        >>> labels.shape[0], inputs["target_ids"].shape == labels.shape
        (2, True)
    """
    texts = as_list(texts)
    if not texts:
        raise InputError("there are no texts: give at least one")
    examples = {
        "source": encode_with_eos(texts, tokenizer),
        "target": tf.zeros([len(texts), 0], tf.int32),  # of static length
    }
    return deterministic(tf.data.Dataset.from_tensor_slices(examples))


class TextBuckets(LengthBuckets):
    """Length bucketing of texts, each a row of its own; arguments as for `LengthBuckets`.

    Example:
        >>> examples = t2t.encode_texts(["a house", "a dog sees me"], tokenizer)
        >>> inputs, labels, weights = next(iter(t2t.TextBuckets(4096)(examples)))
        >>> list(inputs), labels.shape == weights.shape
        (['target_ids'], True)
    """

    has_targets = False

    def make_batch(self, pairs: RaggedPairs, members: tf.Tensor) -> Batch:
        """Makes one batch without `source_ids`; see `Batcher.make_batch`."""
        return decoder_batch(*self.shapes.pad(tf.gather(pairs.source, members)))


class TextPacking(Packing):
    """Packing of texts: rows that hold several whole texts; arguments as for `Packing`.

    Example:
        >>> examples = t2t.encode_texts(["a house", "a dog sees me"], tokenizer)
        >>> inputs, labels, weights = next(iter(t2t.TextPacking(64, row_length=64)(examples)))
        >>> sorted(inputs), max(inputs["target_segments"][0].numpy()).item()
        (['target_ids', 'target_positions', 'target_segments'], 2)
    """

    has_targets = False

    def make_batch(self, pairs: RaggedPairs, members: tf.RaggedTensor) -> Batch:
        """Makes one batch, with the target's inputs of `Packing` alone."""
        return self.packed_batch(pairs.source, members)


class TextStream(FixedRows):
    """Rows of one length, cut from the texts of a shard as one stream.

    Each text ends with the end-of-sequence id, and the next one begins behind it, in the same row
    if there is room. Only the last row of a shard is padded. The input of the first token of a text
    is the begin-of-sequence id, and of each other token the token before it, also where that one is
    in the row before.

    Args:
        tokens_per_batch, row_length, batch_multiple: as for `Packing`.
        across_texts: whether attention sees the texts before in the same row. If not, the inputs
            have `target_segments` and `target_positions`, as those of `Packing`.
        stride: tokens from the begin of a row to the next, up to row_length; None: row_length. If
            it is less, rows overlap: each token has weight 1 in the first row that has it, with at
            least row_length - stride tokens of context, except in the first row of a shard.

    Raises:
        InputError: if row_length is not from 1 to tokens_per_batch, or stride not from 1 to
            row_length.

    Example:
        >>> examples = t2t.encode_texts(["a house", "a dog sees me"], tokenizer)
        >>> inputs, labels, weights = next(iter(t2t.TextStream(64, row_length=8)(examples)))
        >>> list(inputs), labels.shape[1]
        (['target_ids'], 8)
    """

    has_targets = False

    def __init__(
        self,
        tokens_per_batch: int,
        row_length: int,
        batch_multiple: int = 1,
        across_texts: bool = True,
        stride: int | None = None,
    ):
        super().__init__(tokens_per_batch, row_length, batch_multiple)
        stride = require_whole_number("stride", row_length if stride is None else stride, least=0)
        if not 1 <= stride <= row_length:
            raise InputError(f"stride is {stride}: give 1 to {row_length}, the tokens of a row.")
        self.across_texts, self.stride = across_texts, stride

    def assign_batches(self, lengths: tf.Tensor, seed: tf.Tensor | None) -> tf.RaggedTensor:
        total = tf.reduce_sum(tf.cast(lengths[:, 0], tf.int64))
        shared = self.row_length - self.stride  # tokens of a row and the next
        rows = tf.range(tf.maximum(-((shared - total) // self.stride), tf.minimum(total, 1)))
        if seed is not None:
            rows = tf.random.experimental.stateless_shuffle(rows, seed, alg="philox")
        return self._batches_of(rows)

    def make_batch(self, pairs: RaggedPairs, members: tf.Tensor) -> Batch:
        """Makes one batch of the rows `members` of the stream, int64 [rows].

        Returns:
            `(inputs, labels, weights)`, each `[batch, row_length]`; the last batch of a shard is
            filled up with rows of padding.
        """
        ids, splits = pairs.source_values, pairs.source_splits
        total = splits[-1]
        rows = tf.pad(members, [[0, self._rows - tf.size(members)]], constant_values=-1)
        starts = tf.where(rows < 0, total, rows * self.stride)[:, tf.newaxis]  # [batch, 1]
        places = starts + tf.range(self.row_length, dtype=tf.int64)  # in the stream
        is_token = places < total
        places = tf.minimum(places, total - 1)  # [batch, row_length]
        text = tf.searchsorted(
            splits, tf.reshape(places, [-1]), side="right", out_type=tf.int64
        )  # from 1
        text = tf.reshape(text, tf.shape(places))
        first = tf.gather(splits, text - 1)  # place of the text's first token
        labels = tf.where(is_token, tf.gather(ids, places), PAD_ID)
        before = tf.gather(ids, tf.maximum(places - 1, 0))
        before = tf.where(places == first, BOS_ID, before)
        shape = [self._rows, self.row_length]
        inputs = {"target_ids": tf.where(is_token, before, PAD_ID)}
        if not self.across_texts:
            inputs["target_segments"] = tf.where(is_token, text - text[:, :1] + 1, 0)
            inputs["target_positions"] = tf.where(is_token, places - tf.maximum(first, starts), 0)
        inputs = {
            name: tf.ensure_shape(tf.cast(value, tf.int32), shape) for name, value in inputs.items()
        }
        labels = tf.ensure_shape(labels, shape)
        old = tf.where(starts > 0, tf.constant(self.row_length - self.stride, tf.int64), 0)
        is_new = tf.range(self.row_length, dtype=tf.int64) >= old
        return inputs, labels, tf.cast((labels != PAD_ID) & is_new, tf.float32)
