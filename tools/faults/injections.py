"""The faults: each function injects one into a command and judges what is left.

`INJECTIONS` is the table of faults. An injection works on a copy of the stage that the command
starts from. It injects, looks at what the user reads, and runs the same command again where that
must help: the end has to be that of an unbroken run.
"""

import contextlib
import dataclasses
import fcntl
import functools
import math
import os
import re
import resource
import shutil
import signal
import subprocess
import time

from tools.faults import processes
from tools.faults.commands import COMMANDS, STEPS, Failure
from tools.faults.power import SURVIVALS, PowerLoss
from tools.faults.processes import files_of

_PAGE = 4096  # bytes, the blocks of a tmpfs


@dataclasses.dataclass
class Result:
    """The outcome of one injection.

    Attributes:
        ended: "repeated" (the same command, run again, repaired it), "refused" (with a message that
            says what to do), "harmless" (the outcome is that of an unbroken run).
        lost: str, what was lost; empty for nothing.
        read: str, what the user reads.
    """

    ended: str
    lost: str = ""
    read: str = ""


def _repeat(commands, name, tree, lost=""):
    """Runs the same command again; its end must be that of an unbroken run."""
    commands.require_whole_exports(tree)
    if commands.known[name].once and commands.artifacts(name, tree):
        commands.require_unbroken(name, tree)
        return Result("harmless", lost)
    outcome = commands.run_whole(name, tree)
    commands.require_unbroken(name, tree)
    resumed = re.findall(r"resuming .*|starting over|Resuming .*|.*is damaged.*", outcome.stderr)
    return Result("repeated", lost, _shortened(resumed[-1] if resumed else "", tree))


def kill_at_a_change(commands, name, tree, rng):
    """kill -9 before a change of the tree."""
    _, changes, _ = commands.measure(name)
    process = commands.start(name, tree, processes.kill_at_event(tree, rng.randint(1, changes)))
    process.wait()
    return _repeat(commands, name, tree)


def kill_at_a_time(commands, name, tree, rng):
    """kill -9 at a time."""
    process = commands.start(name, tree)
    process.wait(rng.uniform(0, commands.measure(name)[0]))
    process.send(signal.SIGKILL)
    process.wait()
    return _repeat(commands, name, tree)


def lose_power(commands, name, tree, rng):
    """Loss of power at a sync, with all that was not synced."""
    _, _, syncs = commands.measure(name)
    left = tree.with_name(f"{tree.name}.left")
    survival = rng.choice(SURVIVALS)
    call, after = rng.randint(1, syncs), rng.random() < 0.5
    outcome = commands.run(name, tree, PowerLoss(tree, call, after, survival, left))
    if not left.exists():
        if outcome.code:
            raise Failure(f"{name} ends with {outcome.code}: {outcome.stderr[-1000:]}")
        commands.require_unbroken(name, tree)
        return Result("harmless")
    steps = [max(_steps(folder), default=0) for folder in (tree, left)]
    result = _repeat(commands, name, left)
    if steps[1] < steps[0]:
        result.lost = f"{steps[0] - steps[1]} steps"
        if steps[0] - steps[1] > 2:  # between two checkpoints
            raise Failure(f"step {steps[0]} was saved, step {steps[1]} is left")
    return result


def _steps(tree):
    return [int(path.name[5:]) for path in tree.glob("work/checkpoints/step_*[0-9]")]


def flip(pattern):
    """Returns a fault: one flipped bit of a file."""

    def flip_bit(commands, name, tree, rng):
        paths = [
            path for path in sorted(tree.glob(pattern)) if path.is_file() and path.stat().st_size
        ]
        path = rng.choice(paths)
        content = bytearray(path.read_bytes())
        place = rng.randrange(len(content))
        content[place] ^= 1 << rng.randrange(8)
        path.write_bytes(content)
        return _read_damaged(commands, name, tree)

    return flip_bit


def _read_damaged(commands, name, tree):
    before = files_of(tree)
    outcome = commands.run(name, tree)
    if outcome.code == 0:
        commands.require_unbroken(name, tree)
        warnings = re.findall(r".*is damaged.*|.*starting over.*", outcome.stderr)
        if warnings:
            return Result("repeated", "what was damaged, made again", _shortened(warnings[0], tree))
        return Result("harmless")
    _require_message(outcome)
    _require_unchanged(before, tree)
    return Result("refused", "", _shortened(outcome.last_line, tree))


