"""README's figures: the file that they come from, and the tool that reruns them."""

import importlib
import json
import pathlib
import re
import statistics
import subprocess

import pytest

from t2t_keras.errors import InputError
from tests.warm_python import warm_python
from tools.headline import figures, reruns
from tools.headline.figures import FIGURES

ROOT = pathlib.Path(__file__).parents[2]
PUBLISHED = json.loads((ROOT / "tools" / "results.json").read_text())["figures"]
TABLE = re.findall(r"(?:^\|.*\n)+", (ROOT / "README.md").read_text(), flags=re.MULTILINE)[0]
CELLS = [re.split(r" *\| *", line)[1:-1] for line in TABLE.splitlines()[2:]]


def numbers(text):
    """Returns the numbers in a text, but those within words, such as int8."""
    return set(re.findall(r"(?<![\w.])\d+(?:[.,]\d+)*", text))


def published_numbers(row):
    values = [f"{value:.2f}" for value in reruns.stated(row)]
    if row["mean"] is not None:
        values.append(str(len(row["runs"])))  # "means of 2 seeds"
    if row["deviation"] is not None:
        values.append(f"{row['deviation']:.2f}")
    beside = " ".join(f"{name} {value}" for name, value in row["beside"].items())
    return set(values) | numbers(beside)


def test_readme_has_the_rows_of_the_published_figures():
    rows = dict.fromkeys(row["row"] for row in PUBLISHED)
    assert [cells[0] for cells in CELLS] == list(rows)


@pytest.mark.parametrize("cells", CELLS, ids=lambda cells: cells[0])
def test_every_number_of_readmes_table_is_a_published_figure_and_the_reverse(cells):
    row, *texts, command = cells
    held = [figure for figure in PUBLISHED if figure["row"] == row]
    assert numbers(" ".join(texts)) == set().union(*map(published_numbers, held))
    commands = "\n".join(line for figure in held for line in figure["commands"])
    parts = [part for code in re.findall("`(.*?)`", command) for part in code.split("…")]
    assert parts
    for part in parts:
        assert part.removeprefix("--config.data.folder=") in commands


def test_the_published_figures_are_those_that_the_tool_measures():
    assert [row["figure"] for row in PUBLISHED] == [figure.name for figure in FIGURES]
    for figure, row in zip(FIGURES, PUBLISHED, strict=True):
        now = reruns._new_row(figure)
        assert all(row[key] == now[key] for key in ("row", "what", "commands", "beside"))


def test_published_means_are_those_of_their_seeds():
    for row in PUBLISHED:
        values = [run["value"] for run in row["runs"]]
        assert (row["mean"] is None) == (row["runs"][0]["seed"] is None)
        if row["mean"] is not None:  # of values that were not yet rounded
            assert row["mean"] == pytest.approx(statistics.fmean(values), abs=0.0051)
        assert (row["deviation"] is None) == (row["mean"] is None or len(values) < 3)
        assert all(run["date"] and run["commit"] and run["machine"] for run in row["runs"])


@pytest.mark.parametrize("figure", [*FIGURES, *map(figures.toy, FIGURES)], ids=lambda f: f.name)
def test_the_fields_of_every_training_are_those_of_its_config(figure):
    for command in figure.commands:
        if "pipelines.train" not in command:
            assert (ROOT / command[0]).is_file() or command[1] == "pipelines.evaluate"
            continue
        name = command[2].removeprefix("--config=")
        config = importlib.import_module(f"pipelines.configs.{name}").get_config()
        fields = [re.match(r"--config\.(\w+)\.(\w+)=", flag) for flag in command[3:]]
        fields = [field for field in fields if field]
        assert len(fields) >= 2
        assert all(field[2] in config[field[1]] for field in fields)


@pytest.mark.parametrize(
    ("values", "expected", "outcome"),
    [
        ([41.0], [40.5, 42.5], "in range"),
        ([42.6, 40.6], [40.5, 42.5], "in range"),  # their mean is
        ([40.4], [40.5, 42.5], "OUT OF RANGE"),
        ([42.6], [40.5, 42.5], "OUT OF RANGE"),
    ],
)
def test_a_mean_over_seeds_must_be_near_the_published_one(values, expected, outcome):
    figure = FIGURES[0]._replace(tolerance=1.0)
    runs = [{"seed": seed, "value": value} for seed, value in enumerate(values)]
    row = {"runs": runs, "problem": None} | reruns._summary(runs)
    judged = reruns.judge(figure, row, {"mean": 41.5, "runs": []})
    assert (judged["expected"], judged["outcome"]) == (expected, outcome)
    assert reruns.judge(figure, row, None)["outcome"] in reruns.GOOD
    failed = reruns.judge(figure, row | {"problem": "failed: …"}, None)
    assert failed["outcome"] == "failed: …" not in reruns.GOOD


