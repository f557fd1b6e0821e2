"""One of several workers that train a Transformer together; `test_processes.py` runs it.

python -m tests.models.replicated_worker OUT KIND

TF_CONFIG says which worker it is; without it, it is the only one. It writes the weights at the end
of each epoch and the results of `evaluate` to OUT.
"""

import sys

from t2t_keras.training.distribution import default_strategy

STRATEGY = default_strategy()

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import t2t_keras as t2t  # noqa: E402

CONFIG = t2t.TransformerConfig(
    40, 1, 1, model_dim=16, feed_forward_dim=24, num_heads=2, dropout=0.0
)
SIZES = (
    (5, 4),
    (2, 7),
    (3, 5),
    (8, 3),
)  # rows, length: workers get parts of unequal size, down to none


class WithoutRepair(t2t.Transformer):
    """A model whose step returns scalars, as that of Keras does."""

    train_step = keras.Model.train_step


def batches():
    rng = np.random.default_rng(0)
    for rows, length in SIZES:
        source, labels = rng.integers(4, 40, (2, rows, length))
        labels[1:, 2:] = 0
        target = np.pad(labels, [[0, 0], [1, 0]], constant_values=3)[:, :-1]
        yield {"source_ids": source, "target_ids": target}, labels, np.sign(labels)


def dataset():
    ids = tf.TensorSpec([None, None], tf.int32)
    weights = tf.TensorSpec([None, None], tf.float32)
    signature = ({"source_ids": ids, "target_ids": ids}, ids, weights)
    data = tf.data.Dataset.from_generator(batches, output_signature=signature)
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    return data.with_options(options)


class KeepWeights(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.epochs = []

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(np.concatenate([w.numpy().ravel() for w in self.model.weights]))


def main(output, kind):
    with STRATEGY.scope():
        keras.utils.set_random_seed(0)
        model = {"repaired": t2t.Transformer, "plain": WithoutRepair}[kind](CONFIG)
        model.compile(
            t2t.adam(16, warmup_steps=10),
            t2t.LabelSmoothedCrossEntropy(),
            metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
        )
    keep = KeepWeights()
    history = model.fit(
        dataset().repeat(), epochs=2, steps_per_epoch=4, callbacks=[keep], verbose=0
    )
    results = model.evaluate(dataset(), steps=4, return_dict=True, verbose=0)
    losses = history.history["loss"]
    np.savez(output, epochs=keep.epochs, losses=losses, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
