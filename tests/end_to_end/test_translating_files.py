"""A translation of a file that is killed resumes and writes the same file; pipes and terminals."""

import io
import os
import re
import shutil
import signal
import sys

import numpy as np
import pytest

import t2t_keras as t2t
from pipelines import app
from pipelines.batch_inference import CatalogOutput, LinePredictor, ResumableOutput
from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.tasks.catalogs import Catalog
from tests.data.reading import read_in_thread
from tests.end_to_end.binaries import pairs, popen, refused, run, wait_for


def test_a_restart_resumes_after_the_last_commit(tmp_path):
    first = ResumableOutput(tmp_path / "out", {"model": (1, 2)})
    first.write("ä")
    first.commit(5)
    first.write("lost")
    first._file.close()
    again = ResumableOutput(tmp_path / "out", {"model": (1, 2)})
    assert again.done == 5
    with again:
        again.write("b")
        assert not (tmp_path / "out").exists()
    assert (tmp_path / "out").read_text() == "ä\nb\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.slow
def test_lines_are_numbered_on_after_a_resume(trained, tmp_path, monkeypatch):
    (tmp_path / "in").write_text("one\n" * 66)
    flags = [f"--workdir={trained}", f"--input={tmp_path}/in", f"--output={tmp_path}/out"]
    flags += ["--n_best=2", "--batch_size=1", "--max_extra_tokens=1"]

    def commit_and_fail(output, done, commit=ResumableOutput.commit):
        commit(output, done)
        raise ZeroDivisionError

    with monkeypatch.context() as patch, pytest.raises(ZeroDivisionError):
        patch.setattr(ResumableOutput, "commit", commit_and_fail)
        run("translate", *flags)
    _, stderr = run("translate", *flags)
    assert "resuming after 64 lines" in stderr
    numbers = [int(line.split("\t")[0]) for line in (tmp_path / "out").read_text().splitlines()]
    assert numbers == sorted(numbers) and set(numbers) == set(range(1, 67))


@pytest.mark.parametrize("damage", ["other", "journal", "journal flipped", "file", "file flipped"])
def test_a_file_of_another_model_or_a_damaged_one_starts_over(tmp_path, damage):
    first = ResumableOutput(tmp_path / "out", "one model")
    first.write("old")
    first.commit(1)
    if damage == "journal":
        (tmp_path / ".out.unfinished.json").write_text('{"done": 1')
    if damage == "journal flipped":
        journal = tmp_path / ".out.unfinished.json"
        journal.write_text(journal.read_text().replace('"size": 4', '"size": 0'))
    if damage.startswith("file"):
        (tmp_path / ".out.unfinished").write_text("o" if damage == "file" else "olD\n")
    first._file.close()
    again = ResumableOutput(tmp_path / "out", "another" if damage == "other" else "one model")
    assert again.done == 0
    with again:
        pass
    assert (tmp_path / "out").read_text() == ""


def test_an_error_before_the_first_commit_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError), ResumableOutput(tmp_path / "out", 1) as output:
        output.write("a")
        raise ZeroDivisionError
    assert list(tmp_path.iterdir()) == []


def test_the_fingerprint_is_that_of_the_checkpoint_in_use(tmp_path):
    """Newer weights change nothing where --checkpoint names others; changed ones do."""
    checkpoint, source = tmp_path / "checkpoints" / "step_5", tmp_path / "source"
    checkpoint.mkdir(parents=True)
    (checkpoint / "weights").write_text("old")
    source.write_text("one\n")
    decoding = {"checkpoint": str(checkpoint)}
    predictor = LinePredictor(str(tmp_path), None, 1, False, 64, decoding)
    before = predictor.fingerprint(str(source))
    shutil.copytree(checkpoint, tmp_path / "checkpoints" / "step_10")
    assert predictor.fingerprint(str(source)) == before
    os.utime(source, (0, 0))  # a clock that was set back
    assert predictor.fingerprint(str(source)) == before
    for path in (checkpoint / "weights", source):
        content, stat = path.read_bytes(), path.stat()
        path.write_bytes(content[::-1])
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert predictor.fingerprint(str(source)) != before
        path.write_bytes(content)
    (tmp_path / "config.json").write_text("{}")
    assert predictor.fingerprint(str(source)) != before


def test_an_input_that_cannot_be_read_again_is_never_resumed(tmp_path):
    """A pipe, a device, standard input: they hold another text, whatever the process's number."""
    os.mkfifo(tmp_path / "pipe")
    predictor = LinePredictor(str(tmp_path), None, 1, False, 64, {"checkpoint": str(tmp_path)})
    for path in ("", str(tmp_path / "pipe"), os.devnull):
        first = ResumableOutput(tmp_path / "out", predictor.fingerprint(path))
        first.write("of another input")
        first.commit(1)
        first._file.close()
        assert ResumableOutput(tmp_path / "out", predictor.fingerprint(path)).done == 0