def _require_message(outcome, code=1):
    if outcome.code != code or not outcome.last_line.startswith("error: "):
        raise Failure(f"exit code {outcome.code}: {outcome.stderr[-2000:]}")
    if "Traceback" in outcome.stderr:
        raise Failure(f"a traceback: {outcome.stderr[-2000:]}")


def _require_unchanged(before, tree):
    """Raises Failure if files that were there are gone or have another content."""
    after = files_of(tree)
    free = re.compile(r"work/(\.lock|logs/.*|config\.json|starts\.json)")
    changed = [
        path
        for path, content in before.items()
        if after.get(path) != content and not free.fullmatch(path)
    ]
    if changed:
        raise Failure(f"changed or lost: {', '.join(changed)}")


def fill_disk(commands, name, tree, rng):
    """A full disk: a small tmpfs, or a limit on the size of files where mounting is not allowed."""
    size = sum(_PAGE * math.ceil(len(content) / _PAGE) for content in files_of(tree).values())
    room = rng.randrange(max(map(len, commands.unbroken(name).values())) + 2 * _PAGE)
    moved = tree.with_name(f"{tree.name}.moved")
    tree.rename(moved)
    tree.mkdir()
    with _mounted(tree, size + room) as mounted:
        shutil.copytree(moved, tree, dirs_exist_ok=True)
        before = files_of(tree)
        outcome = commands.run(
            name, tree, None if mounted else functools.partial(_limit_files, room)
        )
        if outcome.code == 0:
            commands.require_unbroken(name, tree)
            return Result("harmless")
        _require_message(outcome)
        _require_unchanged(before, tree)
        if mounted:
            _remount(tree, "size=200m")
        result = _repeat(commands, name, tree)
        result.read = _shortened(outcome.last_line, tree)
        return result


