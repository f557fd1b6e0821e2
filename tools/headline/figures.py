"""The figures of README's first table: the commands that measure each, and toy sizes of them.

In an argument of a command {data} is the folder of the corpora, {out} the output folder and {seed}
the seed of the training.
"""

import gzip
import itertools
import json
import os
import pathlib
import re
from types import MappingProxyType
from typing import NamedTuple

from pipelines.datasets.english_german.splits import sentence_pairs
from t2t_keras.data.files import write_file


def last_json(key):
    """Returns a function that reads a value of the JSON in a command's last line.

    Args:
        key: str, or several in a tuple, one for each level.
    """
    keys = (key,) if isinstance(key, str) else key

    def read(printed, _):
        value = json.loads(printed.splitlines()[-1])
        for name in keys:
            value = value[name]
        return value

    return read


def training_speed(dtype):
    """Returns a function that reads our best target tokens/s over those of the fastest peer.

    Without peers it returns ours alone.
    """

    def read(_, folder):
        path = os.path.join(folder, "benchmark", "benchmark_train.json")
        with open(path, encoding="utf-8") as file:
            parts = json.load(file)
        heading = rf"Training step, \w+, {dtype}"
        name = next(name for name in parts if re.fullmatch(heading, name))
        rows = [row for row in parts[name] if "target tokens/s" in row]  # others failed
        speeds = {row[""]: row["target tokens/s"] for row in rows}
        ours = [speed for name, speed in speeds.items() if name.startswith("t2t_keras")]
        peers = [speed for name, speed in speeds.items() if not name.startswith("t2t_keras")]
        return max(ours) / max(peers, default=1)

    return read


def search_speed(index):
    """Returns a function that reads a row of "Best against best": 0 all formats, 1 float32.

    It returns our speed over CTranslate2's; without CTranslate2 our target tokens/s.
    """

    def read(_, folder):
        path = os.path.join(folder, "benchmark", "benchmark_decode.json")
        with open(path, encoding="utf-8") as file:
            row = json.load(file)["Best against best"][index]
        return row.get("× ctranslate2", row["ours"])

    return read


class Figure(NamedTuple):
    """A figure of README's table.

    Attributes:
        name: as --figures takes it.
        row: the measurement, as README's row calls it.
        what: which of the row's figures.
        commands: tuple of commands, each a tuple of Python's arguments; the last one is read.
        read: function of (what the last command printed, output folder) to the value.
        tolerance: how far a new value may lie from README's figures; a difference of seeds, or
            for speeds of hours.
        data: folder below --data that it needs; empty: none.
        seeds: of its trainings; (None,) if nothing is trained.
        beside: {what README compares with: its value or version}.
        gpu: whether it needs one.
    """

    name: str
    row: str
    what: str
    commands: tuple
    read: object
    tolerance: float
    data: str = ""
    seeds: tuple = (None,)
    beside: dict = MappingProxyType({})
    gpu: bool = False


def _train(config, data, run, *fields):
    return (
        "-m",
        "pipelines.train",
        f"--config={config}",
        f"--config.data.folder={{data}}/{data}",
        f"--workdir={{out}}/runs/{run}/seed_{{seed}}",
        "--config.train.seed={seed}",
        *fields,
    )


def _evaluate(run, *options):
    return ("-m", "pipelines.evaluate", f"--workdir={{out}}/runs/{run}/seed_{{seed}}", *options)


def _benchmark(command, *options):
    return (
        "tools/benchmark.py",
        command,
        *options,
        "--threads=2",
        "--output_dir={out}/benchmark",
    )


def _multi30k(config, data, row, beside, seeds, *options):
    """Returns the `Figure` of a config of Multi30k with kNN-MT, by its test split."""
    name = config if data == "tok" else f"{config}_{data}"
    commands = (
        _train(config, f"multi30k/{data}", name),
        _evaluate(name, "--split=test", *options),
    )
    # Seeds of equal validation BLEU differ by 1.3 on the test split.
    return Figure(
        name, row, f"{config[-5:].replace('_', '–')} with kNN-MT", commands, last_json("bleu"),
        1.1 if len(seeds) > 1 else 1.7, f"multi30k/{data}", seeds, beside,
    )  # fmt: skip


def _without_knn(figure):
    train, evaluate = figure.commands
    return figure._replace(
        name=f"{figure.name}_no_knn",
        what=figure.what.replace("with ", "without "),
        commands=(train, (*evaluate, *_NO_KNN)),
    )


_NO_KNN = ("--knn_k=0", "--length_penalty=1")
_TOKENIZED = ("--tokenize=none", "--lowercase")
_WU = "Wu et al. 2021, no kNN"
_EN_DE = _multi30k(
    "multi30k_en_de", "tok", "Multi30k en–de, test2016 tokenized, lowercased, BLEU", {_WU: "41.02"},
    (1, 2, 3), *_TOKENIZED,
)  # fmt: skip
_EN_FR = _multi30k(
    "multi30k_en_fr", "tok", "Multi30k en–fr, the same", {_WU: "61.80"}, (1, 2, 3), *_TOKENIZED
)
_RECIPE = "multi30k_en_de_paper"
_PAPER = _EN_DE._replace(
    name=_RECIPE,
    what="by Adam without weight decay, the paper's label smoothing",
    commands=(
        _train(
            "multi30k_en_de", "multi30k/tok", _RECIPE,
            "--config.train.optimizer=adam", "--config.train.weight_decay=0",
            "--config.train.label_smoothing=0.1", "--config.train.steps=6000",
            "--config.train.decay_fraction=0", "--config.train.checkpoint_every=150",
            "--config.train.keep_checkpoints=12", "--config.train.average_checkpoints=10",
        ),
        _evaluate(_RECIPE, "--split=test", *_TOKENIZED, *_NO_KNN),
    ),
    tolerance=1.7,
    seeds=(1,),
)  # fmt: skip
_RAW = "Multi30k raw, cased, with kNN-MT, BLEU"
_TREES = "Parsing, 3,396 treebank sentences, development split, F1"
_PARSER = ("wsj_parsing_small", "treebank", "parsing")
_SEARCH = _benchmark("decode", "--cases=base:32:4", "--peers=ctranslate2")
_SEARCH_ROW = "Beam search speed, base, batch 32, 2 CPU cores"
_GRAMMAR = ("tools/pcfg_baseline.py", "{data}/treebank/train.mrg.gz", "{data}/treebank/dev.mrg.gz")

