"""Measures t2t_keras and its peers in turn, on the same work, and prints tables.

python tools/benchmark.py train --output_dir=DIR     # training steps: PyTorch, KerasHub
python tools/benchmark.py decode --output_dir=DIR    # beam search and greedy search: CTranslate2
python tools/benchmark.py generate --output_dir=DIR  # the same searches: transformers' generate
python tools/benchmark.py serve --output_dir=DIR     # one sentence at a time, start-up
python tools/benchmark.py input --output_dir=DIR     # text to batches on one core
python tools/benchmark.py scale --output_dir=DIR     # how time and memory grow

With --workdir=RUN, `train` measures that run's real batches as well as its bare step; with
--workdir and --input=FILE, `serve` translates a text file with it, and so does CTranslate2. Each
measurement is a separate process. The contestants run in turn, --rounds times each; after each
round its table is printed, and the files are written. Tables show median, range and the ratio of a
row's speed to each peer's; the last table of `decode` compares each side's best setting of number
format, threads and parallel batches, and what both do without such settings. Peers come from the
extra `bench`, or from the Pythons of --peer_python; --peers= leaves all out. Use an idle machine.
In two minutes: decode --cases=base:32:4 --settings=int8 --rounds=2.
"""

import importlib.util
import os
import pathlib
import platform
import re
import sys
import threading
import time

from absl import flags
from benchmarks.alternation import PEERS, best_against_best, each, find_interpreters, hold, table
from benchmarks.contests import CONTESTS, SETTINGS, Setting, parse_case, text
from paper.shared import OUTPUT_DIR, QUICK, save_tables

from pipelines import app
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError
from t2t_keras.serving import export_saved_model
from t2t_keras.serving.ctranslate2 import export_ctranslate2

ROUNDS = flags.DEFINE_integer("rounds", 5, "Turns of each contestant.", lower_bound=1)
REPEATS = flags.DEFINE_integer("repeats", 8, "Measured calls of each process.", lower_bound=1)
THREADS = flags.DEFINE_integer(
    "threads", len(os.sched_getaffinity(0)), "Cores of each contestant.", lower_bound=1
)
NAMES = flags.DEFINE_list("peers", list(PEERS), "Peers to measure; empty: none.")
PYTHONS = flags.DEFINE_multi_string(
    "peer_python",
    [],
    "PEER=PATH of a Python that has the peer; default: this one, with the extra `bench`.",
)
SIZES = flags.DEFINE_list(
    "sizes",
    None,
    "Models to train, out of tiny, base and paper (base with batches of 25,000 tokens, for GPUs); "
    "default: tiny,base.",
)
XLA = flags.DEFINE_bool(
    "xla",
    False,
    "train: measure steps of ours and of KerasHub by XLA, too; on GPUs ours have it anyway.",
)
CASES = flags.DEFINE_list(
    "cases", None, "What to decode, each SIZE:BATCH:BEAM, as base:32:4; default: all."
)
CHOSEN = flags.DEFINE_list(
    "settings",
    list(SETTINGS),
    f"train, decode, generate, serve: number formats to measure, and whether with a shortlist, "
    f"too; out of {', '.join(SETTINGS)}.",
)
LOCK = flags.DEFINE_string(
    "lock",
    None,
    "train, generate: a file that is created. Contestants start at once, and by its lock each "
    "measures when no other one is at work; XLA then times its kernels beside others. For GPUs, "
    "where starting takes longest; default: one process at a time.",
)
LENGTHS = flags.DEFINE_list("lengths", ["25", "30"], "Tokens of a source and a target to decode.")
WORKDIR = app.define_workdir("Trained run that `train` and `serve` also measure; default: none.")
INPUT = flags.DEFINE_string(
    "input", None, "Text file that `serve` also translates with --workdir; default: none."
)
COMMAND = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else None


