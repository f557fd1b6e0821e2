"""A pretrained folder becomes a workdir that all commands work on."""

import csv
import json
import re
import shutil

import pytest
import tensorflow as tf

import t2t_keras as t2t
from pipelines import training
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.marian import load_marian
from t2t_keras.training.metrics_log import MetricsLog
from tests.data.reading import read_pairs
from tests.end_to_end.binaries import SMALL, refused, run, write_corpora, write_folder
from tests.interop import m2m100_folder

pytestmark = pytest.mark.slow

LINES = ["The old man sees a small dog.", ">>deu<< A train.", ""]


@pytest.fixture
def expected(imported):
    """The languages of the model, and what its folder answers."""
    folder, _ = imported
    if json.loads((folder / "config.json").read_text())["model_type"] == "marian":
        return {}, load_marian(folder)(LINES)
    languages = {"source_language": "en", "target_language": "de"}
    return languages, load_m2m100(folder)(LINES, **languages)


def test_workdir_and_export_answer_as_the_folder_does(imported, expected, tmp_path):
    (_, workdir), (languages, texts) = imported, expected
    flags = [f"--{name}={code}" for name, code in languages.items()]
    text = "\n".join(LINES).encode()
    stdout, _ = run("translate", f"--workdir={workdir}", *flags, stdin=text)
    assert stdout.split("\n")[: len(LINES)] == texts
    flags = [f"--workdir={workdir}", f"--output={tmp_path}", "--signatures=serving_default"]
    run("export", *flags, "--noverify")
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    codes = {name: tf.fill([3], code) for name, code in languages.items()}
    found = signature(text=tf.constant(LINES), **codes)["translation"].numpy()
    assert [text.decode() for text in found] == texts


def test_no_languages_are_assumed(imported, expected, tmp_path):
    workdir, (languages, _) = imported[1], expected
    source, reference = tmp_path / "test.fr", tmp_path / "test.en"
    for path in (source, reference):
        path.write_text("Un train.\n")
    texts = [f"--workdir={workdir}", f"--source={source}", f"--reference={reference}"]
    if languages:
        assert "source_language is missing" in refused("evaluate", *texts)
    else:
        folder = f"--config.data.folder={tmp_path}"
        assert "--source and --reference" in refused("evaluate", texts[0], folder, "--split=test")
        _, stderr = run("evaluate", *texts, "--beam_size=1")
        assert "the target language is unknown" in stderr
    task = make_task(Workdir(workdir).load_config())
    translator = load_marian(imported[0]) if not languages else load_m2m100(imported[0])
    task.config.data.folder = str(tmp_path)  # whose endings are those of the flags
    assert task.has_split("test") and not task.has_split("val")
    predictor = task.make_predictor(translator.model, translator.tokenizer)
    assert predictor.settings.text_language == ""  # documents keep every abbreviation


def test_a_folder_that_cannot_be_read_leaves_nothing(tmp_path):
    broken = tmp_path / "broken"
    broken.mkdir()
    message = refused("import_model", f"--from={broken}", f"--workdir={tmp_path}/run")
    assert "neither config.json" in message and "hf download" in message
    assert [path.name for path in tmp_path.iterdir()] == ["broken"]


@pytest.mark.slow
@pytest.mark.parametrize("imported", ["marian"], indirect=True)
def test_training_on_lowers_the_loss(imported, tmp_path):
    workdir = shutil.copytree(imported[1], tmp_path / "run")
    for language, line in {"en": LINES[0], "de": "Der alte Hund."}.items():
        for split in ("train", "val"):
            (tmp_path / f"{split}.{language}").write_text(f"{line}\n" * 40)
    flags = [f"--config=workdir:{workdir}", f"--workdir={workdir}"]
    flags += [f"--config.data.folder={tmp_path}", "--config.data.validation_split=val"]
    assert "names no languages" in refused("train", *flags, "--config.train.steps=40")
    flags += ["--config.data.source_language=en", "--config.data.target_language=de"]
    flags += [f"--config.train.{name}=20" for name in ("validate_every", "checkpoint_every")]
    flags += ["--config.train.log_every=5", "--config.train.validation_sentences=0"]
    flags += ["--config.train.warmup_steps=10"]
    run("train", *flags, "--config.train.steps=40")
    rows = list(csv.DictReader((workdir / "metrics.csv").open()))
    losses = [float(row["loss"]) for row in rows if row["loss"]]
    assert losses[-1] < losses[0] - 0.2
    assert json.loads((workdir / "config.json").read_text())["model"]["attention_bias"]
    before, after = (
        translator.score([LINES[0]], ["Der alte Hund."]).log_probabilities.numpy().item()
        for translator in (load_marian(imported[0]), t2t.load(workdir))
    )
    assert after > before


