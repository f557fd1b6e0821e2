"""From raw text to a served translation through the binaries, as their users run them."""

import csv
import json
import os
import pathlib
import re
import shutil
import subprocess

import numpy as np
import pytest

from t2t_keras.training.checkpoint_files import CheckpointReader
from tests.end_to_end.binaries import ROOT, SMALL, run
from tests.warm_python import warm_python

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


def test_average_is_the_arithmetic_mean(trained):
    stdout, _ = run("average", f"--workdir={trained}", "--last=3")
    readers = [
        CheckpointReader(trained / "checkpoints" / f"step_000000{step}") for step in (10, 15, 20)
    ]
    average = CheckpointReader(stdout.strip())
    name = "model/embedding/matrix"
    expected = np.mean([reader.read(name) for reader in readers], axis=0, dtype=np.float64)
    np.testing.assert_array_equal(average.read(name), expected.astype(np.float32))
    run("average", f"--workdir={trained}", "--last=2")  # as training left it


def test_evaluate_prints_one_json_line_last(trained, corpus_folder):
    by_split, _ = run("evaluate", f"--workdir={trained}", "--split=test")
    by_files, _ = run(
        "evaluate",
        f"--workdir={trained}",
        f"--source={corpus_folder}/test.en",
        f"--reference={corpus_folder}/test.de",
        f"--baseline={corpus_folder}/test.en",
        "--by_length",
        "--compound_split",
    )
    scores, again = (json.loads(text.splitlines()[-1]) for text in (by_split, by_files))
    assert by_split.splitlines()[0] == "Scoring split test: 10 sentences"
    assert scores.pop("split") == "test"
    assert again.pop("source") == f"{corpus_folder}/test.en"
    assert again.pop("reference") == f"{corpus_folder}/test.de"
    assert scores["sentences"] == 10
    assert 0 <= scores["bleu"] <= 100
    assert 0 <= scores["chrf"] <= 100
    assert "tok:13a" in scores["bleu_signature"]
    assert {k: again[k] for k in scores if k != "seconds"} == {
        k: scores[k] for k in scores if k != "seconds"
    }
    assert again["comparison"]["bleu"] == scores["bleu"]
    assert sum(group["sentences"] for group in again["by_length"]) == 10
    assert 0 <= again["compound_split_bleu"] <= 100


def test_evaluate_refuses_the_name_of_two_splits(trained):
    """And --config.data.… overrides a field of the run."""
    flags = [f"--workdir={trained}", "--split=test", "--config.data.test_split=val"]
    stdout, stderr = run("evaluate", *flags, code=1)
    assert not stdout
    message = (
        "error: --split=test may be the corpus's own split 'test' or 'val', which data.test_sp"
    )
    assert stderr.splitlines()[-1].startswith(message)


BROKEN_SCORES = "tests.end_to_end.evaluate_with_broken_scores"


def test_a_tokenizer_that_is_missing_is_named_before_anything_is_translated(trained):
    stdout, stderr = run(BROKEN_SCORES, f"--workdir={trained}", "--tokenize=ja-mecab", code=1)
    assert not stdout
    assert stderr.splitlines()[-1].startswith("error: sacreBLEU's tokenizer 'ja-mecab' does not")
    assert stderr.splitlines()[-1].endswith("pip install 'sacrebleu[ja]'.")


@pytest.mark.slow
def test_translations_are_kept_where_their_scoring_fails(trained):
    _, stderr = run(BROKEN_SCORES, f"--workdir={trained}", code=1)
    assert "RuntimeError: broken score" in stderr
    path = pathlib.Path(re.search(r"what was scored is kept in (\S+)", stderr)[1])
    assert len(path.read_text().splitlines()) == 10
    path.unlink()


