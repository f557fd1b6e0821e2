"""The contestants of each sub-command, with the sizes and shapes of their work."""

import os
from typing import NamedTuple

from benchmarks.alternation import Contest, Contestant
from t2t_keras import ops
from t2t_keras.errors import InputError

DTYPES = ("float32", "bfloat16")
SHORTLIST = "shortlist"
SETTINGS = (*DTYPES, "int8", SHORTLIST)
"""What --settings chooses from."""
TOKENS = "target tokens/s"


class Setting(NamedTuple):
    """The flags of tools/benchmark.py."""

    quick: bool
    threads: int
    repeats: int
    folder: str  # of exported models
    sizes: list | None  # None: the default
    cases: list | None  # list of (size, batch, beam); None: the default
    lengths: tuple  # of source and target
    workdir: str | None
    input: str | None
    xla: bool = False
    settings: tuple = SETTINGS

    def dtypes(self, known):
        """Returns those of the number formats that are to be measured."""
        return [dtype for dtype in known if dtype in self.settings]


def train(setting):
    """Training steps of a full batch, the machine's matmul rate, and steps of real batches."""
    common = {"repeats": setting.repeats, "threads": setting.threads}
    for size in setting.sizes or (["quick"] if setting.quick else ["tiny", "base"]):
        for dtype in setting.dtypes(DTYPES):
            work = common | {"size": size, "dtype": dtype}
            compiled, xla = work | {"compile": True}, work | {"xla": True}
            contestants = [
                *_divide_threads("t2t_keras", "ours.train", work),
                Contestant("PyTorch", "train_torch", work, "torch"),
                Contestant("PyTorch, compiled", "train_torch", compiled, "torch", True),
                Contestant("KerasHub", "train_keras_hub", work, "keras-hub"),
            ]
            if setting.xla:
                contestants += [
                    Contestant("t2t_keras, XLA", "ours.train", xla | {"parts": 1}),
                    Contestant("KerasHub, XLA", "train_keras_hub", xla, "keras-hub", True),
                ]
            yield Contest(f"Training step, {size}, {dtype}", TOKENS, contestants)
    rows = 128 if setting.quick else 2048
    yield Contest(
        f"Matrix product, {rows}³",
        "GFLOP/s",
        [Contestant(d, "ours.product", common | {"dtype": d, "rows": rows}) for d in DTYPES],
    )
    if setting.workdir:
        work = {"workdir": os.path.abspath(setting.workdir), "threads": setting.threads}
        # Each shape that comes for the first time costs a little; None: a whole epoch before.
        work |= {"warm_up": 5, "steps": 5} if setting.quick else {"warm_up": None, "steps": 150}
        names = "real batches, metrics, callbacks", "the bare step on a full batch"
        contestants = [Contestant(n, "ours.epoch", work | {"bare": n == names[1]}) for n in names]
        yield Contest("Real batches", TOKENS, contestants)


def decode(setting):
    """Searches of random models with outputs of one length."""
    cases = [("base", 32, 4), ("tiny", 64, 4), ("base", 32, 1), ("tiny", 64, 1)]
    for case in setting.cases or ([("quick", 3, 2)] if setting.quick else cases):
        yield _decode(setting, case, TOKENS)


def generate(setting):
    """Searches beside `generate` of transformers, each on all cores or a GPU."""
    for case in setting.cases or ([("quick", 3, 2)] if setting.quick else [("base", 32, 4)]):
        work = _decoding(setting, case, setting.lengths)
        theirs = {key: value for key, value in work.items() if key not in ("folder", "shortlist")}
        contestants = []
        for dtype in setting.dtypes(DTYPES):
            ours, other = (each | {"dtype": dtype} for each in (work | {"parts": 1}, theirs))
            name = f"transformers {dtype}"
            contestants += [
                Contestant(f"t2t_keras {dtype}", "ours.search", ours),
                Contestant(name, "decode_transformers", other, "transformers"),
            ]
        heading = f"Search, {case[0]}, batch {case[1]}, beam {case[2]}"
        yield Contest(heading, TOKENS, contestants)


def serve(setting):
    """One sentence at a time, start-up, and a text file with a trained model."""
    large, small = ("quick", "quick") if setting.quick else ("base", "tiny")
    yield _decode(setting, (large, 1, 4), "ms", less_is_better=True)
    work = {"folder": setting.folder, "size": small, "beam": 4, "threads": setting.threads}
    heading = f"From the start of pipelines.translate to its first translation, {small}"
    yield Contest(heading, "seconds", [Contestant("t2t_keras", "ours.startup", work)], True)


def text(setting, exports, decoding):
    """The translation of --input by a trained model, with each engine that has an export.

    `exports` are {"saved_model": folder, "ctranslate2": folder}, the second if there is one;
    `decoding` are {"beam": int, "length_penalty": float} of CTranslate2.
    """
    work = {"input": setting.input, "output": os.devnull, "batch": 64, "threads": setting.threads}
    ours = work | {"model": exports["saved_model"]}
    contestants = [*_divide_threads("t2t_keras", "ours.text_file", ours)]
    for dtype in ("float32", "int8") if "ctranslate2" in exports else ():
        theirs = work | decoding | {"model": exports["ctranslate2"], "dtype": dtype}
        name, worker = f"CTranslate2 {dtype}", "ctranslate2_engine.text_file"
        contestants += _divide_threads(name, worker, theirs, "ctranslate2")
    return Contest(f"Text file to text file, {setting.workdir}", "sentences/s", contestants)


