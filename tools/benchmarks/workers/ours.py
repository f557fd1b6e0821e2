"""Our side of the benchmarks: a function for each measurement, which returns its figures.

python tools/benchmarks/workers/ours.py FUNCTION SETTINGS, the settings as JSON
"""

import contextlib
import math
import os
import pathlib
import resource
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import common
import keras
import numpy as np
import psutil
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops

import t2t_keras as t2t
from pipelines import devices, experiment
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.analysis.counts import count_training_flops
from t2t_keras.data import FolderCorpus, training_batches, write_shards
from t2t_keras.data.streams import batches_per_epoch, padding_fraction
from t2t_keras.data.word_piece import WordPieceTokenizer
from t2t_keras.tasks import search as predictor_search
from t2t_keras.tasks.shortlist import Shortlist
from t2t_keras.tasks.text_io import map_by_length
from t2t_keras.training.callbacks import ProgressLogger, StopOnDivergence
from t2t_keras.training.checkpoints import CheckpointManager
from t2t_keras.training.metrics_log import MetricsLog


def model_config(size):
    """Returns the `TransformerConfig` of a size."""
    layers, dim, inner, heads, vocab, _ = common.SIZES[size]
    sizes = {"model_dim": dim, "feed_forward_dim": inner, "num_heads": heads}
    return t2t.TransformerConfig(vocab, layers, layers, **sizes)


def endless_translator(size, beam_size, source_length, target_length, dtype="float32"):
    """Returns a `Translator` of random weights that always takes `target_length` tokens.

    The vectors of the end and of padding are 0, and so are their logits: never among the best.
    """
    model = t2t.Transformer(model_config(size), dtype=dtype)
    matrix = model.embedding.matrix
    tokenizer = _words(matrix.shape[0])
    values = matrix.numpy()
    values[[tokenizer.pad_id, tokenizer.eos_id]] = 0
    matrix.assign(values)
    max_extra_tokens = target_length - source_length
    return t2t.Translator(model, tokenizer, beam_size, max_extra_tokens=max_extra_tokens)


def _words(vocab_size):
    special = ["<pad>", "</s>", "<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = [*special, *(f"▁w{i}" for i in range(vocab_size - len(special)))]
    return WordPieceTokenizer("wordpiece", "\n".join(pieces).encode())


def product(dtype, rows, repeats, threads, lock=None):
    """The matmul rate of the machine: a product of two square matrices, by TensorFlow."""
    factors = [tf.cast(tf.random.stateless_normal([rows, rows], [0, i]), dtype) for i in (0, 1)]
    product = tf.function(lambda a, b: tf.reduce_sum(tf.matmul(a, b)))
    seconds = common.median_time(lambda: product(*factors).numpy(), repeats, warm_up=2, lock=lock)
    return {"GFLOP/s": 2 * rows**3 / seconds / 1e9}


class Clock(keras.callbacks.Callback):
    """The times at the end of the steps after some unmeasured ones, as in `common.median_time`.

    On a GPU steps follow one another without waiting: only the first and the last time are those
    of a step that is done.
    """

    def __init__(self, warm_up, lock=None):
        super().__init__()
        self.warm_up, self.lock = warm_up, lock
        self.times, self.measurement = [], contextlib.ExitStack()

    def on_train_batch_end(self, batch, logs=None):
        if batch + 1 == self.warm_up:
            self._wait()
            self.measurement.enter_context(common.alone(self.lock))
        if batch + 1 >= self.warm_up:
            self.times.append(time.perf_counter())

    def on_train_end(self, logs=None):
        if _has_gpu():
            self._wait()
            self.times[-1] = time.perf_counter()
        self.measurement.close()

    def _wait(self):
        tf.reshape(self.model.trainable_variables[0].value, [-1])[0].numpy()

    def seconds(self):
        """Returns the seconds of a step: the median, or on a GPU the mean."""
        of_steps = np.diff(self.times)
        return float(np.mean(of_steps) if _has_gpu() else np.median(of_steps))


def _has_gpu():
    return bool(tf.config.list_physical_devices("GPU"))


def train(size, dtype, repeats, threads, parts, xla="auto", lock=None):
    """Our training step on a full batch, through `model.fit`, as in the README's example."""
    devices.limit_threads(parts)
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else "float32")
    config, batch = model_config(size), common.SIZES[size][-1]
    model = t2t.Transformer(config)
    model.micro_batches = model.parallel_micro_batches = parts
    loss = t2t.LabelSmoothedCrossEntropy(0.1)
    model.compile(optimizer=t2t.adam(config.model_dim), loss=loss, jit_compile=xla)
    batches = _full_batch(config.vocab_size, (batch, common.TRAINING_LENGTH))
    clock = Clock(warm_up=2, lock=lock)
    model.fit(batches, steps_per_epoch=repeats + 2, callbacks=[clock], verbose=0)
    seconds = clock.seconds()
    flops = count_training_flops(config, batch, common.TRAINING_LENGTH, common.TRAINING_LENGTH)
    figures = {"target tokens/s": batch * common.TRAINING_LENGTH / seconds}
    if _has_gpu():
        figures["peak MiB"] = tf.config.experimental.get_memory_info("GPU:0")["peak"] / 2**20
    return figures | {"GFLOP/s": flops / seconds / 1e9}