FIGURES = (
    _EN_DE,
    _without_knn(_EN_DE),
    _PAPER,
    _EN_FR,
    _without_knn(_EN_FR),
    _multi30k("multi30k_en_de", "raw", _RAW, {}, (1,)),
    _multi30k("multi30k_en_fr", "raw", _RAW, {}, (1,)),
    Figure(
        "parsing", _TREES, "the parser", (_train(*_PARSER), _evaluate("parsing", "--split=dev")),
        last_json("f1"), 2.0, "treebank", (1, 2, 3),
    ),
    Figure(
        "pcfg", _TREES, "our own PCFG on these trees",
        ((*_GRAMMAR, "--vertical=2", "--horizontal=2"),), last_json(("all", "f1")), 0.3, "treebank",
    ),
    Figure(
        "training_speed", "Training speed, base, float32, 2 CPU cores",
        "× the fastest peer measured",
        (_benchmark("train", "--sizes=base", "--peers=torch,keras-hub"),),
        training_speed("float32"), 0.4, beside={"PyTorch, eager": "2.14", "KerasHub": "0.32"},
    ),
    Figure(
        "training_speed_gpu",
        "Training speed, base, bfloat16, batches of 25,000 tokens, one NVIDIA H200",
        "× the fastest peer measured",
        (_benchmark("train", "--sizes=paper", "--xla", "--peers=torch,keras-hub"),),
        training_speed("bfloat16"), 0.3,
        beside={"PyTorch, compiled": "2.11", "KerasHub": "0.32"}, gpu=True,
    ),
    Figure(
        "beam_search_float32", _SEARCH_ROW, "× CTranslate2, float32", (_SEARCH,), search_speed(1),
        0.3, beside={"CTranslate2": "4.8"},
    ),
    Figure(
        "beam_search_best", _SEARCH_ROW, "× CTranslate2, best against best", (_SEARCH,),
        search_speed(0), 0.2, beside={"CTranslate2": "4.8"},
    ),
)  # fmt: skip

# --quick ------------------------------------------------------------------------------------------

_TOY_FIELDS = {
    "model.vocab_size": 400, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "model.model_dim": 32, "model.feed_forward_dim": 64, "model.num_heads": 2,
    "data.tokens_per_batch": 400, "train.steps": 12, "train.warmup_steps": 4, "train.log_every": 6,
    "train.validate_every": 12, "train.validation_sentences": 2, "train.checkpoint_every": 6,
    "train.average_checkpoints": 2, "train.mixed_precision": "", "decode.max_extra_tokens": 5,
}  # fmt: skip
_TOY_FLAGS = {
    "pipelines.train": tuple(f"--config.{name}={value}" for name, value in _TOY_FIELDS.items()),
    "pipelines.evaluate": ("--beam_size=2", "--max_extra_tokens=5"),
    "tools/benchmark.py": (
        "--quick", "--peers=", "--sizes=quick", "--cases=quick:3:2", "--lengths=5,9", "--threads=1",
    ),
}  # fmt: skip


def toy(figure):
    """Returns a `Figure` at toy size, with one seed; its value means nothing."""
    commands = []
    for command in figure.commands:
        flags = _TOY_FLAGS.get(command[1] if command[0] == "-m" else command[0], ())
        if "--config=wsj_parsing_small" in command:
            flags += ("--config.model.vocab_size=25", "--config.data.copies=2")
        commands.append((*command, *flags))
    return figure._replace(commands=tuple(commands), seeds=figure.seeds[:1], gpu=False)


def write_toy_data(folder):
    """Writes tiny corpora in the place and form of the real ones: sentences, twice, and trees."""
    folder = pathlib.Path(folder)
    for split, count in {"train": 300, "val": 5, "test_2016_flickr": 5}.items():
        pairs = itertools.islice(sentence_pairs("test"), count)
        for index, side in enumerate(zip(*pairs, strict=True)):
            text = "".join(f"{line}\n" for line in side).encode()
            for kind, language in itertools.product(("tok", "raw"), (("en",), ("de", "fr"))[index]):
                write_file(folder / "multi30k" / kind / f"{split}.{language}", text)
    nouns, verbs = ("dog", "cat", "man", "house", "train", "letter"), ("sees", "likes", "finds")
    for split, first in {"train": nouns, "dev": nouns[:1]}.items():
        trees = "".join(
            f"( (S (NP (DT the) (NN {one})) (VP (VBZ {verb}) (NP (DT the) (NN {other}))) (. .)) )\n"
            for one, verb, other in itertools.product(first, verbs, nouns)
        )
        compressed = gzip.compress(trees.encode(), mtime=0)
        write_file(folder / "treebank" / f"{split}.mrg.gz", compressed)