def our_ids(text, code):
    """The ids of a text behind its language's token: rows 2, 3, then all others from id 4 on."""
    row = m2m100_folder.tokens("m2m100").index(f"__{code}__")
    rows = [row, *m2m100_folder.ids_of("m2m100", text)]
    return (*({2: 1, 3: 2}.get(r, r + 4 if r < 2 else r + 2) for r in rows), 1)


@pytest.mark.slow
@pytest.mark.parametrize("imported", ["m2m100"], indirect=True)
def test_a_model_of_many_languages_is_tuned_on_two_corpora(imported, tmp_path):
    run_of_two = Workdir(shutil.copytree(imported[1], tmp_path / "run"))
    folder = tmp_path / "digits"
    folder.mkdir()
    write_corpora(folder)
    config = run_of_two.load_config()
    corpora = f"{folder}:en=de,{folder}/french:fr-en"
    config.data.update(corpora=corpora, validation_split="val", tokens_per_batch=400)
    every = dict.fromkeys(("log_every", "validate_every", "checkpoint_every"), 20)
    config.train.update(steps=40, warmup_steps=10, validation_sentences=0, **every)
    before = t2t.load(imported[1]).model.get_weights()
    training.train(config, run_of_two)
    directions = {"en-de": folder, "de-en": folder, "fr-en": folder / "french"}
    for name, place in directions.items():
        codes = name.split("-")
        sides = ((place / f"train.{code}").read_text().splitlines() for code in codes)
        texts = zip(*sides, strict=True)
        expected = {tuple(map(our_ids, pair, codes)) for pair in texts}
        assert {*read_pairs(tmp_path / "run" / "tokens", f"train/{name}")} == expected
        log = MetricsLog(tmp_path / "run", step=40).values(f"validation_loss_{name}")
        (_, first), (_, last) = log
        assert last < first
    tuned = t2t.load(tmp_path / "run").model.get_weights()
    assert all((old != new).any() for old, new in zip(before, tuned, strict=True))


@pytest.mark.slow
def test_a_run_is_trained_further_with_another_vocabulary(trained, tmp_path):
    write_folder(tmp_path)
    for path in tmp_path.glob("*.en"):
        path.write_text(path.read_text().replace("o", "oo"))
    flags = [*SMALL, f"--config.data.folder={tmp_path}", "--config.model.vocab_size=310"]
    run("prepare", *flags, f"--workdir={tmp_path}/other")
    new, vocabulary = f"--workdir={tmp_path}/new", f"--vocabulary={tmp_path}/other/vocabulary"
    _, stderr = run("import_model", f"--from={trained}", vocabulary, new)
    said = re.search(r"Vocabulary: (\d+) of 310 tokens keep their weights, (\d+) are init", stderr)
    pieces = [
        t2t.load_tokenizer(place / "vocabulary").pieces(tf.range(size)).numpy().tolist()
        for place, size in ((trained, 330), (tmp_path / "other", 310))
    ]
    kept = 4 + len({*pieces[0][4:]} & {*pieces[1][4:]})
    assert (int(said[1]), int(said[2])) == (kept, 310 - kept)
    flags = [f"--config=workdir:{tmp_path}/new", new, f"--config.data.folder={tmp_path}"]
    flags += ["--config.data.source_language=en", "--config.data.target_language=de"]
    flags += ["--config.data.validation_split=val", "--config.train.validation_sentences=0"]
    _, stderr = run("train", *flags, "--config.train.steps=2")
    assert "Starting from the weights of" in stderr and "Trained 2 steps" in stderr
    assert t2t.load(tmp_path / "new").tokenizer.vocab_size == 310
