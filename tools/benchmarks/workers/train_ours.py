"""Our training step on a full batch, through `model.fit`, as in the README's example."""

import statistics
import time

import keras
import numpy as np
import ours
import tensorflow as tf
from common import SIZES, TRAINING_LENGTH, answer

from pipelines import app
from t2t_keras import LabelSmoothedCrossEntropy, Transformer, adam
from t2t_keras.analysis.counts import count_training_flops


class Clock(keras.callbacks.Callback):
    """The time at the end of each step, when its update is done."""

    def __init__(self):
        super().__init__()
        self.times = []

    def on_train_batch_end(self, batch, logs=None):
        tf.reshape(self.model.trainable_variables[0].value, [-1])[0].numpy()  # waits for a GPU
        self.times.append(time.perf_counter())


def measure(size, dtype, repeats, threads, parts, xla=False):
    app.limit_threads(parts)
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else "float32")
    config, batch = ours.config(size), SIZES[size][-1]
    model = Transformer(config)
    model.micro_batches = model.parallel_micro_batches = parts
    loss = LabelSmoothedCrossEntropy(0.1)
    model.compile(optimizer=adam(config.model_dim), loss=loss, jit_compile=xla)
    rng = np.random.default_rng(0)
    shape = batch, TRAINING_LENGTH
    ids = [rng.integers(1, config.vocab_size, shape).astype("int32") for _ in range(3)]
    inputs = {"source_ids": ids[0], "target_ids": ids[1]}
    step = tf.data.Dataset.from_tensors((inputs, ids[2], np.ones(shape, "float32")))
    clock = Clock()
    model.fit(step.repeat(), steps_per_epoch=repeats + 2, callbacks=[clock], verbose=0)
    seconds = statistics.median(np.diff(clock.times)[1:])
    flops = count_training_flops(config, batch, TRAINING_LENGTH, TRAINING_LENGTH)
    return {
        "target tokens/s": batch * TRAINING_LENGTH / seconds,
        "GFLOP/s": flops / seconds / 1e9,
    }


answer(measure)