def epoch(workdir, warm_up, steps, bare, threads):
    """Real batches through `model.fit` as `pipelines.train` does it, or the bare step beside it."""
    config = Workdir(workdir).load_config()
    devices.limit_threads(config.train.parallel_micro_batches)
    experiment.set_numerics(config)
    task = make_task(config)
    model = task.make_model()
    experiment.compile_model(task, model)
    split = Workdir(workdir).tokens, config.data.train_split, task.make_batcher(replicas=1)
    batches = training_batches(*split, seed=1)
    if warm_up is None:
        warm_up = batches_per_epoch(*split)
    real = batches.skip(warm_up).take(steps)
    weights = [weights.numpy() for _, _, weights in real]
    tokens = sum(np.count_nonzero(w) for w in weights)
    clock = Clock(warm_up)
    with tempfile.TemporaryDirectory() as folder:
        callbacks = [clock]
        if bare:  # of the mean size and length of real batches
            length = round(tokens / steps / np.mean([len(w) for w in weights]))
            shape = round(tokens / steps / length), length
            batches, tokens = _full_batch(model.config.vocab_size, shape), steps * math.prod(shape)
            optimizer = experiment.make_optimizer(config.train, model.config)
            model.compile(optimizer, model.loss)
        else:
            checkpoints = CheckpointManager(folder, model, 1)
            callbacks += [
                StopOnDivergence(checkpoints, config.train.stop_above_grad_norm),
                ProgressLogger(config.train.log_every, steps, MetricsLog(folder)),
            ]
        model.fit(
            batches, steps_per_epoch=warm_up + steps, callbacks=callbacks, shuffle=False, verbose=0
        )
    padding = max(padding_fraction(real))
    return {
        "target tokens/s": tokens / (clock.times[-1] - clock.times[0]),
        "padding": 0.0 if bare else padding,
    }


def _full_batch(vocab_size, shape):
    """Returns one batch [rows, length] without padding forever."""
    rng = np.random.default_rng(0)
    ids = [rng.integers(4, vocab_size, shape).astype("int32") for _ in range(3)]
    inputs = {"source_ids": ids[0], "target_ids": ids[1]}
    return tf.data.Dataset.from_tensors((inputs, ids[2], np.ones(shape, "float32"))).repeat()