def input(setting):
    """Text to batches on one core, of a corpus and of one four times as large."""
    least, batches = (500, 3) if setting.quick else (20_000, 200)
    return [
        _series(
            "Text to batches on one core",
            TOKENS,
            "ours.text_to_batches",
            {
                f"{lines:,} pairs": {"batches": batches, "threads": 1, "lines": lines}
                for lines in (least, 4 * least)
            },
            less_is_better=False,
        )
    ]


def scale(setting):
    """How cost grows: decoding with the length and with the batch, training with the tokens."""
    size = "quick" if setting.quick else "tiny"
    yield _series(
        f"Decoding by length, {size}, batch 16, beam 4",
        "ms/step",
        "ours.decode",
        {
            f"{length} tokens": _decoding(setting, (size, 16, 4), (length, length)) | {"parts": 1}
            for length in ((8, 16) if setting.quick else (16, 32, 64, 128))
        },
    )
    yield _series(
        f"Decoding by batch, {size}, beam 4",
        "ms/sentence",
        "ours.decode",
        {
            f"{n} sentences": _decoding(setting, (size, n, 4), setting.lengths) | {"parts": 1}
            for n in ((1, 4) if setting.quick else (1, 2, 4, 8, 16, 32, 64))
        },
    )
    tokens, vocab = ((64, 128), 1_000) if setting.quick else ((3_125, 12_500, 25_000), 37_000)
    work = {"vocab": vocab, "length": 25, "threads": setting.threads}
    yield _series(
        f"Most memory of a training step, {vocab:,} words",
        "MiB",
        "ours.memory",
        {f"{n:,} tokens": work | {"tokens": n} for n in tokens},
    )


def _series(heading, unit, worker, works, less_is_better=True):
    """Returns the contest of one worker with several settings, {name: settings}."""
    contestants = [Contestant(name, worker, work) for name, work in works.items()]
    return Contest(heading, unit, contestants, less_is_better)


CONTESTS = {f.__name__: f for f in (train, decode, generate, input, serve, scale)}
"""What yields the contests of each sub-command."""


def parse_case(text):
    """Returns (size, batch, beam) of "base:32:4"."""
    try:
        size, batch, beam = text.split(":")
        return size, int(batch), int(beam)
    except ValueError as error:
        raise InputError(f"--cases has {text!r}: give SIZE:BATCH:BEAM, as base:32:4.") from error


def _divide_threads(name, worker, work, peer=None):
    """Yields a contestant whose operations use all cores, and on CPUs some with 2, 4, … parts.

    The last of them has a part for each core. For a single sentence it uses one core, since its
    operations may be too small to be split between cores.
    """
    cores = work["threads"]
    most = min(cores, work.get("batch", cores))
    yield Contestant(name, worker, work | {"parts": 1}, peer)
    if ops.visible_device() == "gpu":
        return
    for parts in sorted({2**power for power in range(1, most.bit_length())} | {most} - {1}):
        yield Contestant(f"{name}, {parts} in parallel", worker, work | {"parts": parts}, peer)
    if most == 1 and cores > 1:
        yield Contestant(f"{name}, on one core", worker, work | {"parts": 1, "threads": 1}, peer)


def _decode(setting, case, unit, less_is_better=False):
    size, batch, beam = case
    source, target = setting.lengths
    work = _decoding(setting, case, setting.lengths)
    theirs = {key: value for key, value in work.items() if key != "folder"}
    engines = [
        ("t2t_keras", "ours.decode", work, (*DTYPES, "int8"), None),
        ("CTranslate2", "ctranslate2_engine.decode", theirs, ("float32", "int8"), "ctranslate2"),
    ]
    contestants = []
    for engine, worker, settings, dtypes, peer in engines:
        for shortlist in (False, True) if SHORTLIST in setting.settings else (False,):
            for dtype in setting.dtypes(dtypes):
                name = f"{engine} {dtype}{' with a shortlist' * shortlist}"
                more = {"dtype": dtype, "shortlist": shortlist}
                contestants += _divide_threads(name, worker, settings | more, peer)
    heading = f"Decoding, {size}, batch {batch}, beam {beam}, {source} to {target} tokens"
    return Contest(heading, unit, contestants, less_is_better)


def _decoding(setting, case, lengths):
    """Returns the settings of a search in float32, of a case (size, batch, beam)."""
    work = dict(zip(("size", "batch", "beam"), case, strict=True))
    work |= dict(zip(("source", "target"), lengths, strict=True))
    work |= {"folder": setting.folder, "repeats": setting.repeats, "threads": setting.threads}
    return work | {"dtype": "float32", "shortlist": False}
