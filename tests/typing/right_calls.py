"""Calls as users write them, with the types of their results; read by a type checker, never run."""

import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import tensorflow as tf
from typing_extensions import assert_type

import t2t_keras as t2t
from t2t_keras import data
from t2t_keras.types import Batch


def lines() -> Iterator[str]:
    yield "a house"


class OwnCorpus:
    def examples(self, split: str) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors({"source": split, "target": split})


# Data: texts in every form, paths of both kinds, corpora and tokenizers of the user's own.
tokenizer = t2t.train_tokenizer("bpe", lines(), vocab_size=300, languages=["de", "en"])
assert_type(tokenizer, data.Tokenizer)
for texts in (["a"], ("a", b"b"), np.array(["a"]), tf.constant(["a"]), iter("ab"), sys.stdin):
    assert_type(tokenizer.encode(texts), tf.RaggedTensor)
tokenizer.encode(tf.data.TextLineDataset("a.txt"))
assert_type(tokenizer.decode([[4, 5], [6]]), tf.Tensor)
tokenizer.decode(np.array([[4, 5]]))
tokenizer.save(pathlib.Path("tokenizer"))
assert_type(t2t.load_tokenizer("tokenizer"), data.Tokenizer)
report = data.write_shards(OwnCorpus(), "train", tokenizer, "tokens", data.Filters(max_length=256))
assert_type(report, data.FilterReport)
labels = data.LabelEncoder(["neg", "pos"])
data.write_shards(data.LabeledFolder("reviews", labels), "train", tokenizer, "tokens", None, 4)
batcher = data.LengthBuckets(4096, bucket_lengths=[(8, 8), 16])
batches = data.training_batches(pathlib.Path("tokens"), "train", batcher, seed=1)
assert_type(data.batches_per_epoch("tokens", "train", data.Packing(4096, 64)), int)
assert_type(data.padding_fraction(batches), data.PaddingFraction)


class OwnBatcher(data.LengthBuckets):
    def make_batch(self, pairs, members) -> Batch:
        inputs, targets, weights = super().make_batch(pairs, members)
        return inputs | {"lengths": tf.shape(targets)}, targets, weights