def main():
    if COMMAND not in CONTESTS:
        raise InputError(f"the sub-command is {COMMAND!r}: give one of {', '.join(CONTESTS)}.")
    if INPUT.value and not os.path.isfile(INPUT.value):
        raise InputError(f"--input={INPUT.value}: there is no such file; give one of plain text.")
    if LOCK.value and COMMAND not in ("train", "generate"):
        raise InputError(f"--lock={LOCK.value}: only train and generate take it; leave it out.")
    unknown = [name for name in CHOSEN.value if name not in SETTINGS]
    if unknown or CHOSEN.value in ([], ["shortlist"]):
        raise InputError(
            f"--settings={','.join(CHOSEN.value)}: give number formats out of "
            f"{', '.join(SETTINGS[:-1])}, and {SETTINGS[-1]} if it is wanted."
        )
    folder = os.path.abspath(OUTPUT_DIR.value)
    quick = QUICK.value
    setting = Setting(
        quick=quick,
        threads=THREADS.value,
        repeats=2 if quick else REPEATS.value,
        folder=os.path.join(folder, "exports"),
        sizes=SIZES.value,
        cases=CASES.value and [parse_case(case) for case in CASES.value],
        lengths=tuple(int(length) for length in LENGTHS.value),
        workdir=WORKDIR.value,
        input=INPUT.value,
        xla=XLA.value,
        settings=tuple(CHOSEN.value),
    )
    contests = list(CONTESTS[COMMAND](setting))
    if COMMAND == "serve" and setting.workdir and setting.input:
        contests.append(_text_contest(setting))
    wanted = {contestant.peer for contest in contests for contestant in contest.contestants}
    interpreters = find_interpreters(wanted, NAMES.value, PYTHONS.value)
    parts = {"Machine": _machine()} | dict.fromkeys(contest.heading for contest in contests)
    results, writing = {}, threading.Lock()
    lock = LOCK.value and os.path.abspath(LOCK.value)
    rounds = 1 if quick else ROUNDS.value

    def run(contest):
        for figures in hold(contest, rounds, interpreters, lock):
            parts[contest.heading] = table(contest, figures)
            results[contest.heading] = contest, figures
            if COMMAND == "decode":
                parts["Best against best"] = best_against_best(results.values())
            done = {name: part for name, part in parts.items() if part}
            # A contestant that fails later, or a stop, does not take these figures with it.
            with writing:
                save_tables(f"benchmark_{COMMAND}", f"Benchmark: {COMMAND}", done)

    # Two contests of training need more memory than a GPU of 80 GB has.
    list(each(run, contests, together=lock and COMMAND == "generate"))


def _text_contest(setting):
    """Exports the trained model both ways, and returns who translates the text."""
    translator = Workdir(setting.workdir).load_predictor(knn_k=0)
    exports = {"saved_model": os.path.join(setting.folder, "trained")}
    if not os.path.exists(exports["saved_model"]):
        export_saved_model(translator, exports["saved_model"], signatures=["serving_default"])
    if importlib.util.find_spec("ctranslate2"):
        exports["ctranslate2"] = os.path.join(setting.folder, "trained_ctranslate2")
        if not os.path.exists(exports["ctranslate2"]):
            export_ctranslate2(translator, exports["ctranslate2"])
    decoding = {"beam": translator.beam_size, "length_penalty": translator.length_penalty}
    return text(setting, exports, decoding)


def _machine():
    """Returns a description of the machine, str."""
    info, load = pathlib.Path("/proc/cpuinfo"), os.getloadavg()[0]
    names = re.findall(r"model name\s*: (.*)", info.read_text()) if info.exists() else []
    return (
        f"{(names or [platform.processor()])[0]}, {len(os.sched_getaffinity(0))} cores, "
        f"Python {platform.python_version()}, {time.strftime('%Y-%m-%d')}; load when it began: "
        f"{load:.1f}"
    )


if __name__ == "__main__":
    app.take("quick")
    app.require("output_dir")
    app.run(main)
