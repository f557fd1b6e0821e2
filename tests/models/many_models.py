"""Makes one model after another in all ways and prints the memory; test_memory.py runs this."""

import gc
import os
import sys
import tempfile

import keras
import numpy as np
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras import ops
from tests.tasks import tiny
from tests.two_devices import TWO

tf.config.optimizer.set_experimental_options({"disable_meta_optimizer": True})  # for speed

WIDTH = 2**18  # so that the weights of a model, 64 MiB, stand out
IDS = np.random.default_rng(0).integers(4, 30, size=(4, 6))
INPUTS = {"source_ids": IDS, "target_ids": IDS}


def fit(model, optimizer):
    model.compile(optimizer, t2t.LabelSmoothedCrossEntropy())
    model.fit(INPUTS, IDS, verbose=0)


def trained_saved_and_exported():
    with TWO.scope():
        fit(tiny.model(feed_forward_dim=WIDTH), t2t.adam(16))
    model = tiny.model(feed_forward_dim=WIDTH)
    translator = t2t.Translator(model, tiny.tokenizer(), max_extra_tokens=2)
    with tempfile.TemporaryDirectory() as folder:
        translator.save(f"{folder}/bundle")
        t2t.load(f"{folder}/bundle")(["The old man."])
        t2t.export_saved_model(
            translator, f"{folder}/1", signatures=["serving_default"], verify=False
        )
        served = tf.saved_model.load(f"{folder}/1").signatures["serving_default"]
        served(text=tf.constant(["The dog."]))
        model.save(f"{folder}/model.keras")
        fit(keras.models.load_model(f"{folder}/model.keras"), "adam")


def resident_mib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    for _ in range(int(sys.argv[1])):
        with ops.made_for("gpu"):  # one search to export instead of two
            trained_saved_and_exported()
        keras.backend.clear_session()
        gc.collect()
        print(resident_mib(), flush=True)
