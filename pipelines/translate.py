"""Translates lines of text, with a trained model or an exported SavedModel.

python -m pipelines.translate --workdir=runs/grammar < sentences.en
python -m pipelines.translate --saved_model=export/1 --input=sentences.en --output=sentences.de

Each line of input gives one line of output, in order. With --n_best=N it gives N lines, each
beginning with the input's line number (from 1) and a tab; with --scores the score and a tab stand
before the translation.

A file of any size takes bounded memory. Of --output nothing is seen until it is complete; after a
kill the same command goes on behind the lines that were done.
"""

import itertools
import os
import pathlib

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of an exported tokenizer
from absl import flags
from tqdm import tqdm

from pipelines import app
from pipelines.text_files import read_lines
from pipelines.unfinished_output import UnfinishedOutput
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError
from t2t_keras.tasks.lines import in_order_of_length

WORKDIR = app.define_workdir()
SAVED_MODEL = flags.DEFINE_string("saved_model", None, "Folder of an exported SavedModel.")
INPUT = flags.DEFINE_string("input", "", "File of one sentence a line; standard input if empty.")
OUTPUT = flags.DEFINE_string("output", "", "File to write; standard output if empty.")
N_BEST = flags.DEFINE_integer("n_best", 1, "Translations of each line.", lower_bound=1)
SCORES = flags.DEFINE_bool("scores", False, "Write each translation's score before it.")
BATCH_SIZE = flags.DEFINE_integer("batch_size", 64, "Lines translated at once.", lower_bound=1)
DECODING = app.define_decoding()

_WINDOW = 64  # batches that are sorted together by length


def main():
    if (WORKDIR.value is None) == (SAVED_MODEL.value is None):
        raise InputError("give either --workdir or --saved_model.")
    translate = _from_workdir() if WORKDIR.value else _from_saved_model()
    if not OUTPUT.value:
        for line in itertools.chain.from_iterable(_translated(translate, done=0)):
            print(line, flush=True)
        return
    with UnfinishedOutput(OUTPUT.value, _made_of()) as output:
        for number, lines in enumerate(_translated(translate, output.done), start=output.done + 1):
            for line in lines:
                output.write(line)
            if number % (BATCH_SIZE.value * _WINDOW) == 0:
                output.keep(number)


def _translated(translate, done):
    """Yields the lines of output of each line of input behind the first `done` ones."""
    lines = itertools.islice(read_lines(INPUT.value), done, None)
    lines = tqdm(lines, unit=" lines", initial=done, disable=None)
    results = in_order_of_length(translate, lines, BATCH_SIZE.value, _WINDOW)
    for number, translations in enumerate(results, start=done + 1):
        prefix = f"{number}\t" if N_BEST.value > 1 else ""
        yield [
            prefix + (f"{score:.4f}\t" if SCORES.value else "") + " ".join(text.splitlines())
            for text, score in translations[: N_BEST.value]
        ]


def _made_of():
    """Returns what the output depends on."""
    paths = [
        SAVED_MODEL.value or Workdir(WORKDIR.value).newest_weights(),
        INPUT.value or os.devnull,
    ]
    stats = [pathlib.Path(path).stat() for path in paths]
    return {
        "paths": [os.path.abspath(path) for path in paths],
        "seen": [(stat.st_size, stat.st_mtime_ns) for stat in stats],
        "n_best": N_BEST.value,
        "scores": SCORES.value,
        "batch_size": BATCH_SIZE.value,
        "decoding": DECODING.values(),
        "standard_input": None if INPUT.value else os.getpid(),  # it can't be read again
    }


def _from_workdir():
    translator = Workdir(WORKDIR.value).load_predictor(**DECODING.values())
    return lambda lines: translator.n_best(lines, N_BEST.value)


def _from_saved_model():
    try:
        signatures = tf.saved_model.load(SAVED_MODEL.value).signatures
    except (OSError, ValueError) as error:
        raise InputError(f"--saved_model={SAVED_MODEL.value}: {error}") from error
    signature = signatures["serving_default" if N_BEST.value == 1 else "n_best"]
    # Tasks have different names for their text and score, such as "translation" or "trees".
    [text], [score] = (
        [name for name, output in signature.structured_outputs.items() if output.dtype == dtype]
        for dtype in (tf.string, tf.float32)
    )

    def translate(lines):
        result = signature(text=tf.constant(lines, tf.string))
        texts, scores = (tf.reshape(result[key], [len(lines), -1]) for key in (text, score))
        # A classifier gives one label, and the probabilities of all.
        scores = tf.reduce_max(scores, axis=1, keepdims=True) if N_BEST.value == 1 else scores
        return [
            [(text.decode(errors="replace"), score) for text, score in zip(*row, strict=True)]
            for row in zip(texts.numpy(), scores.numpy(), strict=True)
        ]

    return translate


if __name__ == "__main__":
    app.run(main)
