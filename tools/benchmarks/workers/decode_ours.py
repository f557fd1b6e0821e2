"""Our search in an exported SavedModel: random weights, every output of one and the same length.

The batch is split into `parts`, each decoded by a thread of its own. An operation then uses
cores / parts threads.
"""

import pathlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import ours
import tensorflow as tf
from common import answer, decoding_figures, median_time, shortlist_table

from pipelines import app
from t2t_keras import export_saved_model
from t2t_keras.tasks.shortlist import Shortlist


def measure(folder, size, dtype, shortlist, batch, beam, source, target, repeats, threads, parts):
    app.limit_threads(parts)
    name = f"{size}_{dtype}_{beam}_{source}_{target}{'_shortlist' * shortlist}"
    export = pathlib.Path(folder) / name
    if not export.exists():
        precision, computed = ("int8", "float32") if dtype == "int8" else ("float32", dtype)
        translator = ours.endless_translator(size, beam, source, target, computed)
        options = {"signatures": ["decode_ids"], "verify": False, "precision": precision}
        if shortlist:
            options["shortlist"] = _shortlist(translator)
        export_saved_model(translator, export, **options)
    loaded = tf.saved_model.load(str(export))
    decode = loaded.signatures["decode_ids"]
    vocab = ours.SIZES[size][-2]
    ids = np.random.default_rng(1).integers(260, vocab, (batch, source))
    ids[:, -1] = 1  # the end
    ids = [tf.constant(part, tf.int32) for part in np.array_split(ids, parts)]

    def run(part):
        return decode(source_ids=part)["target_ids"].numpy()

    with ThreadPoolExecutor(parts) as pool:
        seconds = median_time(lambda: list(pool.map(run, ids)), repeats)
        found = np.concatenate(list(pool.map(run, ids)))
    tokens = int(np.count_nonzero(found[:, 0]))
    assert tokens == batch * target, "an output ended before its time"
    return decoding_figures(seconds, tokens, batch, target)


def _shortlist(translator):
    lists, frequent = shortlist_table(translator.model.config.vocab_size)
    # A list that is shorter than the longest repeats its first target.
    width = max(map(len, lists))
    table = np.array([(found + found[:1] * width)[:width] for found in lists], np.int32)
    return Shortlist(table, np.array(frequent, np.int32), translator.tokenizer.fingerprint())


answer(measure)
