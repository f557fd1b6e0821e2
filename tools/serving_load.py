"""Load and soak test of an exported translator: answers, latency, throughput and memory.

python tools/serving_load.py --saved_model=export/1 --input=sentences.en --output=load.json

Loads the SavedModel into a session, as a model server does, and asks `serving_default` for one line
at a time from many threads, with and without batching of requests that arrive together
(TensorFlow's BatchFunction, whose queue is the model server's). Every answer is compared with the
one that the same line got when nothing else ran. Prints tables in Markdown and ends with code 1 if
an answer was wrong or memory grew. Needs Linux; knows nothing of t2t_keras.

On a CPU, batched requests make memory grow up to a limit: each thread caches the kernels that
oneDNN compiled for the last 1,024 shapes. TF_ENABLE_ONEDNN_OPTS=0, here and for the server, keeps
memory constant; an answer then takes 8 to 41 % more CPU time.
"""

import itertools
import json
import os
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops
from absl import app, flags

SAVED_MODEL = flags.DEFINE_string(
    "saved_model", None, "Folder of the SavedModel; required.", required=True
)
INPUT = flags.DEFINE_string("input", None, "Text file, a sentence a line; required.", required=True)
OUTPUT = flags.DEFINE_string("output", None, "JSON file for the figures; default: none.")
LINES = flags.DEFINE_integer("lines", 200, "Lines to ask for, drawn by chance.", lower_bound=1)
MODES = flags.DEFINE_multi_enum(
    "mode", ["single", "batched"], ["single", "batched"], "With joined requests or without."
)
CONCURRENCY = flags.DEFINE_list("concurrency", ["1", "2", "4", "8", "16"], "Clients at a time.")
flags.register_validator(
    "concurrency",
    lambda counts: all(count.isdecimal() and int(count) for count in counts),
    "give whole numbers of at least 1, with commas between them.",
)
SECONDS = flags.DEFINE_float("seconds", 10, "Seconds of each row of the load's table.", 0.001)
REQUESTS = flags.DEFINE_integer("requests", 10_000, "Requests of each soak; 0: none.", 0)
SOAK_CONCURRENCY = flags.DEFINE_integer("soak_concurrency", 8, "Clients of the soak.", 1)
GROWTH = flags.DEFINE_float("growth", 16, "MiB by which memory may grow in a soak's second half.")
MAX_BATCH_SIZE = flags.DEFINE_integer("max_batch_size", 128, "Sentences in a joined batch.")
BATCH_TIMEOUT = flags.DEFINE_integer(
    "batch_timeout_micros", 2000, "Microseconds that the first request of a batch waits for others."
)
BATCH_THREADS = flags.DEFINE_integer("num_batch_threads", 4, "Batches that run at a time.")

_TOLERANCE = 1e-3  # of a score; a batch of another shape may round otherwise
_SAMPLES = 20  # of memory, in a soak
_HIGHEST = "highest of 2nd half over 1st, MiB"


def load(directory):
    """Loads a SavedModel; returns {mode: function of a line, bytes, to (translation, score)}."""
    session = tf.compat.v1.Session(graph=tf.Graph())
    with session.graph.as_default():
        signatures = tf.compat.v1.saved_model.load(session, ["serve"], directory).signature_def
        if "serving_default" not in signatures:
            raise ValueError(f"{directory} has no signature serving_default")
        signature = signatures["serving_default"]
        text = session.graph.get_tensor_by_name(signature.inputs["text"].name)
        outputs = [
            session.graph.get_tensor_by_name(signature.outputs[name].name)
            for name in ("translation", "score")
        ]
        call = outputs[0].op  # of a function of the text and the weights
        joined = tf.raw_ops.BatchFunction(
            in_tensors=[text],
            captured_tensors=list(call.inputs[1:]),
            f=call.node_def.attr["f"].func,
            num_batch_threads=BATCH_THREADS.value,
            max_batch_size=MAX_BATCH_SIZE.value,
            batch_timeout_micros=BATCH_TIMEOUT.value,
            max_enqueued_batches=100,
            Tout=[tensor.dtype for tensor in call.outputs],
        )

    def asker(tensors):
        function = session.make_callable(tensors, [text])

        def ask(line):
            translations, scores = function(np.array([line], object))
            return translations[0], float(scores[0])

        return ask

    batched = [joined[tensor.value_index] for tensor in outputs]
    return {"single": asker(outputs), "batched": asker(batched)}


