import itertools
import json
import pathlib
import sys

import pytest
from benchmarks import alternation, contests
from benchmarks.alternation import Contest, Contestant

from t2t_keras.errors import InputError
from tests.processes import run_python

pytestmark = pytest.mark.slow

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "benchmark.py"


def contest(*contestants, unit="x", **settings):
    return Contest("work", unit, [Contestant(*each) for each in contestants], **settings)


def run(folder, *arguments, code=0):
    return run_python(TOOL, *arguments, f"--output_dir={folder}", code=code)


def test_ratios_are_of_medians_and_more_is_always_better():
    names = ("ours", None), ("theirs", "torch"), ("absent", "keras-hub")
    work = contest(*((name, "w", {}, peer) for name, peer in names), unit="speed")
    figures = {
        "ours": [{"speed": s, "padding": p} for s, p in ((6.0, 0.1), (90.0, 0.3), (7.0, 0.2))],
        "theirs": [{"speed": s} for s in (2.0, 1.0, 4.0)],
    }
    ours, theirs = alternation.table(work, figures)
    expected = {"": "ours", "speed": 7.0, "from": 6.0, "to": 90.0, "× theirs": 3.5, "padding": 0.2}
    assert ours == expected
    assert (theirs["× theirs"], theirs["padding"]) == (1.0, None)
    ours, _ = alternation.table(work._replace(less_is_better=True), figures)
    assert ours["× theirs"] == pytest.approx(2 / 7, abs=1e-3)


def test_contestants_take_turns_and_those_without_an_environment_are_left_out(monkeypatch):
    turns = []
    monkeypatch.setattr(alternation, "_run", lambda c, python, lock: turns.append((c.name, python)))
    work = contest(("a", "w", {}), ("b", "w", {}, "torch"), ("c", "w", {}, "keras-hub"))
    rounds = [len(f["a"]) for f in alternation.hold(work, 2, {"torch": "/python"})]
    assert rounds == [1, 2]  # each round is seen when it ends
    assert turns == [("a", sys.executable), ("b", "/python")] * 2


WAITING = """
import pathlib, time
from common import answer, median_time

def measure(name, folder, threads, lock):
    times = []
    def work():
        pathlib.Path(folder, name).touch()
        deadline = time.monotonic() + 120
        while len(list(pathlib.Path(folder).iterdir())) < 3:  # until all have started
            assert time.monotonic() < deadline
            time.sleep(0.01)
        times.append(time.monotonic())
        time.sleep(0.05)
    median_time(work, repeats=3, warm_up=0, compiles=True, lock=lock)
    return {"begin": times[1], "end": times[-1]}

answer(measure)
"""


def test_contestants_that_start_together_measure_one_after_another(monkeypatch, tmp_path):
    workers, started = tmp_path / "tools/benchmarks/workers", tmp_path / "started"
    for folder in (workers, started):
        folder.mkdir(parents=True)
    (workers / "common.py").write_bytes((TOOL.parent / "benchmarks/workers/common.py").read_bytes())
    (workers / "waiting.py").write_text(WAITING)
    monkeypatch.setattr(alternation, "ROOT", tmp_path)
    settings = {"folder": str(started), "threads": 1}
    work = contest(*((name, "waiting", settings | {"name": name}) for name in "abc"), unit="begin")
    [figures] = alternation.hold(work, 1, {}, lock=str(tmp_path / "lock"))
    spans = sorted((f["begin"], f["end"]) for (f,) in figures.values())
    assert all(end < begin for (_, end), (begin, _) in itertools.pairwise(spans))


def test_a_contestant_that_may_fail_is_named_in_the_table(monkeypatch, capsys):
    def fails(contestant, python, lock):
        if contestant.name == "compiled":
            raise InputError("no compiler")
        return {"x": 2.0}

    monkeypatch.setattr(alternation, "_run", fails)
    work = contest(("eager", "w", {}), ("compiled", "w", {}, None, True))
    *_, figures = alternation.hold(work, 2, {})
    assert "no compiler" in capsys.readouterr().err
    rows = alternation.table(work, figures)
    assert [row[""] for row in rows] == ["eager", "compiled: fails on this machine"]
    with pytest.raises(InputError, match="no compiler"):
        list(alternation.hold(contest(("compiled", "w", {})), 1, {}))


