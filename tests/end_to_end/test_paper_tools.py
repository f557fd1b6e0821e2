"""The paper's tables and figures as commands: what they leave, beside closed forms."""

import csv
import json
import math
import os
import re

import matplotlib.image
import numpy as np
import pytest

from pipelines.configs import table3, variations
from tests.end_to_end.binaries import ROOT, SMALL
from tests.processes import run_python


def run(tool, folder, *flags, code=0):
    """Runs a tool of the paper; returns its JSON, or its last line of errors."""
    command = f"tools/paper/{tool}.py", f"--output_dir={folder}", *map(str, flags)
    environment = os.environ | {"TF_CPP_MIN_LOG_LEVEL": "2"}
    done = run_python(*command, code=code, cwd=ROOT, env=environment)
    if code:
        return done.stderr.splitlines()[-1]
    text = (folder / f"{tool}.md").read_text()
    assert done.stdout.startswith(text) and text.startswith("# ")
    return json.loads((folder / f"{tool}.json").read_text())


def part(content, beginning):
    return next(value for name, value in content.items() if name.startswith(beginning))


def seen(folder, *names):
    for name in names:
        image = matplotlib.image.imread(folder / f"{name}.png")[..., :3]
        assert np.mean(np.ptp(image, axis=-1) > 0.2) > 0.001


@pytest.mark.slow  # tests/tools/test_layer_types.py checks its formulas and measurements
def test_table_1(tmp_path):
    flags = ["--longest=128", "--widest=128", "--seconds=0", "--batch=1", "--kernel=5"]
    content = run("table1", tmp_path, *flags, "--window=4")
    rows = {row["Layer"]: list(row.values()) for row in part(content, "As the paper")}
    n, d, k, r = 128, 64, 5, 4
    expected = {  # complexity, sequential operations and path length
        "Self-attention": (n**2 * d, 1, 1),
        "Recurrent (GRU)": (n * d**2, n, n),
        "Convolutional": (k * n * d**2, 1, pytest.approx(math.log(n, k), abs=0.06)),
        "Self-attention (restricted)": (r * n * d, 1, n / r),
    }
    assert {layer: tuple(rows[layer][4:7]) for layer in expected} == expected
    for row in part(content, "Exponents"):
        assert all(np.isfinite(row[name]) for name in ("FLOPs, n", "time, n", "memory, n"))
    seen(tmp_path, "table1")


@pytest.mark.slow
def test_table_2(trained, tmp_path):
    flags = (f"--workdir={trained}", "--batches=3", "--sustained_flops=1e9", "--devices=2")
    content = run("table2", tmp_path, *flags)
    cost = {row["Measure"]: row["Value"] for row in content["Its cost in detail"]}
    assert cost["steps"] == 20
    closed = part(cost, "FLOPs of a step of ")
    assert cost["the same from the graph"] == closed > 0
    assert cost["FLOPs, counted"] == pytest.approx(20 * part(cost, "FLOPs of a step (mean"))
    seconds = float(list(csv.DictReader((trained / "metrics.csv").open()))[-1]["seconds"])
    assert cost["FLOPs by time"] == pytest.approx(seconds * 2 * 1e9)
    base, big = content["The paper's runs, counted (sentences of 28 tokens)"]
    # Section 5.2: 12 hours and 3.5 days on 8 P100 of 9.5 TFLOPS.
    assert base["FLOPs by time"] == pytest.approx(12 * 3600 * 8 * 9.5e12)
    assert big["FLOPs by time"] == pytest.approx(3.5 * 86400 * 8 * 9.5e12)
    for row in (base, big):
        assert row["FLOPs in Table 2"] == pytest.approx(row["FLOPs by time"], rel=0.02)
    # 6 FLOPs for each weight in each position, all weights being about 63 and 214 million: encoder
    # and decoder see 25,000 positions each, the embedding matrix only the decoder's.
    assert base["FLOPs, counted"] == pytest.approx(100_000 * 25_000 * 6 * 63e6, rel=0.1)
    assert big["FLOPs, counted"] == pytest.approx(300_000 * 25_000 * 6 * 214e6, rel=0.1)
    (mine,) = content["This run"]
    assert 0 <= part(mine, "BLEU en-de, test, 10 sentences") <= 100
    assert "tok:13a" in content["Signature"]