def run(ask, expected, concurrency, requests, seconds=0):
    """Asks from several threads until `requests` have begun and `seconds` have passed.

    Each of `concurrency` threads waits for its answer before it asks again. By `expected`, {line:
    its answer}, an answer is wrong if its score is, and a tie if only its translation is another.

    Returns:
        The time that it took, the CPU time of this process, an array of latencies in seconds, a
        list of the memory in MiB after even shares of the requests, {"wrong": int, "ties": int}.
    """
    lines = list(expected)
    lock, numbers = threading.Lock(), itertools.count()
    latencies, memory, verdicts = [], [], {"wrong": 0, "ties": 0}
    start, cpu_start = time.perf_counter(), time.process_time()

    def client(seed):
        chance = random.Random(seed)
        while next(numbers) < requests or time.perf_counter() < start + seconds:
            line = chance.choice(lines)
            begin = time.perf_counter()
            answer = ask(line)
            latency, (translation, score) = time.perf_counter() - begin, expected[line]
            with lock:
                latencies.append(latency)
                if abs(answer[1] - score) > _TOLERANCE * max(1, abs(score)):
                    verdicts["wrong"] += 1
                elif answer[0] != translation:
                    verdicts["ties"] += 1
                if not seconds and len(latencies) % max(1, requests // _SAMPLES) == 0:
                    memory.append(memory_in_use())

    with ThreadPoolExecutor(concurrency) as pool:
        list(pool.map(client, range(concurrency)))  # raises what a client raises
    elapsed, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu_start
    return elapsed, cpu_seconds, np.array(latencies), memory, verdicts


def memory_in_use():
    """Returns the resident memory of this process in MiB."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def read_lines(path, count):
    """Returns some of a file's lines, bytes, an empty one and one as long as eight of them."""
    with open(path, "rb") as file:
        lines = sorted(set(file.read().splitlines()))
    if not lines:
        raise ValueError(f"{path} is empty: give a file with a sentence a line")
    chance = random.Random(0)
    lines = chance.sample(lines, min(count, len(lines)))
    return [*lines, b"", b" ".join(chance.choices(lines, k=8))]


def measure(asks, expected):
    """Yields a dict for each row of the table of load."""
    for mode, concurrency in itertools.product(asks, map(int, CONCURRENCY.value)):
        # What is new to the batch size, such as a first allocation, is not measured.
        run(asks[mode], expected, concurrency, 2 * concurrency)
        seconds, cpu_seconds, latencies, _, verdicts = run(
            asks[mode], expected, concurrency, concurrency, SECONDS.value
        )
        yield {
            "requests": mode,
            "concurrency": concurrency,
            "answers/s": round(len(latencies) / seconds, 1),
            "CPU ms/answer": round(1000 * cpu_seconds / len(latencies), 1),
            **{f"p{n} ms": round(1000 * np.percentile(latencies, n), 1) for n in (50, 95, 99)},
            **verdicts,
        }


def soak(asks, expected):
    """Yields a dict for each row of the table of memory."""
    for mode, ask in asks.items() if REQUESTS.value else []:
        *_, memory, verdicts = run(ask, expected, SOAK_CONCURRENCY.value, REQUESTS.value)
        half = len(memory) // 2
        yield {
            "requests": mode,
            "count": REQUESTS.value,
            "after all, MiB": round(memory[-1]),
            _HIGHEST: round(max(memory[half:]) - max(memory[:half] or memory), 1),
            **verdicts,
            "MiB": [round(sample, 1) for sample in memory],
        }


def table(rows):
    """Prints dicts as a Markdown table as they come; returns them as a list. Lists are left out."""
    kept = []
    for row in rows:
        cells = {name: value for name, value in row.items() if not isinstance(value, list)}
        if not kept:
            print(f"| {' | '.join(cells)} |\n|{' --- |' * len(cells)}")
        print(f"| {' | '.join(map(str, cells.values()))} |", flush=True)
        kept.append(row)
    print()
    return kept


def main(_):
    tf.get_logger().setLevel("ERROR")
    try:
        lines = read_lines(INPUT.value, LINES.value)
        asks = load(SAVED_MODEL.value)
        wanted = {mode: asks[mode] for mode in MODES.value}
        expected = {line: asks["single"](line) for line in lines}
        figures = {
            "saved_model": SAVED_MODEL.value,
            "cores": len(os.sched_getaffinity(0)),
            "load": table(measure(wanted, expected)),
            "memory": table(soak(wanted, expected)),
        }
    except tf.errors.OpError as error:
        sys.exit(f"error: a request failed: {error.message}")
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
    if OUTPUT.value:
        with open(OUTPUT.value, "w", encoding="utf-8") as file:
            json.dump(figures, file, indent=1)
    complaints = []
    if wrong := sum(row["wrong"] for row in figures["load"] + figures["memory"]):
        complaints.append(f"error: {wrong} answers were not those to the same lines one at a time")
    for row in figures["memory"]:
        if row[_HIGHEST] > GROWTH.value:
            complaints.append(f"error: memory grew by {row[_HIGHEST]} MiB in half a soak")
    if complaints:
        sys.exit("\n".join(complaints))


if __name__ == "__main__":
    app.run(main)
