"""The commands that faults are injected into, and what they leave when nothing fails.

A command starts from a stage: a small run that is prepared, trained, exported, or interrupted half
way. `Commands` makes each stage once, copies it, runs commands on the copy, and compares what they
leave with what an unbroken run left, bit by bit.
"""

import csv
import dataclasses
import fnmatch
import functools
import pathlib
import random
import shutil
import signal
import time

from t2t_keras.data.files import CHECKSUMS, check_checksums
from t2t_keras.errors import InputError
from tools.faults import processes
from tools.faults.power import SURVIVALS, PowerLoss
from tools.faults.processes import files_of

STEPS = 20
_CONFIG = pathlib.Path(__file__).parents[2] / "pipelines" / "configs" / "multi30k_en_de.py"
_FIELDS = {
    "model.vocab_size": 330,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "model.model_dim": 32,
    "model.feed_forward_dim": 64,
    "model.num_heads": 2,
    "data.tokens_per_batch": 200,
    "train.steps": STEPS,
    "train.log_every": 1,
    "train.validate_every": 10,
    "train.validation_sentences": 0,
    "train.checkpoint_every": 2,
    "train.keep_checkpoints": 4,
    "train.average_checkpoints": 2,
    "train.optimizer": "adam",
    "train.weight_decay": 0,
    "train.micro_batches": 1,
    "train.parallel_micro_batches": 1,
    "train.mixed_precision": "",
    "train.deterministic": "true",
    "decode.max_extra_tokens": 5,
    "knn.k": 0,
}
_WORDS = {
    "en": ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"],
    "de": ["null", "eins", "zwei", "drei", "vier", "fünf", "sechs", "sieben", "acht", "neun"],
}
_ROWS = ("step", "loss", "validation_loss")


class Failure(Exception):
    """The files after a fault are not as they must be."""


@dataclasses.dataclass(frozen=True)
class Command:
    """A command and the tree that it works on.

    Args:
        module: name of the module.
        stage: name of the tree that it starts from.
        arguments: function of (tree, folder of `Commands`) to a list of str.
        artifacts: patterns of the files that must be those of an unbroken run.
        once: whether it refuses to run again once its artifacts are there.
    """

    module: str
    stage: str
    arguments: object
    artifacts: tuple
    once: bool = False


def _training(tree, home):
    fields = [f"--config.{name}={value}" for name, value in _FIELDS.items()]
    return [f"--config={_CONFIG}", *fields, f"--config.data.folder={home}/corpus", _work(tree)]


def _work(tree):
    return f"--workdir={tree}/work"


COMMANDS = {
    "prepare": Command(
        "pipelines.prepare", "nothing", _training, ("work/tokens/*", "work/vocabulary/*")
    ),
    "train": Command(
        "pipelines.train",
        "prepared",
        _training,
        (
            "work/tokens/*",
            "work/vocabulary/*",
            f"work/checkpoints/step_{STEPS:08d}/*",
            f"work/checkpoints/average_{STEPS:08d}/*",
            "work/metrics.csv",
        ),
    ),
    "average": Command(
        "pipelines.average",
        "trained",
        lambda tree, home: [_work(tree), "--last=3"],
        ("work/checkpoints/*",),
    ),
    "translate": Command(
        "pipelines.translate",
        "trained",
        lambda tree, home: [
            _work(tree),
            f"--input={home}/input.en",
            f"--output={tree}/out.de",
            "--batch_size=1",
            "--beam_size=1",
        ],
        ("out.de",),
    ),
    "export": Command(
        "pipelines.export",
        "trained",
        lambda tree, home: [
            _work(tree),
            f"--output={tree}/export",
            "--signatures=serving_default",
            "--verify=false",  # which only reads, and takes longer than all the rest
        ],
        ("work/checkpoints/*",),
    ),
    "import": Command(
        "pipelines.import_model",
        "converted",
        lambda tree, home: [f"--from={tree}/engine", f"--workdir={tree}/imported"],
        ("imported/*",),
        once=True,
    ),
    "save": Command(
        "tools.faults.bundle",
        "trained",
        lambda tree, home: [_work(tree), f"--bundle={tree}/bundle"],
        ("bundle/*",),
        once=True,
    ),
}
_READERS = {
    "convert": Command(
        "pipelines.export_ctranslate2",
        "trained",
        lambda tree, home: [_work(tree), f"--output={tree}/engine"],
        ("engine/*",),
    ),
    "use of a bundle": Command(
        "tools.faults.bundle",
        "saved",
        lambda tree, home: [
            f"--bundle={tree}/bundle",
            f"--input={home}/few.en",
            f"--output={tree}/few.de",
        ],
        ("few.de",),
    ),
    "use of an export": Command(
        "pipelines.translate",
        "exported",
        lambda tree, home: [
            f"--saved_model={tree}/export/1",
            f"--input={home}/few.en",
            f"--output={tree}/few.de",
        ],
        ("few.de",),
    ),
    "use of a run": Command(
        "pipelines.translate",
        "trained",
        lambda tree, home: [_work(tree), f"--input={home}/few.en", f"--output={tree}/few.de"],
        ("few.de",),
    ),
    "resumed prepare": dataclasses.replace(COMMANDS["prepare"], stage="half prepared"),
    "resumed translate": dataclasses.replace(COMMANDS["translate"], stage="half translated"),
    "resumed train": dataclasses.replace(COMMANDS["train"], stage="half trained"),
    "finished train": dataclasses.replace(COMMANDS["train"], stage="trained"),
}

