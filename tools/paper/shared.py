"""What the tools of this folder share: tables and pictures, scores of a run, trainings of a minute.

Importing it also puts the repository on Python's path, so that the tools run in a fresh clone.
"""

import csv
import itertools
import json
import os
import pathlib
import random
import sys

from absl import flags, logging

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's own start-up messages

import keras

from pipelines import app
from pipelines.configs import grammar_en_de, wsj_parsing_small
from pipelines.datasets.english_german.splits import sentence_pairs
from pipelines.tasks import make_task
from pipelines.training import train
from pipelines.workdir import Workdir
from t2t_keras.analysis.plots import save_figure
from t2t_keras.data.files import write_file
from t2t_keras.errors import InputError
from t2t_keras.tasks.text_io import map_by_length

ONCE = {"allow_override": True}  # scripts of the folder above import this as `paper.shared`
QUICK = flags.DEFINE_bool("quick", False, "Small sizes: three minutes on two idle cores.", **ONCE)
OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder for tables and pictures.", **ONCE)

SENTENCE = "The old dog sees a cat."
"""One that the model of `translation_config` should be able to translate."""


def in_output(name):
    """Returns the path of a name in the output folder."""
    return os.path.join(OUTPUT_DIR.value, name)


# Tables and pictures ------------------------------------------------------------------------------


def markdown_table(rows):
    """Returns rows {column: value}, all of the same columns, in Markdown; None is an empty cell."""
    lines = [f"| {' | '.join(rows[0])} |", f"|{' --- |' * len(rows[0])}"]
    lines += [f"| {' | '.join(map(_cell, row.values()))} |" for row in rows]
    return "\n".join(lines) + "\n"


def save_tables(name, title, parts):
    """Writes NAME.md and NAME.json into the output folder, and prints the former.

    `parts` are {heading: rows as `markdown_table` takes them, or a text}.
    """
    text = [f"# {title}\n"]
    for heading, part in parts.items():
        text += [f"## {heading}\n", part + "\n" if isinstance(part, str) else markdown_table(part)]
    print(*text, sep="\n")
    write_file(in_output(f"{name}.md"), "\n".join(text).encode())
    content = json.dumps({"title": title} | parts, indent=1, ensure_ascii=False)
    write_file(in_output(f"{name}.json"), content.encode())


def save_picture(figure, name):
    """Writes a matplotlib figure as NAME.png into the output folder."""
    save_figure(figure, in_output(f"{name}.png"))


def _cell(value):
    if value is None:
        return ""
    if isinstance(value, float):
        # Four digits say all that is measured here; the exponent only where it must be.
        if 1e-3 <= abs(value) < 1e5 or value == 0:
            return str(value) if len(str(value)) < 5 else f"{value:.4g}"  # 26.0, not 26
        return f"{value:.1e}"
    return str(value).replace("|", r"\|")


# Scores -------------------------------------------------------------------------------------------


def define_scores():
    """Defines the flags of `read_scores` and `measure_scores`; returns those of the search."""
    text = "File whose last line is the JSON of pipelines.evaluate; empty: the run is scored."
    flags.DEFINE_string("scores", "", text)
    flags.DEFINE_string("split", "", "Split to score; empty: the config's test split.")
    flags.DEFINE_integer("sentences", None, "Sentences to score, the first ones; default: all.", 1)
    return app.define_decoding()


def read_scores(metric):
    """Returns the scores of --scores, a dict with the metric, or None without the flag."""
    path = flags.FLAGS.scores
    if not path:
        return None
    *_, last = [b"", *app.read_lines(path)]
    try:
        scores = json.loads(last)
    except ValueError:
        scores = None
    if not isinstance(scores, dict) or metric not in scores:
        raise InputError(
            f"--scores is {path}, whose last line is not JSON with {metric!r}: give the output of "
            "pipelines.evaluate."
        )
    return scores | {"of": path}


