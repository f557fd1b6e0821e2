"""A campaign of faults: kills, loss of power, flipped bits, full disks, second processes, …

python tools/fault_campaign.py --seed=0 --injections=200 --output_dir=runs/faults [--minutes=30]

Each injection works on a copy of a small run, injects one fault into one command, and runs the same
command again where that must help. A failure is an outcome that differs from that of an unbroken
run without a message, a lost file, or a traceback instead of an error's sentence.
`tools/faults/injections.py` has the faults. The seed and the number of an injection determine it,
except for the exact moment of timed kills and signals. Needs Linux; run as root it mounts small
file systems to fill them.

The results go to injections.jsonl as they come: the same command resumes after a kill, or when
--minutes are over. The table is printed, and written to table.md. The exit code is 1 after a
failure.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from t2t_keras.data.files import write_file
from tools.faults import processes
from tools.faults.commands import Commands, Failure
from tools.faults.injections import INJECTIONS


def main():
    options = _options()
    output = pathlib.Path(options.output_dir).absolute()
    output.mkdir(parents=True, exist_ok=True)
    path, started = output / "injections.jsonl", time.monotonic()
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(row["seed"], row["number"]) for row in rows}
    processes.preload()
    commands = Commands(output / "runs")
    print(f"seed {options.seed}, {options.injections} injections, {len(done)} done", flush=True)
    for number, injection in enumerate(plan(options.seed, options.injections)):
        if (options.seed, number) in done or options.only not in f"{injection[1]}: {injection[2]}":
            continue
        if time.monotonic() - started > 60 * options.minutes:
            print("The time is over: the same command resumes.")
            break
        row = inject(commands, injection, options.seed, number, output / f"tree_{number}")
        rows.append(row)
        with path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(number, *(row[key] for key in ("fault", "command", "ended", "read")), flush=True)
    write_file(output / "table.md", table(rows).encode())
    print(table(rows))
    sys.exit(any(row["ended"] == "FAILED" for row in rows))


def _options():
    # The flags of absl are those of the commands, which run in forks of this process.
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0, help="another seed injects other faults")
    parser.add_argument("--injections", type=int, default=200, help="number of faults")
    parser.add_argument("--output_dir", required=True, help="folder for runs, results and table")
    parser.add_argument(
        "--minutes", type=float, default=math.inf, help="begin no injection after these minutes"
    )
    parser.add_argument("--only", default="", help="inject only 'fault: command' that contain this")
    return parser.parse_args()


def plan(seed, count):
    """Returns a list of `INJECTIONS`, each as often as its weight says, in a random order."""
    repeated = [each for each in INJECTIONS for _ in range(each[3])]
    random.Random(seed).shuffle(repeated)
    return [repeated[number % len(repeated)] for number in range(count)]


def inject(commands, injection, seed, number, tree):
    """Injects one fault; returns its row of the results, a dict."""
    fault, title, name, _ = injection
    started = time.monotonic()
    row = {"seed": seed, "number": number, "fault": title, "command": name, "lost": ""}
    _remove(tree)
    try:
        commands.unbroken(name)
        commands.copy(name, tree)
        result = fault(commands, name, tree, random.Random(f"{seed}/{number}"))
        row |= {"ended": result.ended, "lost": result.lost, "read": result.read}
    except (Failure, TimeoutError) as failure:
        row |= {"ended": "FAILED", "read": str(failure)}
    except Exception:
        row |= {"ended": "FAILED", "read": traceback.format_exc()}
    if row["ended"] != "FAILED":
        _remove(tree)
    return row | {"seconds": round(time.monotonic() - started, 1)}


def _remove(tree):
    for path in tree.parent.glob(f"{tree.name}*"):
        if os.path.ismount(path):  # of a campaign that was killed
            subprocess.run(["umount", path], check=True)
        if path.name == tree.name or path.name.startswith(f"{tree.name}."):
            os.remove(path) if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)


def table(rows):
    """Returns the results as a table in Markdown."""
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["fault"], row["command"]].append(row)
    lines = [
        "| fault | command | injected | no effect | repeated | refused | failed | lost | read |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (fault, command), found in sorted(groups.items()):
        ended = collections.Counter(row["ended"] for row in found)
        lost = sorted({row["lost"] for row in found if row["lost"]}) or ["nothing"]
        read = collections.Counter(row["read"] for row in found if row["read"]).most_common(1)
        counts = [ended[kind] for kind in ("harmless", "repeated", "refused", "FAILED")]
        cells = [fault, command, len(found), *counts, ", ".join(lost), read[0][0] if read else ""]
        lines.append(
            "| "
            + " | ".join(str(c).replace("|", "/").replace("\n", " ")[:200] for c in cells)
            + " |"
        )
    failed = sum(row["ended"] == "FAILED" for row in rows)
    seeds = sorted({row["seed"] for row in rows})
    return "\n".join([*lines, "", f"{len(rows)} injections, {failed} failures; seeds {seeds}", ""])


if __name__ == "__main__":
    main()
