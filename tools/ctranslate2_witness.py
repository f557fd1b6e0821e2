"""Translates lines with a trained model and with CTranslate2 on its weights, and compares.

python tools/ctranslate2_witness.py --workdir=runs/multi30k --input=test.en [--lines=100]

Both search in float32 with the same beam and length penalty. Prints how many translations are
identical and how far scores of identical ones differ, then every line whose translations differ,
with both scores. If the two scores are close, rounding caused the difference, otherwise the rules
of the searches (t2t_keras/serving/ctranslate2.py). Needs the extra `ctranslate2`. Exits with code 1
if fewer than --least are identical or scores differ by more than 0.001.
"""

import itertools
import json
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's own start-up messages

import tensorflow as tf  # noqa: E402
from absl import flags  # noqa: E402

from pipelines import app  # noqa: E402
from pipelines.app import read_lines  # noqa: E402
from pipelines.workdir import Workdir  # noqa: E402
from t2t_keras.errors import InputError  # noqa: E402
from t2t_keras.serving import ctranslate2 as engine  # noqa: E402
from t2t_keras.tasks.text_io import map_by_length  # noqa: E402

WORKDIR = app.define_workdir()
INPUT = flags.DEFINE_string("input", None, "Text file, a sentence a line.")
LINES = flags.DEFINE_integer(
    "lines", None, "Lines of --input to translate, the first ones; default: all."
)
LEAST = flags.DEFINE_float("least", 0.99, "The fraction of translations that must be identical.")
SHOWN = flags.DEFINE_integer("shown", 20, "How many differences to print.")


def main():
    translator = Workdir(WORKDIR.value).load_predictor(knn_k=0)
    lines = [line.decode("utf-8", "replace") for line in read_lines(INPUT.value)][: LINES.value]
    ours = list(map_by_length(lambda batch: translator.n_best(batch, 1), lines))
    theirs = list(map_by_length(_engine(translator), lines))
    different, largest = [], 0.0
    for line, (mine,), (text, score) in zip(lines, ours, theirs, strict=True):
        if mine.text == text:
            largest = max(largest, abs(mine.score - score))
        else:
            different.append((line, *mine, text, score))
    for line, mine, my_score, text, score in different[: SHOWN.value]:
        print(line, f"  ours        {my_score:.4f}  {mine}", sep="\n")
        print(f"  CTranslate2 {score:.4f}  {text}")
    identical = 1 - len(different) / max(len(lines), 1)
    figures = {"lines": len(lines), "identical": identical, "largest score difference": largest}
    print(json.dumps(figures))
    if identical < LEAST.value or largest > 1e-3:
        raise InputError(f"{identical:.2%} are identical, scores differ by {largest:.1e}.")


def _engine(translator):
    """Returns a function of a list of str, to (translation, score) of each, by CTranslate2."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "engine")
        engine.export_ctranslate2(translator, path)
        import ctranslate2  # noqa: PLC0415  export_ctranslate2 says it better if it is missing

        model = ctranslate2.Translator(path, compute_type="float32")
    tokenizer = translator.tokenizer

    def translate(lines):
        rows = tokenizer.pieces(translator.encode(tf.constant(lines))).numpy()
        sources = [[piece.decode() for piece in row if piece] for row in rows]
        ranked = engine.find_translations(
            model,
            sources,
            beam_size=translator.beam_size,
            length_penalty=translator.length_penalty,
            max_length=max(map(len, sources)) + translator.max_extra_tokens,
        )
        ids_of = {piece: number for number, piece in enumerate(engine.shown_pieces(tokenizer))}
        best = [[ids_of[piece] for piece in row[0][0]] for row in ranked]
        padded = [list(row) for row in zip(*itertools.zip_longest(*best, fillvalue=0), strict=True)]
        texts = tokenizer.decode(tf.constant(padded, tf.int32)).numpy()
        return [(text.decode(), row[0][1]) for text, row in zip(texts, ranked, strict=True)]

    return translate


if __name__ == "__main__":
    app.require("workdir", "input")
    app.run(main)