def test_the_saved_model_translates_like_the_workdir_line_by_line(trained, tmp_path):
    (tmp_path / "in.txt").write_bytes(TEXT)
    folder = tmp_path / "[e]xport \\ü"  # what TensorFlow takes for a pattern
    run(
        "translate",
        f"--workdir={trained}",
        f"--input={tmp_path}/in.txt",
        f"--output={tmp_path}/out.txt",
        "--errors=replace",
    )
    small = ["--precision=bfloat16", "--signatures=serving_default", "--beam_size=2", "--noverify"]
    small += ["--max_source_length=9", "--max_extra_tokens=3", "--name=digits", "--device=gpu"]
    for version, flags in (("1", ["--signatures=serving_default,n_best"]), ("2", small)):
        stdout, _ = run("export", f"--workdir={trained}", f"--output={folder}", *flags)
        assert stdout.strip() == str(folder / version)
    sizes = [os.path.getsize(folder / v / "saved_model.pb") for v in ("1", "2")]
    assert sizes[1] < sizes[0] / 2
    replace = ["--errors=replace"]
    served, _ = run("translate", f"--saved_model={folder}/1", *replace, stdin=TEXT)
    assert served == (tmp_path / "out.txt").read_text()
    assert served.count("\n") == TEXT.count(b"\n")
    assert served.split("\n")[1:3] == ["", ""]

    n_best, _ = run(
        "translate",
        f"--saved_model={folder}/1",
        "--n_best=3",
        "--scores",
        stdin=b"one two\nfour\n",
    )
    rows = [line.split("\t") for line in n_best.splitlines()]
    _, stderr = run(
        "translate",
        f"--saved_model={folder}/1",
        "--n_best=9",
        "--errors=replace",
        stdin=TEXT,
        code=1,
    )
    assert "--n_best=9 is more than the" in stderr
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    scores = [float(row[1]) for row in rows]
    assert scores[:3] == sorted(scores[:3], reverse=True)

    (tmp_path / "link").symlink_to(folder / "1")
    script = subprocess.run(
        [*warm_python(), ROOT / "tools/saved_model_translate.py", tmp_path / "link"],
        input="one two\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert served.splitlines()[0] in script.stdout


@pytest.mark.slow  # tests/serving/test_signatures.py compares the samples of both
def test_the_saved_model_draws_the_samples_of_the_workdir(trained, tmp_path):
    arguments = ["--signatures=serving_default,sample", "--noverify", f"--output={tmp_path}"]
    export, _ = run("export", f"--workdir={trained}", *arguments)
    flags = ["--sample", "--n_best=2", "--seed=-7", "--temperature=2", "--top_k=50", "--top_p=0.99"]
    drawn, again = (
        run("translate", model, *flags, *other, stdin=b"one two\nfour\nfour\n")[0].splitlines()
        for model, other in (
            (f"--workdir={trained}", []),
            (f"--saved_model={export.strip()}", ["--batch_size=1"]),
        )
    )
    assert drawn == again
    assert [line.split("\t")[0] for line in drawn] == ["1", "1", "2", "2", "3", "3"]
    assert len(set(drawn)) > 3


@pytest.mark.slow
def test_a_shortlist_is_learned_from_the_shards_and_kept(trained, tmp_path):
    workdir = shutil.copytree(trained, tmp_path / "work")
    flags = [f"--workdir={workdir}", f"--output={tmp_path}/export", "--shortlist=20"]
    flags += ["--signatures=serving_default", "--device=cpu", "--noverify"]
    lines = tmp_path / "lines"
    lines.write_text("one two\nfour\n")
    verified = [f"--lines={lines}" if flag == "--noverify" else flag for flag in flags]
    export, _ = run("export", *verified, "--precision=int8")
    served, _ = run("translate", f"--saved_model={export.strip()}", stdin=lines.read_bytes())
    assert served.count("\n") == 2
    record = json.loads((pathlib.Path(export.strip()) / "assets.extra" / "export.json").read_text())
    assert record["shortlist"] == 20 and record["distance_from_float32"]["lines"] == 2
    shutil.rmtree(workdir / "tokens")
    _, stderr = run("export", *flags)  # from the file
    assert "shortlist_20.npz: scores have the cost of a token that it was saved with" in stderr
    (workdir / "shortlist_20.npz").unlink()
    _, stderr = run("export", *flags, code=1)
    assert "error: --shortlist: there is no tokenized split" in stderr
    assert sorted(os.listdir(tmp_path / "export")) == [
        "1",
        "2",
        "batching_params.pbtxt",
        "models.config",
    ]


@pytest.mark.slow
def test_a_knn_model_is_exported_with_its_datastore(trained, tmp_path):
    flags = ["--knn_k=4", "--knn_temperature=5", "--knn_interpolation=0.9"]
    lines = b"one two\nseven three nine\nfour\n"
    alone, _ = run("translate", f"--workdir={trained}", stdin=lines)
    found, _ = run("translate", f"--workdir={trained}", *flags, stdin=lines)
    assert found != alone
    arguments = [f"--workdir={trained}", f"--output={tmp_path}/export", "--noverify"]
    export, _ = run("export", *arguments, "--signatures=serving_default", *flags)
    served, _ = run("translate", f"--saved_model={export.strip()}", stdin=lines)
    assert served == found


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ["--knn_k=4", "--knn_interpolation=1"],
            "flag --knn_interpolation=1.0: give a number from 0 to 0.999999",
        ),
        (["--length_penalty=nan"], "flag --length_penalty=nan: give a number from -10 to 10"),
        (["--beam_size=0"], "flag --beam_size=0: give a whole number from 1 to 4,096"),
        (["--knn_interpolation=0.1"], "--knn_interpolation is for kNN-MT"),
        (["--neighbours=4"], "--neighbours is now --knn_k."),
    ],
)
def test_flags_of_decoding_that_do_not_fit_are_refused(trained, flags, message):
    _, stderr = run("evaluate", f"--workdir={trained}", *flags, code=1)
    assert stderr.splitlines()[-1].startswith(f"error: {message}")


