"""The contestants of each sub-command, with the sizes and shapes of their work."""

import os
from typing import NamedTuple

from benchmarks.alternation import Contest, Contestant
from t2t_keras import ops
from t2t_keras.errors import InputError

DTYPES = ("float32", "bfloat16")
EXPORTED = (*DTYPES, "int8")
TOKENS = "target tokens/s"


class Setting(NamedTuple):
    """Settings that all contests of a run share.

    Attributes:
        quick: whether the smallest sizes will do.
        threads: of each contestant.
        repeats: measured calls of each process.
        folder: for exported models.
        sizes: names of models, or None for the default.
        cases: list of (size, batch, beam) to decode, or None for the default.
        lengths: (source, target) tokens to decode.
        workdir: a trained translation model, or None.
        input: text to translate, or None.
        xla: whether training steps of ours and of KerasHub are measured with XLA, too.
    """

    quick: bool
    threads: int
    repeats: int
    folder: str
    sizes: list | None
    cases: list | None
    lengths: tuple
    workdir: str | None
    input: str | None
    xla: bool = False


def train(setting):
    """Training steps of a full batch, the machine's matmul rate, and steps of real batches."""
    sizes = setting.sizes or (["quick"] if setting.quick else ["tiny", "base"])
    common = {"repeats": setting.repeats, "threads": setting.threads}
    for size in sizes:
        for dtype in DTYPES:
            work = common | {"size": size, "dtype": dtype}
            by_xla = [
                Contestant("t2t_keras, XLA", "ours.train", work | {"parts": 1, "xla": True}),
                Contestant(
                    "KerasHub, XLA", "train_keras_hub", work | {"xla": True}, "keras-hub", True
                ),
            ]
            yield Contest(
                f"Training step, {size}, {dtype}",
                TOKENS,
                [
                    *_divide_threads("t2t_keras", "ours.train", work),
                    Contestant("PyTorch", "train_torch", work, "torch"),
                    Contestant(
                        "PyTorch, compiled", "train_torch", work | {"compile": True}, "torch", True
                    ),
                    Contestant("KerasHub", "train_keras_hub", work, "keras-hub"),
                    *(by_xla if setting.xla else ()),
                ],
            )
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
        yield Contest(
            "Real batches",
            TOKENS,
            [
                Contestant(
                    "real batches, metrics, callbacks", "ours.epoch", work | {"bare": False}
                ),
                Contestant("the bare step on a full batch", "ours.epoch", work | {"bare": True}),
            ],
        )


def decode(setting):
    """Searches of random models with outputs of one length."""
    cases = setting.cases or (
        [("quick", 3, 2)]
        if setting.quick
        else [("base", 32, 4), ("tiny", 64, 4), ("base", 32, 1), ("tiny", 64, 1)]
    )
    for case in cases:
        yield _decode(setting, case, TOKENS)


def generate(setting):
    """The searches of `decode` beside `generate` of transformers, each on all cores or a GPU."""
    cases = setting.cases or ([("quick", 3, 2)] if setting.quick else [("base", 32, 4)])
    for case in cases:
        worker, work = _our_decoding(setting, case, setting.lengths)
        theirs = {key: value for key, value in work.items() if key not in ("folder", "shortlist")}
        yield Contest(
            f"Search, {case[0]}, batch {case[1]}, beam {case[2]}",
            TOKENS,
            [
                contestant
                for dtype in DTYPES
                for contestant in (
                    _whole(f"t2t_keras {dtype}", worker, work | {"dtype": dtype}),
                    Contestant(
                        f"transformers {dtype}",
                        "decode_transformers",
                        theirs | {"dtype": dtype},
                        "transformers",
                    ),
                )
            ],
        )


def serve(setting):
    """One sentence at a time, start-up, and a text file with a trained model."""
    size = "quick" if setting.quick else "base"
    yield _decode(setting, (size, 1, 4), "ms", less_is_better=True)
    size = "quick" if setting.quick else "tiny"
    work = {"folder": setting.folder, "size": size, "beam": 4, "threads": setting.threads}
    heading = f"From the start of pipelines.translate to its first translation, {size}"
    yield Contest(heading, "seconds", [Contestant("t2t_keras", "ours.startup", work)], True)


