"""A language model by the commands: lines and streams, perplexities, continuations, an export."""

import itertools
import json
import math
import random
import shutil

import numpy as np
import pytest

import t2t_keras as t2t
from pipelines import experiment
from pipelines.configs import multi30k_de_lm
from pipelines.tasks import make_task
from t2t_keras.errors import InputError
from tests.end_to_end.binaries import (
    GERMAN,
    NARROW,
    assert_same_checkpoint,
    refused,
    run,
    scores_of,
    small_flags,
)
from tests.end_to_end.guides import example, flags_of, link_project, run_bash, run_python, scores_in

SMALL = small_flags("multi30k_de_lm", {
    **NARROW, "model.vocab_size": 330, "model.num_decoder_layers": 1, "model.dropout": 0,
    "data.test_split": "test", "data.tokens_per_batch": 400, "data.max_length": 16,
    "train.steps": 60, "train.warmup_steps": 20, "train.log_every": 20, "train.validate_every": 30,
    "train.checkpoint_every": 30, "train.average_checkpoints": 1, "train.micro_batches": 1,
    "train.parallel_micro_batches": 1, "train.mixed_precision": "", "train.deterministic": True,
    "decode.max_extra_tokens": 12,
})  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder, chance = tmp_path_factory.mktemp("texts"), random.Random(0)
    for split, count in {"train": 400, "val": 20, "test": 15}.items():
        texts = []
        for _ in range(count):
            start = chance.randrange(10)
            # Each counts up, so that a beginning decides what follows.
            texts.append(" ".join((GERMAN + GERMAN)[start : start + chance.randint(3, 6)]))
        (folder / f"{split}.lc.de").write_text("\n".join(texts) + "\n")
        (folder / f"{split}.en").write_text("other text\n")
    return folder


def train(folder, workdir, *flags, **options):
    arguments = [*SMALL, f"--config.data.folder={folder}", f"--workdir={workdir}", *flags]
    return run("train", *arguments, **options)


