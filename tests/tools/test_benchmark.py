import json
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "benchmark.py"


@pytest.fixture
def alternation(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOL.parent))
    from benchmarks import alternation  # noqa: PLC0415

    return alternation


def run(folder, *arguments, code=0):
    done = subprocess.run(
        [sys.executable, TOOL, *arguments, f"--output_dir={folder}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done


def test_ratios_are_of_medians_and_more_is_always_better(alternation):
    contestants = [
        alternation.Contestant("ours", "w", {}),
        alternation.Contestant("theirs", "w", {}, "torch"),
        alternation.Contestant("absent", "w", {}, "keras-hub"),
    ]
    figures = {
        "ours": [{"speed": s, "padding": p} for s, p in ((6.0, 0.1), (90.0, 0.3), (7.0, 0.2))],
        "theirs": [{"speed": s} for s in (2.0, 1.0, 4.0)],
    }
    contest = alternation.Contest("work", "speed", contestants)
    ours, theirs = alternation.table(contest, figures)
    expected = {"": "ours", "speed": 7.0, "from": 6.0, "to": 90.0, "× theirs": 3.5, "padding": 0.2}
    assert ours == expected
    assert (theirs["× theirs"], theirs["padding"]) == (1.0, None)
    ours, _ = alternation.table(contest._replace(less_is_better=True), figures)
    assert ours["× theirs"] == pytest.approx(2 / 7, abs=1e-3)


def test_contestants_take_turns_and_those_without_an_environment_are_left_out(
    alternation, monkeypatch
):
    turns = []
    monkeypatch.setattr(alternation, "_run", lambda c, python: turns.append((c.name, python)))
    contestants = [
        alternation.Contestant(name, "w", {}, peer)
        for name, peer in (("a", None), ("b", "torch"), ("c", "keras-hub"))
    ]
    alternation.hold(alternation.Contest("work", "x", contestants), 2, {"torch": "/python"})
    assert turns == [("a", sys.executable), ("b", "/python")] * 2


def test_a_contestant_that_may_fail_is_named_in_the_table(alternation, monkeypatch, capsys):
    def fails(contestant, python):
        if contestant.name == "compiled":
            raise alternation.InputError("no compiler")
        return {"x": 2.0}

    monkeypatch.setattr(alternation, "_run", fails)
    contestants = [
        alternation.Contestant("eager", "w", {}),
        alternation.Contestant("compiled", "w", {}, may_fail=True),
    ]
    contest = alternation.Contest("work", "x", contestants)
    figures = alternation.hold(contest, 2, {})
    assert "no compiler" in capsys.readouterr().err
    rows = alternation.table(contest, figures)
    assert [row[""] for row in rows] == ["eager", "compiled: fails on this machine"]
    contest = contest._replace(contestants=[contestants[1]._replace(may_fail=False)])
    with pytest.raises(alternation.InputError, match="no compiler"):
        alternation.hold(contest, 1, {})


@pytest.mark.slow
def test_decoding_of_a_small_model_is_measured(tmp_path):
    one = "--threads=1"
    run(tmp_path, "decode", "--quick", "--peers=", "--cases=quick:3:2", "--lengths=5,9", one)
    figures = json.loads((tmp_path / "benchmark_decode.json").read_text())
    rows = figures["Decoding, quick, batch 3, beam 2, 5 to 9 tokens"]
    formats = ["float32", "bfloat16", "int8"]
    formats += [f"{name} with a shortlist" for name in formats]
    assert [row[""] for row in rows] == [f"t2t_keras {name}" for name in formats]
    for row in rows:
        assert row["target tokens/s"] == pytest.approx(3 * 9 / row["ms"] * 1000)
        assert (
            row["ms"] == pytest.approx(9 * row["ms/step"]) == pytest.approx(3 * row["ms/sentence"])
        )


@pytest.fixture
def decoders(alternation):
    """A function of a batch size and a number of cores: everyone who decodes, in turn."""
    from benchmarks import contests  # noqa: PLC0415

    def of(batch, cores):
        case = [("quick", batch, 2)]
        setting = contests.Setting(True, cores, 1, "", None, case, (5, 9), None, None)
        [contest] = contests.decode(setting)
        return contest.contestants

    return of


def test_everyone_decodes_with_its_cores_together_and_side_by_side(decoders):
    everyone = decoders(3, cores=2)
    names = [c.name for c in everyone]
    assert names[:2] == ["t2t_keras float32", "t2t_keras float32, 2 in parallel"]
    last = "CTranslate2 int8 with a shortlist"
    assert names[-2:] == [last, f"{last}, 2 in parallel"]
    assert [c.settings["parts"] for c in everyone] == [1, 2] * 10
    assert [c.settings["shortlist"] for c in everyone] == ([False] * 6 + [True] * 6) + (
        [False] * 4 + [True] * 4
    )


def test_batches_in_parallel_are_powers_of_two_and_the_cores(decoders):
    for batch, cores, right in ((64, 6, [1, 2, 4, 6]), (3, 8, [1, 2, 3]), (64, 4, [1, 2, 4])):
        parts = [c.settings["parts"] for c in decoders(batch, cores)]
        assert parts == right * 10


@pytest.mark.usefixtures("alternation")
def test_steps_by_xla_are_contestants_of_their_own():
    from benchmarks import contests  # noqa: PLC0415

    setting = contests.Setting(False, 1, 1, "", ["paper"], None, (), None, None)
    for xla, right in ((False, [False]), (True, [False, True])):
        for contest in list(contests.train(setting._replace(xla=xla)))[:2]:
            ours = [c for c in contest.contestants if c.worker == "ours.train"]
            assert [c.settings.get("xla", False) for c in ours] == right
            assert {c.settings["size"] for c in ours} == {"paper"}
            theirs = [c for c in contest.contestants if c.worker == "train_keras_hub"]
            assert [c.settings.get("xla", False) for c in theirs] == right


def test_the_last_table_compares_the_best_settings(alternation):
    def contestant(name, dtype, peer=None, shortlist=False):
        return alternation.Contestant(name, "w", {"dtype": dtype, "shortlist": shortlist}, peer)

    contestants = [
        contestant("ours f", "float32"),
        contestant("ours i", "int8"),
        contestant("theirs f", "float32", "ctranslate2"),
        contestant("theirs i", "int8", "ctranslate2"),
        contestant("absent", "int8", "torch"),
        contestant("ours s", "int8", None, True),
        contestant("theirs s", "float32", "ctranslate2", True),
    ]
    speeds = {"ours f": [4, 9, 5], "ours i": [8, 8, 1], "theirs f": [2, 2, 2], "theirs i": [4] * 3}
    speeds |= {"ours s": [30] * 3, "theirs s": [20] * 3}
    figures = {name: [{"speed": speed} for speed in found] for name, found in speeds.items()}
    contest = alternation.Contest("work", "speed", contestants)
    every, float32, shortlist = alternation.best_against_best([(contest, figures)])
    assert (every["ours"], every["ours: best"]) == (8, "ours i")
    assert (every["ctranslate2"], every["× ctranslate2"]) == (4, 2.0)
    assert (float32["ours"], float32["ours: best"], float32["× ctranslate2"]) == (5, "ours f", 2.5)
    assert (shortlist["ours"], shortlist["ctranslate2"]) == (30, 20)
    slow = contest._replace(less_is_better=True)
    every, *_ = alternation.best_against_best([(slow, figures)])
    assert (every["ours: best"], every["× ctranslate2"]) == ("ours f", 0.4)


def test_everyone_decodes_one_sentence_on_all_cores_and_on_one(decoders):
    everyone = decoders(1, cores=2)
    names = [c.name for c in everyone]
    assert names[:2] == ["t2t_keras float32", "t2t_keras float32, on one core"]
    last = "CTranslate2 int8 with a shortlist"
    assert names[-2:] == [last, f"{last}, on one core"]
    settings = [(c.settings["parts"], c.settings["threads"]) for c in everyone]
    assert settings == [(1, 2), (1, 1)] * 10
    assert [c.settings["threads"] for c in decoders(1, cores=1)] == [1] * 10


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "decode", "generate", "serve", "input", "scale"])
def test_every_command_has_a_quick_form(command, tmp_path):
    run(tmp_path, command, "--quick", "--peers=")
    figures = json.loads((tmp_path / f"benchmark_{command}.json").read_text())
    assert all(isinstance(rows, list) and rows for rows in list(figures.values())[2:])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "the sub-command is None"),
        pytest.param(["fly"], "'fly': give one of train, decode", marks=pytest.mark.slow),
        pytest.param(["decode", "--cases=base:32"], "SIZE:BATCH:BEAM", marks=pytest.mark.slow),
        pytest.param(
            ["train", "--peer_python=torch=/absent/python"],
            "torch=/absent/python: give a Python",
            marks=pytest.mark.slow,
        ),
        pytest.param(["decode", "--peers=fairseq"], "'fairseq'", marks=pytest.mark.slow),
        pytest.param(
            ["serve", "--input=absent.en"],
            "absent.en: there is no such file",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_mistakes_are_one_line(arguments, message, tmp_path):
    done = run(tmp_path, *arguments, code=1)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and message in last
