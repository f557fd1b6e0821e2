"""A model small enough for tests of training, and batches for it."""

import functools

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.metrics import Perplexity, TokenAccuracy
from t2t_keras.training.optimizers import adam

VOCAB_SIZE = 11


class TinyModel(keras.Model):
    """Embedding, layers in a list with dropout, softmax matrix."""

    def __init__(self, width=8, dropout=0.0, layers=2):
        super().__init__()
        self.embedding = keras.layers.Embedding(VOCAB_SIZE, width)
        self.hidden = [
            keras.Sequential([keras.layers.Dense(width, "relu"), keras.layers.Dropout(dropout)])
            for _ in range(layers)
        ]
        self.output_layer = keras.layers.Dense(VOCAB_SIZE)
        self(tf.ones([1, 1], tf.int32))

    def call(self, ids, training=None):
        x = self.embedding(ids)
        for layer in self.hidden:
            x = layer(x)
        return self.output_layer(x)


def compiled_model(seed=0, optimizer=None, width=8, dropout=0.0, **settings):
    """Returns a `TinyModel`, compiled with the settings of Keras."""
    keras.utils.set_random_seed(seed)
    model = TinyModel(width, dropout)
    settings = {"metrics": [TokenAccuracy(), Perplexity()]} | settings
    settings = {"loss": LabelSmoothedCrossEntropy(0.1)} | settings
    model.compile(optimizer or adam(model_dim=8, warmup_steps=20), **settings)
    return model


eager_model = functools.partial(compiled_model, run_eagerly=True)
"""For a few steps: a graph takes longer to make."""


def fit(model, batch_dataset, steps, callbacks=()):
    """Trains for `steps` steps on a dataset with at least as many batches.

    Where Keras itself runs into the end of the data, it has counted one more step by then.
    """
    model.fit(batch_dataset, epochs=1, steps_per_epoch=steps, verbose=0, callbacks=list(callbacks))
    return model


def batches(count, rows=4, length=6, seed=0):
    """Returns `count` batches (ids, labels, weights) whose rows hold 0 to `length` tokens."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        ids = rng.integers(1, VOCAB_SIZE, [rows, length])
        ids[np.arange(length) >= rng.integers(0, length + 1, [rows, 1])] = 0
        labels = (ids * 3) % VOCAB_SIZE  # 0 stays 0
        yield ids.astype(np.int32), labels.astype(np.int32), (ids > 0).astype(np.float32)


def dataset(count, **kwargs):
    return dataset_of(batches(count, **kwargs))


def dataset_of(some_batches):
    """Returns the `tf.data.Dataset` of batches whose shapes may differ."""
    parts = map(tf.data.Dataset.from_tensors, some_batches)
    return functools.reduce(tf.data.Dataset.concatenate, parts)