def memory(tokens, vocab, length, threads):
    """The most memory that training takes: one step of a small model with a large vocabulary."""
    layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
    model = t2t.Transformer(t2t.TransformerConfig.tiny(vocab, **layers))
    model.compile(t2t.adam(model.config.model_dim), t2t.LabelSmoothedCrossEntropy(0.1))

    def most():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

    def step(rows):
        ids = np.ones((rows, length), "int32")
        inputs = {"source_ids": ids, "target_ids": ids}
        model.train_on_batch(inputs, ids, np.ones_like(ids, "float32"))

    step(1)
    before = most()
    step(tokens // length)
    return {"MiB": most() - before}


def write_corpus(folder, lines):
    """Writes lines of invented words, frequent and rare ones as in a language (Zipf's law)."""
    rng = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    words = ["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(20_000)]
    for language in ("en", "de"):
        with open(os.path.join(folder, f"train.{language}"), "w", encoding="utf-8") as file:
            for _ in range(lines):
                drawn = rng.zipf(1.3, rng.integers(5, 40)) % len(words)
                print(*(words[i] for i in drawn), file=file)


def text_to_batches(lines, batches, threads):
    """Text to batches on one core: tokens of a corpus into shards, shards into batches."""
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(folder, lines)
        with open(os.path.join(folder, "train.en"), encoding="utf-8") as file:
            sample = [line for line, _ in zip(file, range(5_000), strict=False)]
        tokenizer = t2t.train_tokenizer("bpe", sample, 1_000)
        start = time.perf_counter()
        write_shards(FolderCorpus(folder, "en", "de"), "train", tokenizer, folder)
        to_shards = time.perf_counter() - start
        shards = pathlib.Path(folder, "train").glob("*.target")
        written = sum(path.stat().st_size for path in shards) / 4  # int32
        stream = training_batches(folder, "train", t2t.LengthBuckets(25_000), seed=1)
        iterator = iter(stream)
        next(iterator)
        start, tokens = time.perf_counter(), 0
        for _ in range(batches):
            tokens += int(tf.math.count_nonzero(next(iterator)[2]))
        a_token_batched = (time.perf_counter() - start) / tokens
    a_token_read = to_shards / written
    return {
        "target tokens/s": 1 / (a_token_read + a_token_batched),
        "text to shards": 1 / a_token_read,
        "shards to batches": 1 / a_token_batched,
        "MiB": psutil.Process().memory_info().rss / 2**20,
    }


def decode(
    folder, size, dtype, shortlist, batch, beam, source, target, repeats, threads, parts, lock=None
):
    """Our search in an exported SavedModel: random weights, all outputs of one length.

    A batch has `parts`, each decoded by a thread of its own by operations of cores / parts threads.
    """
    devices.limit_threads(parts)
    name = f"{size}_{dtype}_{beam}_{source}_{target}{'_shortlist' * shortlist}"
    export = pathlib.Path(folder) / name
    if not export.exists():
        precision, computed = ("int8", "float32") if dtype == "int8" else ("float32", dtype)
        translator = endless_translator(size, beam, source, target, computed)
        options = {"signatures": ["decode_ids"], "verify": False, "precision": precision}
        if shortlist:
            options["shortlist"] = _shortlist(translator)
        t2t.export_saved_model(translator, export, **options)
    loaded = tf.saved_model.load(str(export))
    decode = loaded.signatures["decode_ids"]
    vocab = common.SIZES[size][-2]
    ids = np.random.default_rng(1).integers(260, vocab, (batch, source))
    ids[:, -1] = 1  # the end
    ids = [tf.constant(part, tf.int32) for part in np.array_split(ids, parts)]

    def run(part):
        return decode(source_ids=part)["target_ids"].numpy()

    with ThreadPoolExecutor(parts) as pool:
        seconds = common.median_time(lambda: list(pool.map(run, ids)), repeats, lock=lock)
        outputs = np.concatenate(list(pool.map(run, ids)))
    tokens = int(np.count_nonzero(outputs[:, 0]))
    assert tokens == batch * target, "an output ended before its time"
    return common.decoding_figures(seconds, tokens, batch, target)


def search(
    folder, size, dtype, shortlist, batch, beam, source, target, repeats, threads, parts, lock=None
):
    """`decode`; on a GPU, and in the quick form, the calls of a `Translator`.

    There XLA compiles searches; also measured without it. A search that fell back is an error.
    """
    if size != "quick" and not tf.config.list_physical_devices("GPU"):
        return decode(**locals())
    translator = endless_translator(size, beam, source, target, dtype)
    words = np.random.default_rng(1).integers(0, 300, (batch, source - 1))
    texts = [" ".join(f"w{word}" for word in row) for row in words]
    seconds, default = {}, predictor_search.PLAIN_CALLS
    timing = {"repeats": repeats, "compiles": True, "lock": lock}
    for plain_calls in (math.inf, 0):
        predictor_search.PLAIN_CALLS = plain_calls
        seconds[plain_calls] = common.median_time(lambda: translator(texts), **timing)
    predictor_search.PLAIN_CALLS = default
    assert not translator.searches().without_xla, "XLA could not compile the search"
    figures = common.decoding_figures(seconds[0], batch * target, batch, target)
    return figures | {"target tokens/s without XLA": batch * target / seconds[math.inf]}


def _shortlist(translator):
    lists, frequent = common.shortlist_table(translator.model.config.vocab_size)
    # A list that is shorter than the longest repeats its first target.
    width = max(map(len, lists))
    table = np.array([(row + row[:1] * width)[:width] for row in lists], np.int32)
    return Shortlist(table, np.array(frequent, np.int32), translator.tokenizer.fingerprint())


def startup(folder, size, beam, threads):
    """Start-up time to the first translation: `pipelines.translate` on one line, exported model."""
    export = pathlib.Path(folder) / f"{size}_text_{beam}"
    if not export.exists():
        translator = endless_translator(size, beam, source_length=25, target_length=30)
        t2t.export_saved_model(translator, export, signatures=["serving_default"], verify=False)
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "pipelines.translate", f"--saved_model={export}"],
        input=b"w1 w2 w3\n",
        capture_output=True,
        check=True,
    )
    return {"seconds": time.perf_counter() - start}


def text_file(model, input, output, batch, threads, parts):
    """A text file translated to a text file by an exported SavedModel, TensorFlow's ops alone."""
    devices.limit_threads(parts)
    signature = tf.saved_model.load(model).signatures["serving_default"]

    def translate(lines):
        texts = signature(text=tf.constant(lines))["translation"]
        return [text.decode() for text in texts.numpy()]

    translate(["."])  # the graph's optimization, once for each process
    start = time.perf_counter()
    with open(input, encoding="utf-8") as source, open(output, "w", encoding="utf-8") as target:
        lines = [line.rstrip("\n") for line in source]
        for line in map_by_length(translate, lines, batch, num_parallel_batches=parts):
            print(line, file=target)
    return {"sentences/s": len(lines) / (time.perf_counter() - start)}


if __name__ == "__main__":
    common.answer(globals()[sys.argv[1]])
