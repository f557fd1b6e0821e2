import json
import random
import re

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
import tensorflow_text  # noqa: F401  the ops of an exported tokenizer

from pipelines import experiment
from pipelines.configs import imdb_reviews, sentence_polarity
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.data.streams import training_batches
from t2t_keras.errors import InputError
from tests.end_to_end.binaries import ROOT, run
from tests.end_to_end.guides import example, flags_of, link_project, run_bash

WORDS = ["a", "the", "film", "plot", "actor", "scene", "is", "was", "with", "of", "long"]
SIGNS = {"neg": ["bad", "dull"], "pos": ["good", "fine"]}

SMALL = [
    f"--config={ROOT}/pipelines/configs/sentence_polarity.py",
    "--config.model.vocab_size=310", "--config.model.model_dim=32",
    "--config.model.feed_forward_dim=64", "--config.model.num_heads=2",
    "--config.model.dropout=0.1", "--config.model.head_dropout=0.1",
    "--config.model.word_dropout=0.05", "--config.data.test_split=test",
    "--config.data.tokens_per_batch=500", "--config.train.steps=80",
    "--config.train.warmup_steps=40", "--config.train.learning_rate_scale=0.4",
    "--config.train.validate_every=40", "--config.train.checkpoint_every=20",
    "--config.train.average_checkpoints=2",
]  # fmt: skip


def write_texts(folder):
    """Writes train, dev and test: a word in each text tells its class."""
    chance = random.Random(0)
    for split, count in {"train": 300, "dev": 20, "test": 15}.items():
        for label, signs in SIGNS.items():
            texts = []
            for _ in range(count):
                words = chance.choices(WORDS, k=chance.randint(3, 9))
                words.insert(chance.randrange(len(words)), chance.choice(signs))
                texts.append(" ".join(words))
            (folder / f"{split}.{label}").write_text("\n".join(texts) + "\n")
    return folder


GUIDE = example("other_tasks.md", "sentence_polarity.py")


@pytest.mark.slow
def test_the_binaries_classify(tmp_path):
    folder, workdir = link_project(tmp_path) / "reviews", tmp_path / "runs" / "polarity"
    folder.mkdir()
    write_texts(folder)
    script = GUIDE.replace(" \\\n", f" {flags_of(SMALL)} \\\n", 1).replace("=reviews", f"={folder}")
    scores, answer = run_bash(script, tmp_path).splitlines()[-2:]
    scores = json.loads(scores)
    assert scores["accuracy"] > 0.9 and scores["sentences"] == 40 and scores["seconds"] > 0
    assert scores["classes"]["pos"]["texts"] == 20
    assert re.fullmatch(r"[01]\.\d+\tpos", answer)
    columns = (workdir / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"accuracy", "cross_entropy", "validation_accuracy", "validation_loss"} <= set(columns)

    texts, labels = tmp_path / "texts", tmp_path / "labels"
    texts.write_text("the film was good\na dull plot\nfine actor\n")
    labels.write_text("pos\nneg\nneg\n")
    arguments = [f"--workdir={workdir}", f"--source={texts}", f"--reference={labels}"]
    stdout, _ = run("evaluate", *arguments, f"--output={tmp_path / 'found'}")
    assert json.loads(stdout.splitlines()[-1])["accuracy"] == pytest.approx(2 / 3)
    assert (tmp_path / "found").read_text() == "pos\nneg\npos\n"
    labels.write_text("pos\nneg\nnone\n")
    _, stderr = run("evaluate", *arguments, code=1)
    assert "labels line 3 has the label 'none': give one of neg, pos." in stderr

    export, _ = run(
        "export", f"--workdir={workdir}", f"--output={tmp_path / 'export'}", "--noverify"
    )
    text = texts.read_bytes() + b"\n"
    flags = ["--scores", "--n_best=2"]
    live, _ = run("translate", f"--workdir={workdir}", *flags, stdin=text)
    exported, _ = run("translate", f"--saved_model={export.strip()}", *flags, stdin=text)
    assert exported == live
    assert live.splitlines()[0].startswith("1\t0.9") and live.splitlines()[0].endswith("\tpos")
    answer = tf.saved_model.load(export.strip()).signatures["serving_default"](
        text=tf.constant(["good", "bad"])
    )
    assert answer["label"].numpy().tolist() == [b"pos", b"neg"]
    np.testing.assert_allclose(np.sum(answer["probabilities"], axis=1), 1, rtol=1e-6)

    _, stderr = run("translate", f"--workdir={workdir}", "--beam_size=4", code=1)
    assert "--beam_size is not a setting of a Classifier" in stderr
    train = [*SMALL, f"--workdir={workdir}", f"--config.data.folder={folder}"]
    _, stderr = run("train", *train, "--config.data.labels=pos,neg", code=1)
    assert "data.labels = 'neg,pos', not 'pos,neg'" in stderr


@pytest.fixture
def config(tmp_path):
    config = sentence_polarity.get_config()
    config.data.folder = str(write_texts(tmp_path))
    config.model.vocab_size = 310
    return config


@pytest.mark.parametrize(("part", "field", "value", "message"), [
    ("data", "folder", "nowhere", "there is no folder 'nowhere'"),
    ("data", "labels", "pos", "labels are .*: give two or more"),
    ("data", "max_length", 1, "max_length is 1"),
    ("model", "pooling", "last", "pooling is 'last'"),
    ("model", "word_dropout", 1.0, "word_dropout is 1.0"),
])  # fmt: skip
def test_mistakes_are_named_before_anything_is_done(config, part, field, value, message):
    experiment.check(config)
    config[part][field] = value
    with pytest.raises(InputError, match=message):
        experiment.check(config)


def test_files_that_do_not_fit_are_refused(config, tmp_path):
    (tmp_path / "texts").write_text("one\ntwo\n")
    (tmp_path / "labels").write_text("pos\n")
    files = str(tmp_path / "texts"), str(tmp_path / "labels")
    with pytest.raises(InputError, match=r"texts has 2 lines and .*labels has 1"):
        make_task(config).examples_of_files(*files)
    with pytest.raises(InputError, match="their labels as --reference"):
        make_task(config).examples_of_files("", files[1])


@pytest.mark.slow
def test_imdb_reviews_dry_run_on_mock_data(tmp_path):
    config = imdb_reviews.get_config()
    config.model.update(vocab_size=330, attention_window=16)  # mock text supports no more pieces
    config.data.tfds_data_dir = str(tmp_path)
    with tfds.testing.mock_data(num_examples=40):
        experiment.check(config)
        workdir = Workdir(tmp_path / "work")
        experiment.prepare(make_task(config), workdir)
        inputs, labels = make_task(config).evaluation_examples(config.data.test_split, 5)
    assert len(inputs) == 5 and set(labels) <= {"neg", "pos"}
    batcher = make_task(config).make_batcher(replicas=1)
    batches = training_batches(workdir.tokens, config.data.train_split, batcher, seed=1)
    model = make_task(config).make_model()
    experiment.compile_model(make_task(config), model)
    history = model.fit(batches, steps_per_epoch=2, verbose=0).history
    assert np.isfinite(history["loss"][0])