@pytest.mark.parametrize(
    ("binary", "arguments", "messages"),
    [
        ("train", [*SMALL, "--config.model.num_heads=5"], ["num_heads is 5", "model_dim 32"]),
        ("train", [*SMALL, "--config.train.stepz=3"], ["'stepz' Did you mean \"steps\""]),
        ("train", [*SMALL, "--config.train.decay_fraction=2.0"], ["decay_fraction is 2.0"]),
        ("train", [*SMALL, "--config.neighbours.count=4"], ["config.knn.k now"]),
        (
            "train",
            [*SMALL, "--config.train.parallel_micro_batches=3"],
            ["parallel_micro_batches is 3, more than train.micro_batches 1"],
        ),
        ("train", [*SMALL, "--config.model.vocab_size=9000"], ["9000"]),
        ("train", ["--workdir=x"], ["--config"]),
        ("translate", ["--saved_model=/nowhere/1"], ["/nowhere/1"]),
        ("translate", [], ["--workdir", "--saved_model"]),
        ("evaluate", ["--source=x.en", "--workdir=x"], ["--reference"]),
        ("evaluate", ["--workdir=x", "--tokenize=foo"], ["tokenize", "13a"]),
        ("evaluate", ["--workdir=x", "--output=nowhere/x.de"], ["no folder", "/nowhere; make it"]),
        ("translate", ["--workdir=x", "--output=x.de.gz"], ["leave .gz out"]),
        ("translate", ["--saved_model=x", "--checkpoint=a,b"], ["--checkpoint=a,b is for --work"]),
        ("translate", ["--sample", "--terms=x"], ["--terms and --sample do not combine"]),
        ("translate", ["--workdir=x", "--top_p=0.9"], ["--top_p=0.9 is for --sample"]),
        ("translate", ["--workdir=x", "--sample", "--top_p=0"], ["--top_p=0.0: give a number"]),
        ("translate", ["--sample", "--temperature=0"], ["--temperature=0.0: give a number from"]),
        ("train", [SMALL[0]], ["--workdir"]),
        ("train", [*SMALL, "--config.data.errors=ignore"], ["'ignore'", "replace"]),
        ("prepare", [*SMALL, "--config.model.num_heads=5"], ["num_heads is 5"]),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(
    binary, arguments, messages, corpus_folder, tmp_path
):
    if set(SMALL) <= set(arguments):
        arguments = [
            *arguments,
            f"--workdir={tmp_path}/work",
            f"--config.data.folder={corpus_folder}",
        ]
    _, stderr = run(binary, *arguments, code=1)
    last = stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert all(message in last for message in messages), last
    assert "Traceback" not in stderr


def test_a_baseline_of_other_lines_is_refused_before_anything_is_translated(trained, tmp_path):
    (tmp_path / "baseline.de").write_text("eins zwei\n")
    arguments = [f"--workdir={trained}", f"--baseline={tmp_path}/baseline.de"]
    stdout, stderr = run("evaluate", *arguments, code=1)
    assert "baseline.de has 1 lines and the references 10" in stderr
    assert not stdout


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
        _, stderr = run(binary, f"--workdir={trained}", *flags, code=1)
        assert "latin.de line 11 is not valid UTF-8" in stderr.splitlines()[-1]
    assert sorted(tmp_path.iterdir()) == [latin, source]
    _, stderr = run("translate", f"--workdir={trained}", stdin=latin.read_bytes(), code=1)
    assert "standard input line 11 is not valid UTF-8" in stderr.splitlines()[-1]
    stdout, _ = run("evaluate", f"--workdir={trained}", *files, "--errors=replace")
    assert json.loads(stdout.splitlines()[-1])["sentences"] == 11


def test_a_workdir_refuses_another_model(trained, corpus_folder):
    arguments = [*SMALL, f"--workdir={trained}", f"--config.data.folder={corpus_folder}"]
    _, stderr = run("train", *arguments, "--config.model.model_dim=64", code=1)
    assert "model.model_dim = 32, not 64" in stderr


def test_explain_config_lists_the_differences_from_the_paper():
    as_in_the_paper = "--config.train.label_smoothing=0.1"
    stdout, _ = run("train", *SMALL, as_in_the_paper, "--workdir=unused", "--explain_config")
    assert "model.num_heads = 2 (the paper's base model: 8)" in stdout
    assert "train.label_smoothing" not in stdout