@pytest.mark.slow  # what it trains with is tested by itself
def test_table_3(corpus_folder, tmp_path):
    flags = [flag for flag in SMALL if ".steps" not in flag and ".validation_s" not in flag]
    flags += [f"--config.data.folder={corpus_folder}", "--steps=4", "--sentences=3"]
    flags += ["--size_factor=0.0625", "--layer_factor=0.2"]
    content = run("table3", tmp_path, *flags, "--rows=base,C7")
    counts = {row["Row"]: row for row in content["Parameters of the paper's rows"]}
    for row in counts.values():
        if row["Row"] != "big" and row["the paper, ×10⁶"]:
            assert row["at 41,200 ids"] == pytest.approx(row["the paper, ×10⁶"], abs=0.5)
    assert counts["big"]["at 37,000 ids"] == pytest.approx(213, abs=1.5)
    sweep = {row["Row"]: row for row in part(content, "The sweep")}
    assert len(sweep) == 22
    sizes = ("N", "d_model", "d_ff", "h", "d_k", "steps")
    assert [sweep["base"][name] for name in sizes] == [1, 32, 128, 8, 4, 4]
    assert [sweep["B1"][name] for name in sizes] == [1, 32, 128, 8, 1, 4]
    assert [sweep["C3"][name] for name in sizes] == [2, 32, 128, 8, 4, 4]
    assert [sweep["big"][name] for name in sizes] == [1, 64, 256, 16, 4, 12]
    assert [row["Row"] for row in sweep.values() if row["PPL"] and row["PPL"] > 1] == ["base", "C7"]
    assert [row["Row"] for row in content["What agrees"]] == ["C7"]

    def changed():
        return {p: p.stat().st_mtime_ns for p in (tmp_path / "table3").rglob("*") if p.is_file()}

    before = changed()
    again = run("table3", tmp_path, *flags, "--rows=base,C7")  # nothing is left to do
    assert part(again, "The sweep") == [*sweep.values()]
    assert changed() == before
    rows = {path.relative_to(tmp_path).parts[1] for path in before}
    assert rows == {"corpus", "base", "C7"}


@pytest.mark.slow
def test_table_4(trained, tmp_path):
    scores = tmp_path / "scores.json"
    scores.write_text(
        'a line of its own\n{"f1": 91.234, "sentences": 2416, "well_formed": 100.0}\n'
    )
    content = run("table4", tmp_path, f"--scores={scores}")
    *paper, mine = content["F1"]
    assert mine["F1 here"] == 91.23 and "2416" in mine["Training"]
    transformer = [row["F1 on WSJ 23"] for row in paper if row["Parser"].startswith("Transformer")]
    assert transformer == [91.3, 92.7]
    message = run("table4", tmp_path, f"--workdir={trained}", code=1)
    assert "holds a run of task 'translation'" in message


@pytest.mark.slow  # tests/analysis and tests/tools check its formulas and plots
def test_figures(trained, tmp_path):
    flags = ("--offset=7", "--model_dim=64", "--positions=300", "--sentence=one two")
    content = run("figures", tmp_path, f"--workdir={trained}", *flags)
    assert content["PE(pos + k) = M_k PE(pos), k = 7"]
    for row in content["Scores of standard normal queries and keys"]:
        assert row["variance of q·k / √d_k"] == pytest.approx(1, rel=0.1)
    seen(tmp_path, "positions", "position_shift", "learning_rate", "score_scale")
    seen(tmp_path, "figure3", "figure4", "figure5", "matrices_cross", "heads")
    assert len((tmp_path / "alignment.txt").read_text().splitlines()) == 10
    assert (tmp_path / "attention.html").exists()


def test_names_in_the_guide_exist():
    text = (ROOT / "tools" / "paper" / "README.md").read_text()
    paths = re.findall(r"`((?:t2t_keras|pipelines)/[\w./]*)`|(pipelines/configs/\w+\.py)", text)
    assert len(paths) > 30 and all((ROOT / (one or other)).exists() for one, other in paths)
    named = re.findall(r"configs/(\w+)\.py:(\w+)", text)
    assert {name for _, name in named} <= {*variations.VARIATIONS, *table3.ALL_ROWS}
    binaries = set(re.findall(r"python -m pipelines\.(\w+)|python tools/paper/(\w+\.py)", text))
    for binary, tool in binaries:
        path = f"pipelines/{binary}.py" if binary else f"tools/paper/{tool}"
        assert (ROOT / path).exists()
