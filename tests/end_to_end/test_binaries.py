"""From raw text to a served translation through the binaries, as their users run them."""

import csv
import dataclasses
import json
import os
import pathlib
import re
import shutil

import numpy as np
import pytest
import sacrebleu
from sacrebleu.tokenizers import tokenizer_ja_mecab

from t2t_keras.evaluation.text import corpus_scores, further_scores
from t2t_keras.training.checkpoint_files import CheckpointReader
from tests.end_to_end.binaries import GERMAN, SMALL, refused, run, scores_of

LINES = ["one two", "", "  ", "two \x0b three\x85four\u2028five", "sieben 😀 \x00", "nine nine"]
TEXT = ("\n".join(LINES) + "\n").encode() + b"\xff\xfe one\r\n"


def test_training_leaves_config_vocabulary_tokens_checkpoints_and_logs(trained):
    names = {path.name for path in trained.iterdir()}
    assert {"config.json", "vocabulary", "tokens", "checkpoints", "logs", "metrics.csv"} <= names
    checkpoints = sorted(path.name for path in (trained / "checkpoints").iterdir())
    assert checkpoints == ["average_00000020"] + [f"step_000000{step}" for step in (10, 15, 20)]
    rows = list(csv.DictReader((trained / "metrics.csv").open()))
    assert [row["step"] for row in rows if row["loss"]] == ["5", "10", "15", "20"]
    assert [row["step"] for row in rows if row["validation_bleu"]] == ["10", "20"]
    assert float(rows[-1]["validation_loss"]) < float(rows[0]["loss"])


def test_average_is_the_arithmetic_mean(trained, tmp_path):
    workdir, name = shutil.copytree(trained, tmp_path / "work"), "model/embedding/matrix"
    stdout, _ = run("average", f"--workdir={workdir}", "--last=3")
    by_training = trained / "checkpoints" / "average_00000020"
    steps = [trained / "checkpoints" / f"step_000000{step}" for step in (10, 15, 20)]
    for path, averaged in {by_training: steps[-2:], stdout.strip(): steps}.items():
        values = [CheckpointReader(step).read(name) for step in averaged]
        expected = np.mean(values, axis=0, dtype=np.float64).astype(np.float32)
        np.testing.assert_array_equal(CheckpointReader(path).read(name), expected)


def test_evaluate_prints_one_json_line_last(trained, corpus_folder):
    by_split, _ = run("evaluate", f"--workdir={trained}", "--split=test")
    files = [f"--source={corpus_folder}/test.en", f"--reference={corpus_folder}/test.de"]
    files += [f"--baseline={corpus_folder}/test.en", "--by_length", "--compound_split"]
    by_files, _ = run("evaluate", f"--workdir={trained}", *files)
    scores, again = (json.loads(text.splitlines()[-1]) for text in (by_split, by_files))
    assert by_split.splitlines()[0] == "Scoring split test: 10 sentences"
    assert scores.pop("split") == "test"
    assert again.pop("source") == f"{corpus_folder}/test.en"
    assert again.pop("reference") == f"{corpus_folder}/test.de"
    assert scores["sentences"] == 10 and "tok:13a" in scores["bleu_signature"]
    assert 0 <= scores["bleu"] <= 100 and 0 <= scores["chrf"] <= 100
    del scores["seconds"]
    assert {name: again[name] for name in scores} == scores
    assert again["comparison"]["bleu"] == scores["bleu"]
    assert sum(group["sentences"] for group in again["by_length"]) == 10
    assert 0 <= again["compound_split_bleu"] <= 100


