import json
import random
import re

import pytest
import tensorflow_text  # noqa: F401  the ops of an exported tokenizer

from pipelines.configs import sentence_polarity
from pipelines.tasks import make_task
from t2t_keras.errors import InputError
from tests.end_to_end.binaries import NARROW, refused, run, scores_of, small_flags
from tests.end_to_end.guides import example, flags_of, link_project, run_bash

WORDS = ["a", "the", "film", "plot", "actor", "scene", "is", "was", "with", "of", "long"]
SIGNS = {"neg": ["bad", "dull"], "pos": ["good", "fine"]}

SMALL = small_flags("sentence_polarity", {
    **NARROW, "model.vocab_size": 310, "model.dropout": 0.1, "model.head_dropout": 0.1,
    "model.word_dropout": 0.05, "data.test_split": "test", "data.tokens_per_batch": 500,
    "train.steps": 80, "train.warmup_steps": 40, "train.learning_rate_scale": 0.4,
    "train.validate_every": 40, "train.checkpoint_every": 20, "train.average_checkpoints": 2,
})  # fmt: skip


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
    scores = scores_of(*arguments, f"--output={tmp_path / 'found'}")
    assert scores["accuracy"] == pytest.approx(2 / 3)
    assert (tmp_path / "found").read_text() == "pos\nneg\npos\n"
    labels.write_text("pos\nneg\nnone\n")
    message = refused("evaluate", *arguments)
    assert "labels line 3 has the label 'none': give one of neg, pos." in message

    export, _ = run(
        "export", f"--workdir={workdir}", f"--output={tmp_path / 'export'}", "--noverify"
    )
    text = texts.read_bytes() + b"\n"
    flags = ["--scores", "--n_best=2"]
    live, _ = run("translate", f"--workdir={workdir}", *flags, stdin=text)
    exported, _ = run("translate", f"--saved_model={export.strip()}", *flags, stdin=text)
    assert exported == live
    assert live.splitlines()[0].startswith("1\t0.9") and live.splitlines()[0].endswith("\tpos")

    message = refused("translate", f"--workdir={workdir}", "--beam_size=4")
    assert "--beam_size is not a setting of a Classifier" in message
    train = [*SMALL, f"--workdir={workdir}", f"--config.data.folder={folder}"]
    message = refused("train", *train, "--config.data.labels=pos,neg")
    assert "data.labels = 'neg,pos', not 'pos,neg'" in message


def test_files_that_do_not_fit_are_refused(tmp_path):
    task = make_task(sentence_polarity.get_config())
    (tmp_path / "texts").write_text("one\ntwo\n")
    (tmp_path / "labels").write_text("pos\n")
    files = str(tmp_path / "texts"), str(tmp_path / "labels")
    with pytest.raises(InputError, match=r"texts has 2 lines and .*labels has 1"):
        task.examples_of_files(*files)
    with pytest.raises(InputError, match="their labels as --reference"):
        task.examples_of_files("", files[1])