def test_a_link_as_output_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to("elsewhere/out")
    with ResumableOutput(tmp_path / "link", 1) as output:
        output.write("a")
    assert os.readlink(tmp_path / "link") == "elsewhere/out"
    assert (tmp_path / "elsewhere" / "out").read_text() == "a\n"
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["out"]


@pytest.mark.parametrize(("line_buffered", "read"), [(True, [1, 2, 3]), (False, [3, 3, 3])])
def test_a_buffered_line_is_answered_before_the_next_one_is_read(monkeypatch, line_buffered, read):
    monkeypatch.setattr(
        LinePredictor, "_of_workdir", lambda _: lambda lines, _: [[(line, 0.0)] for line in lines]
    )
    count = 0

    def lines():
        nonlocal count
        for count in (1, 2, 3):  # lines that were read
            yield f"line {count}"

    outputs = LinePredictor("x", None, 1, False, 64, {}).load(line_buffered=line_buffered)
    found = [(row, count) for row in outputs(lines())]
    assert found == [([f"line {n}"], read[n - 1]) for n in (1, 2, 3)]


def test_a_pipe_as_output_is_written_through(trained, tmp_path):
    """And --line_buffered gives the same translations as batches do."""
    (tmp_path / "in").write_text("one two\nfive\n\nnine nine\n")
    os.mkfifo(tmp_path / "pipe")
    flags = [f"--workdir={trained}", f"--input={tmp_path}/in"]
    expected, _ = run("translate", *flags)
    content = read_in_thread(tmp_path / "pipe")
    run("translate", *flags, "--line_buffered", f"--output={tmp_path}/pipe")
    assert content().decode() == expected
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "pipe"]


@pytest.mark.slow
def test_a_document_keeps_what_is_between_its_sentences(trained, tmp_path):
    content = "\ufeffone two. Three!\r\n\r\n  five \t\n\n\u2028nine nine.\rSix"  # without an end
    (tmp_path / "in").write_bytes(content.encode())
    flags = [f"--workdir={trained}", f"--input={tmp_path}/in", "--document"]
    run("translate", *flags, f"--output={tmp_path}/out")
    found = (tmp_path / "out").read_bytes().decode()
    assert re.fullmatch(r"\ufeff.* .*\r\n\r\n  .* \t\n\n\u2028.*\r.*", found)
    assert [found] == t2t.load(trained).documents([content])


CATALOG = (
    'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "one"\nmsgstr "eins"\n'
    '\n#, c-format\nmsgid "two %s three"\nmsgstr ""\n\nmsgid "four.\\n"\n"five"\nmsgstr ""\n'
)  # fmt: skip


def test_a_catalog_resumes_and_is_filled_at_the_end(tmp_path):
    (tmp_path / "a.po").write_text(CATALOG)
    catalog, output = Catalog(tmp_path / "a.po"), tmp_path / "b.po"
    first = CatalogOutput(output, {}, catalog, fuzzy=True)
    first.write("zwei %s drei")
    first.commit(1)
    first._file.close()
    with CatalogOutput(output, {}, catalog, fuzzy=True) as again:
        assert again.done == 1
        again.write("vier.\nfünf")
    two = '#, fuzzy, c-format\nmsgid "two %s three"\nmsgstr "zwei %s drei"\n\n'
    five = '#, fuzzy\nmsgid "four.\\n"\n"five"\nmsgstr ""\n"vier.\\n"\n"fünf"\n'
    assert output.read_text() == CATALOG.partition("#,")[0] + two + five
    assert {path.name for path in tmp_path.iterdir()} == {"a.po", "b.po"}


@pytest.mark.slow
def test_a_catalog_is_translated_as_documents_are(trained, tmp_path):
    (tmp_path / "a.po").write_text(CATALOG)
    flags = [f"--workdir={trained}", f"--input={tmp_path}/a.po"]
    _, stderr = run("translate", *flags, f"--output={tmp_path}/b.po", "--nofuzzy")
    catalog = Catalog(tmp_path / "a.po")
    text, report = catalog.fill(t2t.load(trained).documents(catalog.texts), fuzzy=False)
    assert (tmp_path / "b.po").read_text() == text and f"b.po: {report}\n" in stderr
    export = [f"--output={tmp_path}/export", "--noverify", "--signatures=serving_default,document"]
    run("export", flags[0], *export)
    served = [f"--saved_model={tmp_path}/export/1", flags[1], f"--output={tmp_path}/c.po"]
    run("translate", *served, "--nofuzzy")
    assert (tmp_path / "c.po").read_text() == text
    for name, more, message in (
        ("a.po", [], "a.po is a catalog of messages: give a file as --output"),
        ("a.po", ["--sample", f"--output={tmp_path}/c"], "--sample is not for a catalog"),
        ("a.po", ["--errors=replace", f"--output={tmp_path}/c"], "--errors=replace is not for a"),
        ("b.pot", [f"--output={tmp_path}/c"], "b.pot is not a catalog of messages in UTF-8"),
    ):
        (tmp_path / "b.pot").write_text("Text.\n")
        assert message in refused("translate", flags[0], f"--input={tmp_path}/{name}", *more)
        assert not (tmp_path / "c").exists()