def test_the_last_table_compares_the_best_settings():
    def contestant(name, dtype, peer=None, shortlist=False, parts=1, threads=2):
        settings = {"dtype": dtype, "shortlist": shortlist, "parts": parts, "threads": threads}
        return name, "w", settings, peer

    work = contest(
        contestant("ours f", "float32"),
        contestant("ours i", "int8", parts=2),
        contestant("ours one", "int8", threads=1),
        contestant("theirs f", "float32", "ctranslate2"),
        contestant("theirs i", "int8", "ctranslate2"),
        contestant("absent", "int8", "torch"),
        contestant("ours s", "int8", None, True),
        contestant("theirs s", "float32", "ctranslate2", True),
        unit="speed",
    )
    speeds = {"ours f": [4, 9, 5], "ours i": [8, 8, 1], "theirs f": [2, 2, 2], "theirs i": [4] * 3}
    speeds |= {"ours one": [7] * 3, "ours s": [30] * 3, "theirs s": [20] * 3}
    figures = {name: [{"speed": speed} for speed in found] for name, found in speeds.items()}
    every, plain, float32, shortlist = alternation.best_against_best([(work, figures)])
    assert (every["ours"], every["ours: best"]) == (8, "ours i")
    assert (every["ctranslate2"], every["× ctranslate2"]) == (4, 2.0)
    assert (plain["ours"], plain["ours: best"], plain["ctranslate2"]) == (5, "ours f", 4)
    assert (float32["ours"], float32["ours: best"], float32["× ctranslate2"]) == (5, "ours f", 2.5)
    assert (shortlist["ours"], shortlist["ctranslate2"]) == (30, 20)
    slow = work._replace(less_is_better=True)
    every, *_ = alternation.best_against_best([(slow, figures)])
    assert (every["ours: best"], every["× ctranslate2"]) == ("ours f", 0.4)


def test_everyone_decodes_with_its_cores_together_and_side_by_side():
    for case, cores, second in (
        (("quick", 3, 2), 2, "2 in parallel"),
        (("quick", 1, 2), 2, "on one core"),
    ):
        setting = contests.Setting(True, cores, 1, "", None, [case], (5, 9), None, None)
        [work] = contests.decode(setting)
        names = [contestant.name for contestant in work.contestants]
        last = "CTranslate2 int8 with a shortlist"
        assert names[:2] == ["t2t_keras float32", f"t2t_keras float32, {second}"]
        assert names[-2:] == [last, f"{last}, {second}"]
        [work] = contests.decode(setting._replace(settings=("int8",)))
        names = [contestant.name for contestant in work.contestants]
        assert names[1::2] == [f"{name} int8, {second}" for name in ("t2t_keras", "CTranslate2")]


@pytest.fixture
def workers(monkeypatch):
    """Lets the workers be functions of this process."""
    monkeypatch.syspath_prepend(str(TOOL.parent / "benchmarks" / "workers"))
    import ours  # noqa: PLC0415

    monkeypatch.setattr(ours.devices, "limit_threads", lambda parts: None)

    def run(contestant, *_):
        return getattr(ours, contestant.worker.removeprefix("ours."))(**contestant.settings)

    monkeypatch.setattr(alternation, "_run", run)


@pytest.mark.usefixtures("workers")
@pytest.mark.parametrize("command", ["train", "decode", "generate", "serve", "scale"])
def test_every_command_has_a_quick_form(command, tmp_path):
    setting = contests.Setting(True, 1, 1, str(tmp_path), None, None, (5, 9), None, None)
    for work in contests.CONTESTS[command](setting):
        rows = alternation.table(work, *alternation.hold(work, 1, {}))
        assert all(row[work.unit] >= 0 for row in rows)
        if command == "decode":
            assert work.heading == "Decoding, quick, batch 3, beam 2, 5 to 9 tokens"
            formats = ["float32", "bfloat16", "int8"]
            formats += [f"{name} with a shortlist" for name in formats]
            assert [row[""] for row in rows] == [f"t2t_keras {name}" for name in formats]
            for row in rows:
                assert row["target tokens/s"] == pytest.approx(3 * 9 / row["ms"] * 1000)
                assert row["ms"] == pytest.approx(9 * row["ms/step"])
                assert row["ms"] == pytest.approx(3 * row["ms/sentence"])


def test_a_command_prints_and_saves_its_tables(tmp_path):
    done = run(tmp_path, "input", "--quick", "--peers=")
    *_, rows = json.loads((tmp_path / "benchmark_input.json").read_text()).values()
    assert [row[""] for row in rows] == ["500 pairs", "2,000 pairs"]
    assert "2,000 pairs" in done.stdout


@pytest.mark.parametrize(("arguments", "message"), [
    (["fly"], "'fly': give one of train, decode"),
    (["serve", "--input=absent.en"], "absent.en: there is no such file"),
    (["decode", "--settings=int4"], "--settings=int4: give number formats out of float32, bfl"),
    (["decode", "--settings=shortlist"], "--settings=shortlist: give number formats"),
    (["serve", "--lock=file"], "--lock=file: only train and generate take it"),
])  # fmt: skip
def test_mistakes_are_one_line(arguments, message, tmp_path):
    done = run(tmp_path, *arguments, code=1)
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and message in last


@pytest.mark.parametrize(("call", "message"), [
    (lambda: contests.parse_case("base:32"), "SIZE:BATCH:BEAM"),
    (lambda: alternation.find_interpreters({"torch"}, ["torch"], ["torch=/absent/python"]),
     "torch=/absent/python: give a Python"),
    (lambda: alternation.find_interpreters({"torch"}, ["fairseq"], []), "'fairseq'"),
])  # fmt: skip
def test_mistakes_of_cases_and_peers_are_named(call, message):
    with pytest.raises(InputError, match=message):
        call()