def _limit_files(size):
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@contextlib.contextmanager
def _mounted(tree, size):
    """Yields whether a tmpfs of this many bytes could be mounted on a folder."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", tree]
    mounted = not subprocess.run(command, capture_output=True, check=False).returncode
    try:
        yield mounted
    finally:
        if mounted:
            subprocess.run(["umount", tree], check=True)


def _remount(tree, option):
    subprocess.run(["mount", "-o", f"remount,{option}", tree], check=True)


def forbid_writing(commands, name, tree, rng):
    """A folder that cannot be written to: a read-only file system, or no permission."""
    moved = tree.with_name(f"{tree.name}.moved")
    tree.rename(moved)
    tree.mkdir()
    with _mounted(tree, 1 << 28) as mounted:
        shutil.copytree(moved, tree, dirs_exist_ok=True)
        before = files_of(tree)
        if mounted:
            _remount(tree, "ro")
        else:
            _permit(tree, 0o555)
        outcome = commands.run(name, tree)
        _require_message(outcome)
        _require_unchanged(before, tree)
        if mounted:
            _remount(tree, "rw")
        else:
            _permit(tree, 0o755)
        result = _repeat(commands, name, tree)
        result.read = _shortened(outcome.last_line, tree)
        return result


def _permit(tree, mode):
    for folder, _, _ in os.walk(tree):
        os.chmod(folder, mode)


def terminate_twice(commands, name, tree, rng):
    """SIGTERM, sent twice."""
    process = commands.start(name, tree)
    deadline = time.monotonic() + processes.TIMEOUT
    wanted = rng.randrange(STEPS - 4)
    while process.poll() is None and max(_steps(tree), default=-1) < wanted:
        time.sleep(0.001)
        if time.monotonic() > deadline:
            raise Failure("no checkpoint")
    before = max(_steps(tree), default=0)
    process.send(signal.SIGTERM)
    time.sleep(rng.uniform(0, 0.2))
    process.send(signal.SIGTERM)
    outcome = process.wait()
    if outcome.code not in (0, 75, -signal.SIGTERM):
        raise Failure(f"exit code {outcome.code}: {outcome.stderr[-1000:]}")
    if outcome.code == 75 and max(_steps(tree)) < before:
        raise Failure("the last checkpoint is gone")
    result = _repeat(commands, name, tree)
    result.read = f"exit code {outcome.code}; {result.read}"
    return result


def start_twice(second):
    """Returns a fault: another command on the same folder while the first one runs."""

    def start(commands, name, tree, rng):
        lock = tree / ("out.de.lock" if name == "translate" else "work/.lock")
        if name == "translate":
            lock = tree / ".out.de.unfinished"
        process = commands.start(name, tree)
        while process.poll() is None and not _is_locked(lock):
            time.sleep(0.001)
        other = tree.with_name(f"{tree.name}.second")
        other.symlink_to(tree)  # has a folder for its own output
        outcome = commands.run(second, other)
        if process.poll() is not None:
            commands.require_unbroken(name, tree)
            return Result("harmless")
        _require_message(outcome)
        if rng.random() < 0.5:  # the lock dies with its owner
            process.send(signal.SIGKILL)
            process.wait()
            result = _repeat(commands, name, tree)
        else:
            if first := process.wait().code:
                raise Failure(f"the first one ends with {first}")
            commands.require_unbroken(name, tree)
            result = Result("refused")
        result.read = _shortened(outcome.last_line, other)
        return result

    return start


def _is_locked(path):
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True


def set_clock_back(commands, name, tree, rng):
    """A kill, then a clock that is years behind and runs backward, and files of any time."""
    _, changes, _ = commands.measure(name)
    commands.start(name, tree, processes.kill_at_event(tree, rng.randint(1, changes))).wait()
    now = time.time()
    for folder, _, names in os.walk(tree):
        for path in (folder, *(os.path.join(folder, each) for each in names)):
            os.utime(path, (now, now + rng.uniform(-1e8, 1e8)))
    outcome = commands.run_whole(name, tree, processes.set_clock_back)
    commands.require_unbroken(name, tree)
    del outcome
    return Result("repeated")


def _shortened(line, tree):
    line = line.replace(os.fspath(tree), "…").removeprefix("error: ")
    line = re.sub(r"^[IWE]\d{4} [\d:.]+ +\d+ [\w.]+:\d+\] ", "", line)
    line = re.sub(r"process \d+ on \S+\)", "process … on …)", line)
    return re.sub(r"\b\d+|(?<=_)\d+", "#", line)


_ALL = tuple(COMMANDS)

INJECTIONS = [
    # (fault, how it is named, command, weight)
    *(
        (kill_at_a_change, "kill -9 before a change of files", name, weight)
        for name, weight in zip(_ALL, (8, 8, 8, 4, 3, 3, 3), strict=True)
    ),
    *(
        (kill_at_a_time, "kill -9 at any time", name, weight)
        for name, weight in zip(_ALL, (7, 8, 5, 5, 4, 4, 3), strict=True)
    ),
    *(
        (lose_power, "loss of power", name, weight)
        for name, weight in zip(_ALL, (8, 9, 8, 5, 4, 4, 3), strict=True)
    ),
    (flip("work/checkpoints/step_*/*"), "flipped bit, checkpoint", "resumed train", 9),
    (flip("work/checkpoints/average_*/*"), "flipped bit, average", "use of a run", 5),
    (flip("work/tokens/*/0*"), "flipped bit, shard", "resumed train", 10),
    (flip("work/tokens/*/report.json"), "flipped bit, report of shards", "resumed train", 4),
    (flip("work/tokens/.*/journal.json"), "flipped bit, journal of shards", "resumed prepare", 5),
    (flip("work/tokens/.*/0*"), "flipped bit, unfinished shard", "resumed prepare", 4),
    (
        flip(".out.de.unfinished.json"),
        "flipped bit, journal of a translation",
        "resumed translate",
        5,
    ),
    (flip(".out.de.unfinished"), "flipped bit, unfinished translation", "resumed translate", 3),
    (flip("work/vocabulary/*"), "flipped bit, vocabulary", "use of a run", 9),
    (flip("work/config.json"), "flipped bit, config", "use of a run", 7),
    (flip("work/metrics.csv"), "flipped bit, metrics", "resumed train", 6),
    (flip("bundle/**/*"), "flipped bit, bundle", "use of a bundle", 5),
    (flip("export/1/*"), "flipped bit, export", "use of an export", 4),
    (flip("export/1/variables/*"), "flipped bit, export's weights", "use of an export", 4),
    *(
        (fill_disk, "full disk", name, weight)
        for name, weight in zip(_ALL, (4, 5, 4, 3, 2, 2, 2), strict=True)
    ),
    *((forbid_writing, "read-only folder", name, 1) for name in _ALL),
    (terminate_twice, "SIGTERM twice", "train", 6),
    (start_twice("train"), "two processes: train", "train", 1),
    (start_twice("prepare"), "two processes: prepare", "train", 1),
    (start_twice("average"), "two processes: average", "train", 1),
    (start_twice("translate"), "two processes: translate", "translate", 2),
    *((set_clock_back, "clock set back", name, 1) for name in ("prepare", "train", "translate")),
]
"""The faults, each with a command and its weight, the number of injections out of some 200."""