def numpy_perplexities(generator, texts, length=None, stride=None):
    """The measures token by token: each text alone, or windows of a stream of all."""
    ids = [
        [*row, generator.tokenizer.eos_id] for row in generator.tokenizer.encode(texts).to_list()
    ]
    before = [[generator.tokenizer.bos_id, *row[:-1]] for row in ids]
    if length:
        ids, before = ([np.concatenate(rows)] for rows in (ids, before))
    total = 0.0
    for row, inputs in zip(ids, before, strict=True):
        for place, token in enumerate(row):
            first = max(0, -(-(place + 1 - length) // stride)) * stride if length else 0
            given = np.array([inputs[first : place + 1]], "int32")
            logits = generator.model({"target_ids": given})[0, -1].numpy().astype("float64")
            total -= logits[token] - math.log(np.exp(logits).sum())
    words = sum(len(text.split()) + 1 for text in texts)
    size = sum(len(text.encode()) + 1 for text in texts)
    return {
        "perplexity": math.exp(total / sum(map(len, ids))),
        "word_perplexity": math.exp(total / words),
        "bits_per_byte": total / math.log(2) / size,
    }


def assert_scores(found, expected):
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_the_binaries_model_lines(folder, tmp_path):
    workdir = tmp_path / "run"
    run("prepare", *SMALL, f"--config.data.folder={folder}", f"--workdir={workdir}")
    train(folder, workdir)
    header = (workdir / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"perplexity", "validation_perplexity", "validation_accuracy"} <= set(header)

    # Resumed from the middle, training ends with the same bits.
    half = tmp_path / "half"
    shutil.copytree(workdir, half)
    for path in half.glob("checkpoints/*00000060*"):
        shutil.rmtree(path)
    train(folder, half)
    assert_same_checkpoint(workdir, half, 60)

    found, generator = scores_of(f"--workdir={workdir}", "--split=test"), t2t.load(workdir)
    texts = (folder / "test.lc.de").read_text().splitlines()
    assert found["sentences"] == 15 and found["perplexity"] < 10
    assert_scores(found, numpy_perplexities(generator, texts))
    [row] = (workdir / "metrics.csv").read_text().splitlines()[-1:]
    logged = float(row.split(",")[header.index("validation_perplexity")])
    validated = scores_of(f"--workdir={workdir}", "--split=val")["perplexity"]
    assert validated == pytest.approx(logged, rel=1e-3)
    (tmp_path / "more").write_text("eins zwei\n\nzwei drei vier\n")
    found = scores_of(f"--workdir={workdir}", f"--reference={tmp_path / 'more'}")
    assert found["words"] == 7 and found["bytes"] == 10 + 15
    assert_scores(found, numpy_perplexities(generator, ["eins zwei", "zwei drei vier"]))
    windows = scores_of(f"--workdir={workdir}", f"--reference={tmp_path / 'more'}", "--stride=16")
    assert_scores(windows, {name: found[name] for name in ("perplexity", "bits_per_byte")})

    export, _ = run("export", f"--workdir={workdir}", f"--output={tmp_path / 'export'}")
    prompts = b"drei vier\nnull\n\n"
    drawn = "--sample", "--seed=3", "--top_k=5", "--top_p=0.9", "--temperature=0.7", "--n_best=2"
    for flags in (["--n_best=2", "--scores"], drawn):
        live, _ = run("translate", f"--workdir={workdir}", *flags, stdin=prompts)
        exported, _ = run("translate", f"--saved_model={export.strip()}", *flags, stdin=prompts)
        assert live == exported
    answer, _ = run("translate", f"--workdir={workdir}", "--beam_size=1", stdin=b"drei vier\n")
    assert answer.startswith("drei vier fünf sechs")
    several, _ = run("average", f"--workdir={workdir}", "--last=2")
    assert several.strip().endswith("average_00000060")

    # What cannot be done is one line.
    long = b"eins\n" + b"zwei drei " * 20 + b"\n"
    for model in (f"--workdir={workdir}", f"--saved_model={export.strip()}"):
        assert refused("translate", model, stdin=long).startswith("error: line 2 has more")
    (tmp_path / "long").write_bytes(b"\n" + long)
    message = refused("evaluate", f"--workdir={workdir}", f"--reference={tmp_path / 'long'}")
    assert "error: text 2, 'zwei drei zwei" in message and "…, has more than 28 tokens" in message
    scores_of(f"--workdir={workdir}", f"--reference={tmp_path / 'long'}", "--stride=8")
    (tmp_path / "blank").write_text("\n")
    blank = f"--reference={tmp_path / 'blank'}"
    for command, *flags, message in [
        ("evaluate", "--beam_size=2", "--beam_size is for outputs, and perplexity needs none"),
        ("evaluate", "--output=x", "--output is for outputs, and perplexity needs none"),
        ("evaluate", blank, "blank has no text: give at least one line with a word"),
        ("evaluate", "--reference=/dev/null", "/dev/null has no text"),
        ("evaluate", "--lowercase", "--lowercase is only for translation: leave it out"),
        ("evaluate", "--stride=17", "stride is 17: give 1 to 16, the tokens of a row"),
        ("evaluate", f"--source={folder}/test.en", f"--reference={folder}/test.en",
         "give the texts as --reference, without --source"),
        ("translate", "--document", "--document is not for a TextGenerator: leave it out"),
        ("translate", "--min_target_length=3", "is not a setting of a Generator"),
        ("translate", "--source_language=de", "--target_language=en", "language"),
        ("visualize", "--sentence=a", f"--output={tmp_path}", "a run of task 'language_model'"),
        ("export", "--shortlist=50", f"--output={tmp_path / 'x'}", "a shortlist is for"),
        ("export", "--signatures=prefix", f"--output={tmp_path / 'x'}", "prefix"),
    ]:  # fmt: skip
        found = refused(command, f"--workdir={workdir}", *flags, stdin=b"a\n")
        assert message in found, (command, flags)
    arguments = [f"--config.data.folder={folder}", f"--workdir={workdir}"]
    message = refused("train", "--config=multi30k_en_de", *arguments)
    assert "a run of task 'language_model', not 'translation'" in message


GUIDE = example("other_tasks.md", "--config=multi30k_de_lm")
IN_PYTHON = example("other_tasks.md", "generator.sample")


@pytest.mark.slow
def test_the_guide_trains_continues_and_exports(folder, tmp_path):
    place = link_project(tmp_path)
    (place / "texts").symlink_to(folder)
    stdout = run_bash(GUIDE.replace("=texts\n", f"=texts {flags_of(SMALL)}\n", 1), place)
    assert scores_in(stdout)[0]["sentences"] == 20
    ranked, drawn = stdout.splitlines()[-7:-4], stdout.splitlines()[-4:-1]
    assert all(line.startswith("1\t-") and "\tein mann in" in line for line in ranked)
    assert all(line.startswith("1\tein mann in") for line in drawn)
    assert (place / "export_lm" / "1" / "saved_model.pb").exists()
    *drawn, perplexity = run_python(IN_PYTHON, place).splitlines()
    assert len(drawn) == 3 and all("ein mann in" in line for line in drawn)
    assert float(perplexity) > 1


@pytest.mark.slow
@pytest.mark.parametrize("across", [True, False])
def test_the_binaries_model_a_stream(folder, tmp_path, across):
    workdir = tmp_path / "run"
    stream = f"--config.data.across_texts={across}", "--config.data.rows=stream"
    train(folder, workdir, *stream, "--config.train.steps=30")
    texts = (folder / "test.lc.de").read_text().splitlines()
    generator = t2t.load(workdir)
    plain, strided = (scores_of(f"--workdir={workdir}", *f) for f in ([], ["--stride=5"]))
    assert plain["tokens"] == strided["tokens"]
    if across:
        assert_scores(plain, numpy_perplexities(generator, texts, 16, 16))
        assert_scores(strided, numpy_perplexities(generator, texts, 16, 5))


@pytest.fixture
def config(folder):
    config = multi30k_de_lm.get_config()
    config.data.folder = str(folder)
    return config


def test_a_stream_needs_a_batch_of_a_row_and_there_is_no_knn(config):
    experiment.check(config)
    config.knn.k = 4
    with pytest.raises(InputError, match=r"knn\.k is 4: give 0, kNN-MT is for translation"):
        experiment.check(config)
    config.data.update(rows="stream", max_length=5_000)
    with pytest.raises(InputError, match="row_length is 5000: give at most tokens_per_batch"):
        experiment.check(config)


def test_an_empty_validation_text_leaves_no_tokens(folder, tmp_path):
    shutil.copy(folder / "train.lc.de", tmp_path / "train.de")
    (tmp_path / "val.de").write_text("")
    flags = [*SMALL, f"--workdir={tmp_path / 'run'}", f"--config.data.folder={tmp_path}"]
    assert "val.de is empty" in refused("prepare", *flags)
    assert not (tmp_path / "run" / "tokens").exists()


def test_scores_are_json_and_leave_out_what_training_leaves_out(config, tmp_path):
    task = make_task(config)
    scores = task.score([(-1500.0, 501)], ["字" * 500])  # two words, so far as spaces tell
    assert scores["word_perplexity"] is None and scores["words"] == 2
    assert "null" in json.dumps(scores, allow_nan=False)
    assert scores["perplexity"] == pytest.approx(math.exp(1500 / 501))
    (tmp_path / "text").write_text("eins\n\u200b\n\u2060 \nzwei\n", "utf-8")
    texts, _ = task.examples_of_files(None, tmp_path / "text")
    assert texts == ["eins", "zwei"]


@pytest.mark.parametrize("rows", ["lines", "stream"])
def test_a_batch_of_the_task_is_lines_or_a_stream(config, rows):
    config.data.update(rows=rows, tokens_per_batch=64, max_length=16)
    config.model.vocab_size = 330
    task = make_task(config)
    tokenizer = task.train_tokenizer(task.make_corpus())
    texts, again = task.evaluation_examples("val")
    assert texts == again and len(texts) == 20
    batches = task.make_batcher(1)(t2t.encode_texts(texts, tokenizer))
    rows_of = [labels for _, labels, _ in batches]
    tokens = sum(int(np.count_nonzero(labels)) for labels in rows_of)
    assert tokens == sum(map(len, tokenizer.encode(texts).to_list())) + 20
    assert (max(labels.shape[1] for labels in rows_of) == 16) == (rows == "stream")
    pairs = itertools.pairwise(rows_of)
    assert rows == "lines" or all(a.shape == b.shape for a, b in pairs)