def test_evaluate_takes_several_references_a_baseline_and_any_case(
    trained, corpus_folder, tmp_path, monkeypatch
):
    source, workdir = f"--source={corpus_folder}/test.en", f"--workdir={trained}"
    outputs = [f"eins zwei drei {line}" for line in GERMAN]
    monkeypatch.setattr("t2t_keras.tasks.text_io.map_by_length", lambda *_, **__: iter(outputs))
    upper = [f"{line} VIER".upper() for line in outputs]
    texts = {
        "a": [*upper[:5], *["null"] * 5],
        "b": [*["null"] * 5, *upper[5:-1], outputs[-1]],
        "c": [f"vier {line}" for line in reversed(outputs)],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    flags = [f"--reference={tmp_path}/a", "--reference", f"{tmp_path}/b", "--lowercase"]
    found = scores_of(workdir, source, *flags, f"--baseline={tmp_path}/c", "--by_length")
    references = [texts["a"], texts["b"]]
    assert found["reference"] == f"{tmp_path}/a,{tmp_path}/b"
    expected = corpus_scores(outputs, references, lowercase=True)
    assert found.items() >= dataclasses.asdict(expected).items()
    assert expected.chrf > corpus_scores(outputs, references).chrf
    assert found["exact"] == 0.1
    assert found["chrf_pp"] == further_scores(outputs, references, lowercase=True)["chrf_pp"]
    compared = found["comparison"]
    assert compared["bleu"] == pytest.approx(expected.bleu)
    other = corpus_scores(texts["c"], references, lowercase=True).bleu
    assert compared["baseline_bleu"] == pytest.approx(other) != pytest.approx(expected.bleu)


def test_translations_are_kept_where_their_scoring_fails(trained, monkeypatch, caplog):
    """A tokenizer that is missing is named before anything is translated."""
    monkeypatch.setattr(tokenizer_ja_mecab, "MeCab", None)
    stdout, stderr = run("evaluate", f"--workdir={trained}", "--tokenize=ja-mecab", code=1)
    assert not stdout and "error: sacreBLEU's tokenizer 'ja-mecab' does not" in stderr

    def fail(*_):
        raise RuntimeError("broken score")

    monkeypatch.setattr(sacrebleu.BLEU, "corpus_score", fail)
    with pytest.raises(RuntimeError, match="broken score"):
        run("evaluate", f"--workdir={trained}")
    path = pathlib.Path(re.search(r"what was scored is kept in (\S+)", caplog.text)[1])
    assert len(path.read_text().splitlines()) == 10
    path.unlink()


@pytest.mark.slow
def test_the_saved_model_translates_like_the_workdir_line_by_line(trained, exported_run, tmp_path):
    (tmp_path / "in.txt").write_bytes(TEXT)
    files = [f"--input={tmp_path}/in.txt", f"--output={tmp_path}/out.txt"]
    run("translate", f"--workdir={trained}", *files, "--errors=replace")
    saved_model = f"--saved_model={exported_run}"
    served, _ = run("translate", saved_model, "--errors=replace", stdin=TEXT)
    assert served == (tmp_path / "out.txt").read_text()
    assert served.count("\n") == TEXT.count(b"\n")
    assert served.split("\n")[1:3] == ["", ""]

    flags = [saved_model, "--n_best=3", "--scores"]
    n_best, _ = run("translate", *flags, stdin=b"one two\nfour\n")
    rows = [line.split("\t") for line in n_best.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    scores = [float(row[1]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)
    message = refused("translate", saved_model, "--n_best=9", stdin=b"one\n")
    assert "--n_best=9 is more than the" in message


def test_an_export_has_the_settings_of_its_flags(trained, exported_run, tmp_path):
    folder = tmp_path / "[e]xport \\ü"  # what TensorFlow takes for a pattern
    small = ["--precision=bfloat16", "--signatures=serving_default", "--beam_size=2", "--noverify"]
    small += ["--max_source_length=9", "--max_extra_tokens=3", "--name=digits", "--device=gpu"]
    stdout, _ = run("export", f"--workdir={trained}", f"--output={folder}", *small)
    assert stdout.strip() == str(folder / "1")
    assert 'name: "digits"' in (folder / "models.config").read_text()
    record = json.loads((folder / "1" / "assets.extra" / "export.json").read_text())
    assert (record["precision"], record["device"]) == ("bfloat16", "gpu")
    served, _ = run("translate", f"--saved_model={folder}/1", stdin=b"one\n" + b"one " * 30)
    assert len(served.splitlines()) == 2


@pytest.mark.slow
def test_a_shortlist_is_learned_from_the_shards_and_kept(trained, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "work")
    flags = [f"--workdir={workdir}", f"--output={tmp_path}/export", "--shortlist=20"]
    flags += ["--signatures=serving_default", "--device=cpu"]
    lines = tmp_path / "lines"
    lines.write_text("one two\nfour\n")
    export, _ = run("export", *flags, f"--lines={lines}", "--precision=int8")
    served, _ = run("translate", f"--saved_model={export.strip()}", stdin=lines.read_bytes())
    assert served.count("\n") == 2
    record = json.loads((pathlib.Path(export.strip()) / "assets.extra" / "export.json").read_text())
    assert record["shortlist"] == 20 and record["distance_from_float32"]["lines"] == 2
    shutil.rmtree(workdir / "tokens")
    _, stderr = run("export", *flags, "--noverify")  # from the file
    assert "shortlist_20.npz: no training shards, so scores use its saved cost of a token" in stderr
    (workdir / "shortlist_20.npz").unlink()
    assert "--shortlist: there is no tokenized split" in refused("export", *flags)
    files = ["1", "2", "batching_params.pbtxt", "models.config"]
    assert sorted(os.listdir(tmp_path / "export")) == files


@pytest.mark.slow
def test_a_knn_model_is_exported_with_the_flags_of_its_mixture(trained, tmp_path):
    flags = ["--knn_k=4", "--knn_temperature=5", "--knn_interpolation=0.9"]
    lines = b"one two\nseven three nine\nfour\n"

    def answers(*given):
        printed, _ = run("translate", "--scores", *given, stdin=lines)
        scores, texts = zip(*(line.split("\t") for line in printed.splitlines()), strict=True)
        return np.array(scores, float), texts

    arguments = [f"--workdir={trained}", f"--output={tmp_path}/export", "--noverify"]
    export, _ = run("export", *arguments, "--signatures=serving_default", *flags)
    (alone, _), (scores, texts) = answers(arguments[0]), answers(arguments[0], *flags)
    served, found = answers(f"--saved_model={export.strip()}")
    assert found == texts
    np.testing.assert_allclose(served, scores, atol=1e-3)
    assert np.all(np.abs(alone - scores) > 0.1)  # texts of a model of 20 steps may be the same


def test_text_in_another_encoding_is_refused_before_any_work(trained, corpus_folder, tmp_path):
    latin = tmp_path / "latin.de"
    latin.write_bytes((corpus_folder / "test.de").read_bytes() + b"f\xfcnf\n")
    source = tmp_path / "source.en"
    source.write_bytes((corpus_folder / "test.en").read_bytes() + b"five\n")
    files = [f"--source={source}", f"--reference={latin}"]
    for binary, flags in (
        ("evaluate", files),
        ("evaluate", [f"--baseline={latin}"]),
        ("translate", [f"--input={latin}", f"--output={tmp_path}/out"]),
    ):
        message = refused(binary, f"--workdir={trained}", *flags)
        assert "latin.de line 11 is not valid UTF-8" in message
    assert sorted(tmp_path.iterdir()) == [latin, source]
    message = refused("translate", f"--workdir={trained}", stdin=latin.read_bytes())
    assert "standard input line 11 is not valid UTF-8" in message
    assert scores_of(f"--workdir={trained}", *files, "--errors=replace")["sentences"] == 11


def test_a_finished_run_refuses_another_model_and_has_nothing_to_do(trained, corpus_folder):
    before = (trained / "metrics.csv").read_text()
    arguments = [*SMALL, f"--workdir={trained}", f"--config.data.folder={corpus_folder}"]
    message = refused("train", *arguments, "--config.model.model_dim=64")
    assert "model.model_dim = 32, not 64" in message
    run("train", *arguments)
    assert (trained / "metrics.csv").read_text() == before


def test_explain_config_lists_the_differences_from_the_paper():
    as_in_the_paper = "--config.train.label_smoothing=0.1"
    stdout, _ = run("train", *SMALL, as_in_the_paper, "--workdir=unused", "--explain_config")
    assert "model.num_heads = 2 (the paper's base model: 8)" in stdout
    assert "train.label_smoothing" not in stdout
