"""One of several workers that train a Transformer together; `test_processes.py` runs it.

python -m tests.models.replicated_worker OUT

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
from tests.models.batches import CONFIG, dataset  # noqa: E402

SIZES = (
    (5, 4),
    (2, 7),
    (3, 5),
    (8, 3),
)  # rows, length: workers get parts of unequal size, down to none


class KeepWeights(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.epochs = []

    def on_epoch_end(self, epoch, logs=None):
        self.epochs.append(np.concatenate([w.numpy().ravel() for w in self.model.weights]))


def main(output):
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.DATA
    batches = dataset(SIZES).with_options(options)
    with STRATEGY.scope():
        keras.utils.set_random_seed(0)
        model = t2t.Transformer(CONFIG)
        model.compile(
            t2t.adam(16, warmup_steps=10),
            t2t.LabelSmoothedCrossEntropy(),
            metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
        )
    keep = KeepWeights()
    history = model.fit(batches.repeat(), epochs=2, steps_per_epoch=4, callbacks=[keep], verbose=0)
    results = model.evaluate(batches, steps=4, return_dict=True, verbose=0)
    losses = history.history["loss"]
    np.savez(output, epochs=keep.epochs, losses=losses, **results)


if __name__ == "__main__":
    main(*sys.argv[1:])
