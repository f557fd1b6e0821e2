"""A text file translated to a text file by an exported SavedModel, TensorFlow's ops alone."""

import time

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops
from common import answer

from pipelines import app
from t2t_keras.tasks.text_io import map_by_length


def measure(model, input, output, batch, threads, parts):
    app.limit_threads(parts)
    signature = tf.saved_model.load(model).signatures["serving_default"]

    def translate(lines):
        found = signature(text=tf.constant(lines))["translation"]
        return [text.decode() for text in found.numpy()]

    translate(["."])  # the graph's optimization, once for each process
    start = time.perf_counter()
    with open(input, encoding="utf-8") as source, open(output, "w", encoding="utf-8") as target:
        lines = [line.rstrip("\n") for line in source]
        for line in map_by_length(translate, lines, batch, num_parallel_batches=parts):
            print(line, file=target)
    return {"sentences/s": len(lines) / (time.perf_counter() - start)}


answer(measure)