def test_a_speed_must_be_near_that_of_one_of_the_published_machines():
    def run(value):
        return {"seed": None, "value": value}

    published = {"mean": None, "runs": [run(1.18), run(1.39)]}
    for value, inside in ((0.97, False), (0.99, True), (1.58, True), (1.6, False)):
        row = {"mean": None, "runs": [run(value)], "problem": None}
        judged = reruns.judge(FIGURES[-1]._replace(tolerance=0.2), row, published)
        assert (judged["outcome"] in reruns.GOOD) == inside
        assert judged["expected"] == [0.98, 1.59]


def test_standard_deviation_is_given_from_three_seeds_on():
    runs = [{"seed": seed, "value": value} for seed, value in enumerate((1.0, 2.0, 6.0))]
    assert reruns._summary(runs[:2]) == {"mean": 1.5, "deviation": None}
    assert reruns._summary(runs) == {"mean": 3.0, "deviation": 2.65}  # √7
    speed = [{"seed": None, "value": 1.0}] * 3
    assert reruns._summary(speed) == {"mean": None, "deviation": None}


class Runner:
    """Stands in for `run_command`: a training of seed n has BLEU 40 + n."""

    def __init__(self, ends_after=99, fails=""):
        self.commands, self._ends_after, self._fails = [], ends_after, fails

    def __call__(self, arguments):
        if len(self.commands) == self._ends_after:
            raise KeyboardInterrupt
        self.commands.append(" ".join(arguments))
        if self._fails and self._fails in self.commands[-1]:
            raise InputError("it ended with code 1")
        seed = int(re.search(r"seed_(\d+)", self.commands[-1])[1])
        return f"Scoring\n{json.dumps({'bleu': 40.0 + seed})}\n"


TWO = FIGURES[:2]  # with and without kNN, of the same trainings


def collect(folder, run, earlier=(), chosen=TWO):
    rows = []
    try:
        for rows in reruns.rerun(chosen, earlier, folder, folder, {"commit": "c"}, run):  # noqa: B007
            pass
    except KeyboardInterrupt:
        return json.loads(json.dumps(rows))
    return json.loads(json.dumps(rows))


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "multi30k" / "tok").mkdir(parents=True)
    return tmp_path


def test_figures_share_their_trainings_and_have_a_value_for_each_seed(folder):
    run = Runner()
    rows = collect(folder, run)
    assert [len(row["runs"]) for row in rows] == [3, 3]
    assert (rows[0]["mean"], rows[0]["deviation"], rows[0]["problem"]) == (42.0, 1.0, None)
    assert [one["value"] for one in rows[1]["runs"]] == [41.0, 42.0, 43.0]
    assert sum("pipelines.train" in command for command in run.commands) == 3
    assert len(run.commands) == len(set(run.commands)) == 9
    assert not any("{" in command for command in run.commands)


def test_an_interrupted_rerun_resumes_and_keeps_finished_values(folder):
    rows = collect(folder, Runner(ends_after=5))
    assert [len(row["runs"]) for row in rows] == [2, 0]
    run = Runner()
    rows = collect(folder, run, rows)
    assert [[one["seed"] for one in row["runs"]] for row in rows] == [[1, 2, 3]] * 2
    assert len([c for c in run.commands if "evaluate" in c and "--knn_k=0" not in c]) == 1
    nothing = Runner()
    assert collect(folder, nothing, rows) == rows
    assert nothing.commands == []
    assert [row["figure"] for row in collect(folder, nothing, rows, chosen=TWO[:1])] == [
        figure.name for figure in TWO
    ]


def test_values_of_other_commands_are_not_taken(folder):
    rows = collect(folder, Runner())
    with pytest.raises(InputError, match="holds multi30k_en_de by other commands"):
        collect(folder, Runner(), rows, chosen=[figures.toy(figure) for figure in TWO])


def test_a_failure_and_missing_data_are_said_and_the_other_figures_are_measured(folder):
    parsing = next(figure for figure in FIGURES if figure.name == "parsing")
    run = Runner(fails="--lowercase --knn_k=0")
    first, second, third = collect(folder, run, chosen=[TWO[1], TWO[0], parsing])
    assert (first["runs"], first["mean"]) == ([], None)
    assert first["problem"] == "failed: InputError: it ended with code 1"
    assert second["mean"] == 42.0 and second["problem"] is None
    assert third["problem"] == f"not run: there is no folder {folder}/treebank"
    assert "wsj_parsing_small" not in " ".join(run.commands)