_STAGE_AFTER = {
    "prepare": "prepared",
    "train": "trained",
    "export": "exported",
    "save": "saved",
    "convert": "converted",
}
_COMMAND_OF_HALF = {
    "half prepared": "prepare",
    "half trained": "train",
    "half translated": "translate",
}


class Commands:
    """The commands, the stages that they start from, and what they leave when nothing fails.

    Args:
        home: folder for the stages; what is complete in it is used again.
    """

    def __init__(self, home):
        self.home = pathlib.Path(home).absolute()
        self.home.mkdir(parents=True, exist_ok=True)
        self.known = COMMANDS | _READERS
        self._write_text()

    def _write_text(self):
        (self.home / "corpus").mkdir(exist_ok=True)
        for seed, (split, count) in enumerate({"train": 300, "val": 20, "test": 10}.items()):
            rng = random.Random(seed)
            digits = [rng.choices(range(10), k=rng.randint(1, 6)) for _ in range(count)]
            for side, words in _WORDS.items():
                lines = (" ".join(words[digit] for digit in row) for row in digits)
                (self.home / "corpus" / f"{split}.{side}").write_text(
                    "".join(f"{x}\n" for x in lines)
                )
        lines = (self.home / "corpus" / "train.en").read_text().splitlines(keepends=True)
        (self.home / "input.en").write_text("".join(lines[:200]))
        (self.home / "few.en").write_text("".join(lines[:4]))

    def run(self, name, tree, setup=None):
        """Runs a command on a tree; returns its `Outcome`."""
        return processes.run(*self._start(name, tree, setup))

    def start(self, name, tree, setup=None):
        """Starts a command on a tree; returns its `Process`."""
        return processes.start(*self._start(name, tree, setup))

    def _start(self, name, tree, setup):
        command = self.known[name]
        logs = tree.with_name(f"{tree.name}.output")
        logs.mkdir(exist_ok=True)

        def whole_setup():
            _smaller_blocks()
            if setup:
                setup()

        arguments = command.arguments(tree, self.home)
        return command.module, arguments, logs, whole_setup

    def run_whole(self, name, tree, setup=None):
        """Runs a command that must succeed.

        Raises:
            Failure: if it does not.
        """
        outcome = self.run(name, tree, setup)
        if outcome.code:
            raise Failure(f"{name} ends with {outcome.code}: {outcome.stderr[-2000:]}")
        return outcome

    def copy(self, name, tree):
        """Copies the stage that a command starts from to a folder."""
        shutil.copytree(self._stage(self.known[name].stage), tree, symlinks=True)

    @functools.cache  # noqa: B019  one object in a process
    def _stage(self, name):
        made = self.home / "stages" / name.replace(" ", "_")
        if not made.exists():
            unfinished = made.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.parent.mkdir(exist_ok=True)
            self._make_stage(name, unfinished)
            unfinished.rename(made)
        return made

    def _make_stage(self, name, tree):
        if name == "nothing":
            tree.mkdir()
            return
        whole = {stage: command for command, stage in _STAGE_AFTER.items()}
        before = _COMMAND_OF_HALF.get(name) or whole[name]
        self.copy(before, tree)
        if name in whole:
            self.run_whole(before, tree)
            return
        wanted = {
            "half prepared": "work/tokens/.train.unfinished/journal.json",
            "half trained": "work/checkpoints/step_00000006/*",
            "half translated": ".out.de.unfinished.json",
        }[name]
        process = self.start(before, tree)
        while process.poll() is None and not list(tree.glob(wanted)):
            time.sleep(0.0005)
        process.send(signal.SIGKILL)
        process.wait()
        if not list(tree.glob(wanted)):
            raise Failure(f"no {name}: {wanted} never appeared")

    @functools.cache  # noqa: B019
    def unbroken(self, name):
        """Returns {path: bytes} of what a command leaves when nothing fails."""
        base = next(
            other for other in COMMANDS if COMMANDS[other].module == self.known[name].module
        )
        base = name if self.known[name].artifacts != COMMANDS[base].artifacts else base
        if base in _STAGE_AFTER:
            return self.artifacts(name, self._stage(_STAGE_AFTER[base]))
        folder = self.home / "unbroken" / base.replace(" ", "_")
        if not folder.exists():
            unfinished = folder.with_suffix(".unfinished")
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.parent.mkdir(exist_ok=True)
            self.copy(base, unfinished)
            self.run_whole(base, unfinished)
            unfinished.rename(folder)
        return self.artifacts(name, folder)

    def artifacts(self, name, tree):
        """Returns {path: content} of a tree's files that must be those of an unbroken run."""
        patterns = self.known[name].artifacts
        found = {
            path: content
            for path, content in files_of(tree).items()
            if any(fnmatch.fnmatch(path, pattern) for pattern in patterns)
        }
        if rows := found.get("work/metrics.csv"):
            table = csv.DictReader(rows.decode(errors="replace").splitlines())
            found["work/metrics.csv"] = [[row.get(name) for name in _ROWS] for row in table]
        return found

    def require_unbroken(self, name, tree):
        """Raises Failure unless a tree is that of an unbroken run."""
        found, expected = self.artifacts(name, tree), self.unbroken(name)
        different = {
            path for path in found.keys() | expected if found.get(path) != expected.get(path)
        }
        if different:
            raise Failure(f"{name}: {', '.join(sorted(different))} not as in an unbroken run")
        self.require_whole_exports(tree)

    @staticmethod
    def require_whole_exports(tree):
        """Raises Failure if a numbered version of an export is not complete."""
        for version in tree.glob("export/[0-9]*"):
            if version.name.isdigit():
                try:
                    check_checksums(version)
                except InputError as error:
                    raise Failure(f"a published export is damaged: {error}") from error
                if not (version / CHECKSUMS).exists():
                    raise Failure(f"a published export is not complete: {version}")

    @functools.cache  # noqa: B019
    def measure(self, name):
        """Returns a command's seconds, and its numbers of changes of the tree and of syncs."""
        tree = self.home / "measured" / name
        shutil.rmtree(tree.parent, ignore_errors=True)
        tree.parent.mkdir()
        changes, syncs = (tree.with_name(f"{name}.{kind}") for kind in ("changes", "syncs"))

        def setup():
            processes.count_events(tree, changes)()
            PowerLoss(tree, None, False, SURVIVALS[0], syncs)()

        self.copy(name, tree)
        started = time.monotonic()
        self.run_whole(name, tree, setup)
        return time.monotonic() - started, changes.stat().st_size, syncs.stat().st_size


def _smaller_blocks():
    """Makes a small corpus many blocks for `prepare`, and a small file many windows."""
    from pipelines import batch_inference  # noqa: PLC0415  in the child alone
    from t2t_keras.data import shard_writing  # noqa: PLC0415

    shard_writing.PAIRS_PER_BLOCK, shard_writing._BLOCKS_PER_JOURNAL_ENTRY = 16, 2
    batch_inference._BATCHES_PER_WINDOW = 16