def text(setting, exports, decoding):
    """The translation of a text file by a trained model, with each engine that has an export.

    Args:
        setting: `Setting` with an input.
        exports: {"saved_model": folder, "ctranslate2": folder}; either may be missing.
        decoding: {"beam": int, "length_penalty": float} of CTranslate2.
    """
    work = {"input": setting.input, "output": os.devnull, "batch": 64, "threads": setting.threads}
    peer = work | decoding | {"model": exports.get("ctranslate2")}
    return Contest(
        f"Text file to text file, {setting.workdir}",
        "sentences/s",
        [
            *_divide_threads(
                "t2t_keras", "ours.text_file", work | {"model": exports["saved_model"]}
            ),
            *(
                contestant
                for d in ("float32", "int8")
                if "ctranslate2" in exports
                for contestant in _divide_threads(
                    f"CTranslate2 {d}",
                    "text_ctranslate2",
                    peer | {"dtype": d},
                    "ctranslate2",
                )
            ),
        ],
    )


def input(setting):
    """Text to batches on one core, of a corpus and of one four times as large."""
    least = 500 if setting.quick else 20_000
    work = {"batches": 3 if setting.quick else 200, "threads": 1}
    yield Contest(
        "Text to batches on one core",
        TOKENS,
        [
            Contestant(f"{lines:,} pairs", "ours.text_to_batches", work | {"lines": lines})
            for lines in (least, 4 * least)
        ],
    )


def scale(setting):
    """How cost grows: decoding with the length and with the batch, training with the tokens."""
    size = "quick" if setting.quick else "tiny"
    lengths = (8, 16) if setting.quick else (16, 32, 64, 128)
    yield Contest(
        f"Decoding by length, {size}, batch 16, beam 4",
        "ms/step",
        [
            _whole(f"{length} tokens", *_our_decoding(setting, (size, 16, 4), (length, length)))
            for length in lengths
        ],
        True,
    )
    batches = (1, 4) if setting.quick else (1, 2, 4, 8, 16, 32, 64)
    yield Contest(
        f"Decoding by batch, {size}, beam 4",
        "ms/sentence",
        [
            _whole(f"{n} sentences", *_our_decoding(setting, (size, n, 4), setting.lengths))
            for n in batches
        ],
        True,
    )
    tokens, vocab = ((64, 128), 1_000) if setting.quick else ((3_125, 12_500, 25_000), 37_000)
    work = {"vocab": vocab, "length": 25, "threads": setting.threads}
    yield Contest(
        f"Most memory of a training step, {vocab:,} words",
        "MiB",
        [Contestant(f"{n:,} tokens", "ours.memory", work | {"tokens": n}) for n in tokens],
        True,
    )


CONTESTS = {
    "train": train,
    "decode": decode,
    "generate": generate,
    "input": input,
    "serve": serve,
    "scale": scale,
}
"""What yields the contests of each sub-command."""


def parse_case(text):
    """Returns (size, batch, beam) of "base:32:4"."""
    try:
        size, batch, beam = text.split(":")
        return size, int(batch), int(beam)
    except ValueError as error:
        raise InputError(f"--cases has {text!r}: give SIZE:BATCH:BEAM, as base:32:4.") from error


def _whole(name, worker, work):
    return Contestant(name, worker, work | {"parts": 1})


def _divide_threads(name, worker, work, peer=None):
    """Yields a contestant whose operations use all cores, and some with 2, 4, … parts.

    The last of them has a part for each core; on a GPU there is none. For a single sentence it uses
    one core, since its operations may be too small to be split between cores. With only one core
    there is no second one.
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
    worker, work = _our_decoding(setting, case, setting.lengths)
    theirs = {key: value for key, value in work.items() if key != "folder"}
    engines = [
        ("t2t_keras", worker, work, EXPORTED, None),
        ("CTranslate2", "decode_ctranslate2", theirs, ("float32", "int8"), "ctranslate2"),
    ]
    contestants = [
        contestant
        for engine, worker, work, dtypes, peer in engines
        for shortlist in (False, True)
        for dtype in dtypes
        for contestant in _divide_threads(
            f"{engine} {dtype}{' with a shortlist' * shortlist}",
            worker,
            work | {"dtype": dtype, "shortlist": shortlist},
            peer,
        )
    ]
    heading = f"Decoding, {size}, batch {batch}, beam {beam}, {source} to {target} tokens"
    return Contest(heading, unit, contestants, less_is_better)


def _our_decoding(setting, case, lengths):
    size, batch, beam = case
    source, target = lengths
    return "ours.decode", {
        "folder": setting.folder,
        "size": size,
        "dtype": "float32",
        "shortlist": False,
        "batch": batch,
        "beam": beam,
        "source": source,
        "target": target,
        "repeats": setting.repeats,
        "threads": setting.threads,
    }