def test_a_figure_of_a_gpu_is_left_out_elsewhere_which_is_no_failure(folder):
    needs_one = [TWO[0]._replace(gpu=True)]
    run = Runner()
    (row,) = collect(folder, run, chosen=needs_one)
    assert (row["problem"], row["runs"], run.commands) == (reruns.NO_GPU, [], [])
    judged = reruns.judge(needs_one[0], row | {"mean": None}, {"mean": 41.5, "runs": []})
    assert judged["outcome"] == reruns.NO_GPU in reruns.GOOD
    *_, (row,) = reruns.rerun(needs_one, (), folder, folder, {}, Runner(), gpu=True)
    assert (row["problem"], row["mean"]) == (None, 42.0)


def test_a_command_that_gives_no_value_is_a_failure(folder):
    (row,) = collect(folder, lambda arguments: "nothing\n", chosen=TWO[:1])
    assert row["problem"].startswith("failed: JSONDecodeError")
    (row,) = collect(folder, lambda arguments: '{"chrf": 1}\n', chosen=TWO[:1])
    assert row["problem"] == "failed: KeyError: 'bleu'"


def test_speeds_are_ratios_to_the_faster_peer(tmp_path):
    (tmp_path / "benchmark").mkdir()

    def write(command, parts):
        (tmp_path / "benchmark" / f"benchmark_{command}.json").write_text(json.dumps(parts))

    def row(name, speed):
        return {"": name, "target tokens/s": speed}

    ours = [row("t2t_keras", 5.0), row("t2t_keras, 2 in parallel", 6.0)]
    heading, other = "Training step, base, float32", "Training step, base, bfloat16"
    peers = [row("PyTorch", 3.0), {"": "PyTorch, compiled: fails"}, row("KerasHub", 4.0)]
    xla = [*ours, row("t2t_keras, XLA", 9.0), row("PyTorch", 4.5)]
    write("train", {other: xla, heading: [*ours, *peers]})
    assert figures.training_speed("float32")("", tmp_path) == 1.5
    assert figures.training_speed("bfloat16")("", tmp_path) == 2.0
    write("train", {heading: ours})
    assert figures.training_speed("float32")("", tmp_path) == 6.0
    rows = [{"ours": 9.0, "× ctranslate2": 0.8}, {"ours": 7.0}]
    write("decode", {"Best against best": rows})
    assert [figures.search_speed(index)("", tmp_path) for index in (0, 1)] == [0.8, 7.0]


def test_a_command_runs_in_the_repository_and_its_failure_is_an_error(capfd):
    code = "import os, pipelines; print(os.getcwd(), pipelines.__path__[0])"
    assert reruns.run_command(("-c", code)).split() == [str(ROOT), str(ROOT / "pipelines")]
    with pytest.raises(InputError, match="exit code 3 of python -c import sys"):
        reruns.run_command(("-c", "import sys; sys.exit(3)"))


def run_tool(folder, *arguments):
    return subprocess.run(
        [*warm_python(), ROOT / "tools" / "results.py", f"--output_dir={folder}", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow(minutes=3)
def test_quick_gives_a_value_of_each_kind(tmp_path):
    names = ["multi30k_en_de", "multi30k_en_de_no_knn", "parsing", "pcfg", "beam_search_best"]
    done = run_tool(tmp_path, "--quick", f"--figures={','.join(names)}")
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "results.json").read_text())["figures"]
    assert [row["figure"] for row in rows] == names
    assert all(len(row["runs"]) == 1 for row in rows)
    assert {row["outcome"] for row in rows} == {"a value, not compared"}
    report = (tmp_path / "results.md").read_text()
    assert done.stdout == f"{report}\n" and report.count("not compared") == len(names)
    again = run_tool(tmp_path, "--quick", f"--figures={','.join(names)}")
    assert again.returncode == 0 and "Running:" not in again.stderr


@pytest.mark.slow  # each imports TensorFlow
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--figures=fly"], "'fly': give some of multi30k_en_de, "),
        ([], "give --data"),
        (["--data=absent", "--figures=pcfg"], None),
    ],
)
def test_mistakes_end_with_code_1(arguments, message, tmp_path):
    done = run_tool(tmp_path, *arguments)
    assert done.returncode == 1
    if message:
        assert done.stderr.splitlines()[-1].startswith("error: ") and message in done.stderr
    else:
        assert "not run: there is no folder" in (tmp_path / "results.md").read_text()