ONE_MODEL = "give one of --workdir, --model and --saved_model"
OF_SEARCH = "--beam_size=8 is for a search, not for --sample: leave"
OF_DOCUMENTS = r"--protected_pattern=S\+ is for --document: give it"


@pytest.mark.parametrize(("model", "n_best", "decoding", "asked", "message"), [
    ((None, None), 1, {}, "serving_default", ONE_MODEL),
    (("", None), 1, {}, "serving_default", ONE_MODEL),  # an unset shell variable
    (("x", "y"), 1, {}, "serving_default", ONE_MODEL),
    ((None, "y"), 2, {}, "terms", "--terms and --n_best together need --workdir"),
    (("x", None), 2, {}, "document", "leave out --n_best, --scores and --unique"),
    (("x", None), 1, {"protected_pattern": "S+"}, "serving_default", OF_DOCUMENTS),
    ((None, "y"), 1, {"protected_pattern": "S+"}, "serving_default", OF_DOCUMENTS),
    (("x", None), 1, {"beam_size": 8}, "sample", OF_SEARCH),
    ((None, "y"), 1, {"beam_size": 8}, "sample", OF_SEARCH),
])  # fmt: skip
def test_what_does_not_go_together_is_refused_before_anything_is_loaded(
    model, n_best, decoding, asked, message, tmp_path
):
    (tmp_path / "terms").write_text("dog\tHund\n")
    terms = str(tmp_path / "terms") if asked == "terms" else ""
    predictor = LinePredictor(*model, n_best, False, 64, decoding, request=asked, terms=terms)
    for call in (predictor.check, predictor.load):
        with pytest.raises(InputError, match=message):
            call()


def test_terms_from_a_pipe_are_refused(tmp_path):
    os.mkfifo(tmp_path / "terms")  # which would wait for a writer when it is read
    terms = str(tmp_path / "terms")
    asked = LinePredictor("x", None, 1, False, 64, {}, request="terms", terms=terms)
    with pytest.raises(InputError, match="terms is no regular file, and terms are read more than"):
        asked.check()


def test_results_that_a_search_did_not_find_are_no_lines():
    asked = LinePredictor("x", None, 3, True, 64, {})
    row = [("eins", -0.5), ("", -np.inf), ("", np.float32(-np.inf))]
    assert asked.lines(row, 7) == ["7\t-0.5000\teins"]
    assert asked.lines(row[1:], 8) == ["8\t-inf\t"]  # a line has at least one


def test_output_is_utf8_whatever_the_encoding_of_standard_output(monkeypatch, capfd):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "argv", ["test"])
    with pytest.raises(SystemExit) as end:
        app.run(lambda: print("grün", "name of other bytes \udcff"), gpu=False)
    assert not end.value.code
    stream.flush()
    assert stream.buffer.getvalue() == "grün name of other bytes ".encode() + b"\xff\n"
    with app.line_writer("") as write:
        write("grün")
    assert capfd.readouterr().out == "grün\n"


@pytest.mark.slow
def test_a_killed_translation_resumes_and_ends_as_an_unbroken_one(trained, tmp_path):
    source = tmp_path / "source"
    source.write_text("".join(f"{english}\n" for english, _ in pairs(250, seed=5)))
    flags = [f"--workdir={trained}", f"--input={source}", "--batch_size=1", "--beam_size=1"]
    with ops.made_for("cpu"):  # as the process
        run("translate", *flags, f"--output={tmp_path / 'whole'}")

    process = popen("translate", *flags, f"--output={tmp_path / 'broken'}")
    wait_for((tmp_path / ".broken.unfinished.json").exists, [process])
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert not (tmp_path / "broken").exists()
    with ops.made_for("cpu"):
        _, stderr = run("translate", *flags, f"--output={tmp_path / 'broken'}")
    assert "resuming after" in stderr
    assert (tmp_path / "broken").read_text() == (tmp_path / "whole").read_text()
    assert len((tmp_path / "whole").read_text().splitlines()) == 250