def measure_scores(workdir, **decoding):
    """Scores a run on --split, whole or its first --sentences.

    Returns the scores of its task, "sentences" among them; under "of" the split's name.
    """
    config = workdir.load_config()
    task, split = make_task(config), flags.FLAGS.split or config.data.test_split
    inputs, references = task.evaluation_examples(split, flags.FLAGS.sentences)
    logging.info("Scoring %d sentences of %s", len(inputs), split)
    predict = workdir.load_predictor(**decoding)
    scores = task.score(list(map_by_length(predict, inputs)), references)
    return scores | {"sentences": len(inputs), "of": split}


# Trainings of about a minute, for --quick ---------------------------------------------------------


def find_run(path, name, make_config):
    """Returns the `Workdir` of --workdir, or with --quick of a tiny run of its own; else None."""
    if path:
        return Workdir(path)
    return trained(make_config(), in_output(name)) if QUICK.value else None


def _write(path, lines):
    write_file(path, "".join(f"{line}\n" for line in lines).encode())


def translation_config(steps=300):
    """Returns the config of a tiny translator; writes the first pairs of the built-in corpus."""
    folder = in_output("corpus")
    for split, count in {"train": 6_000, "validation": 100, "test": 100}.items():
        sides = zip(*itertools.islice(sentence_pairs(split), count), strict=True)
        for language, lines in zip(("en", "de"), sides, strict=True):
            _write(os.path.join(folder, f"{split}.{language}"), lines)
    config = grammar_en_de.get_config()
    config.model.update(vocab_size=800, num_encoder_layers=2, num_decoder_layers=2, model_dim=64)
    config.model.feed_forward_dim = 128
    config.data.update(folder=folder, tfds="", tokens_per_batch=800)
    config.train.update(_every(steps), learning_rate_scale=0.3, validation_sentences=50)
    return config


def _every(steps):
    """Returns the fields of a training that ends in `steps` steps, and is saved at its end."""
    at_its_end = dict.fromkeys(("steps", "validate_every", "checkpoint_every"), steps)
    more = {"log_every": 50, "keep_checkpoints": 1, "average_checkpoints": 0}
    return at_its_end | more | {"warmup_steps": max(1, steps // 4)}


def parsing_config(steps=400):
    """Returns the config of a tiny parser; writes random trees of a small grammar."""
    chance, folder = random.Random(0), in_output("table4_treebank")

    def noun_phrase():
        noun = chance.choice(("dog", "cat", "man", "house", "train", "letter", "garden"))
        phrase = f"(NP (DT the) (NN {noun}))"
        if chance.random() < 0.3:
            preposition = chance.choice(("of", "near", "with"))
            return f"(NP {phrase} (PP (IN {preposition}) {noun_phrase()}))"
        return phrase

    def sentence():
        verb = f"(VBZ {chance.choice(('sees', 'likes', 'finds', 'knows'))})"
        return f"( (S {noun_phrase()} (VP {verb} {noun_phrase()}) (. .)) )"

    for split, count in {"train": 400, "dev": 10, "test": 40}.items():
        _write(os.path.join(folder, f"{split}.mrg"), [sentence() for _ in range(count)])
    config = wsj_parsing_small.get_config()
    config.model.update(vocab_size=36, num_encoder_layers=1, num_decoder_layers=1, model_dim=64)
    config.model.update(feed_forward_dim=128, num_heads=2, dropout=0.0)
    config.data.update(folder=folder, copies=2, tokens_per_batch=800)
    config.train.update(_every(steps), optimizer="adam", weight_decay=0.0, learning_rate_scale=0.3)
    config.train.update(validation_sentences=4, mixed_precision="")
    config.decode.update(beam_size=4, max_extra_tokens=30)
    return config


def metrics_rows(workdir):
    """Returns the rows of a run's metrics, a list of {column: str}."""
    path = workdir.path / "metrics.csv"
    return list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []


def trained(config, path):
    """Trains a config or resumes its training in a folder; returns its `Workdir`."""
    workdir = Workdir(path)
    train(config, workdir)
    keras.backend.clear_session()
    return workdir
