"""Every example of the README is run as it stands there."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from pipelines.datasets.english_german import Builder
from tests.datasets.small_corpus import shrink
from tests.end_to_end import test_classification_binaries, test_parsing_binaries
from tests.interop import marian_folder

ROOT = pathlib.Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```(\w+)\n(.*?)```", README, flags=re.DOTALL)

# The examples are for patient people; a test takes a smaller model and fewer steps.
SHORT = (
    " --config.train.steps=4 --config.train.checkpoint_every=2 --config.train.average_checkpoints=2"
    " --config.train.validation_sentences=2 --config.model.num_encoder_layers=1"
    " --config.model.num_decoder_layers=1 --config.data.tokens_per_batch=300"
)


def blocks(language, word):
    return [text for kind, text in BLOCKS if kind == language and word in text]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder where `python` is this interpreter and `pipelines` the project's."""
    place = tmp_path_factory.mktemp("readme")
    (place / "bin").mkdir()
    python = place / "bin" / "python"  # no link: it would lose its virtual environment
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    (place / "pipelines").symlink_to(ROOT / "pipelines")
    return place


@pytest.fixture(scope="module")
def grammar(place):
    """The built-in corpus as a dataset, a tenth as large."""
    with pytest.MonkeyPatch.context() as patch:
        shrink(patch)
        Builder(data_dir=place / "datasets").download_and_prepare()


def run(command, place):
    environment = os.environ | {
        "PATH": f"{place}/bin:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "TFDS_DATA_DIR": str(place / "datasets"),
        "TF_CPP_MIN_LOG_LEVEL": "2",
    }
    result = subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow  # test_binaries.py does the same with more looked at
@pytest.mark.usefixtures("grammar")
def test_the_binaries(place):
    script, _ = blocks("bash", "pipelines.export")
    script = script.replace("--workdir=runs/grammar\n", f"--workdir=runs/grammar{SHORT}\n", 1)
    script = script.replace("--split=test", "--split=test --beam_size=1 --batch_size=500")
    stdout = run(["bash", "-ec", script], place)
    assert '"bleu_signature"' in stdout
    from_workdir, from_saved_model = stdout.splitlines()[-3], stdout.splitlines()[-1]
    assert from_workdir == from_saved_model


@pytest.mark.slow  # test_import_model.py does the same with more looked at
def test_the_three_commands_of_a_pretrained_model(place):
    marian_folder.write(place / "opus-mt-en-de")
    _, script = blocks("bash", "pipelines.export")
    run(["bash", "-ec", script], place)
    assert (place / "runs" / "opus_export" / "1" / "saved_model.pb").exists()


@pytest.mark.slow  # loads what the first test has exported
def test_loading_the_saved_model_in_python(place):
    (code,) = blocks("python", "tf.saved_model.load")
    assert "tf.Tensor([b'" in run([sys.executable, "-c", code], place)


@pytest.mark.slow
def test_model_fit(place):
    (code,) = blocks("python", "t2t.Transformer(")
    stdout = run([sys.executable, "-c", code], place)
    assert "['drei sieben']" in stdout
    assert float(re.search(r"exact: (.*)", stdout)[1]) > 0.9
    assert float(re.search(r"chrF: (.*)", stdout)[1]) > 90
    assert (place / "digits" / "1" / "saved_model.pb").exists()


def shortened(task, word):
    """The script that has the word, with the sizes of the test of its task's binaries."""
    (script,) = blocks("bash", word)
    flags = [flag for flag in task.SMALL if "test_split" not in flag]
    return script.replace(" \\\n", " " + " ".join(flags[1:]) + " \\\n", 1)


@pytest.mark.slow  # test_classification_binaries.py does the same with more looked at
def test_the_binaries_classify(place):
    (place / "reviews").mkdir()
    test_classification_binaries.write_texts(place / "reviews")
    script = shortened(test_classification_binaries, "sentence_polarity.py")
    scores, answer = run(["bash", "-ec", script], place).splitlines()[-2:]
    assert json.loads(scores)["accuracy"] > 0.9
    assert re.fullmatch(r"[01]\.\d+\tpos", answer)


@pytest.mark.slow
def test_classification_in_python(place):
    (code,) = blocks("python", "TransformerClassifier")
    stdout = run([sys.executable, "-c", code], place)
    assert "[[Classification(label='pos', probability=" in stdout
    assert (place / "polarity" / "1" / "saved_model.pb").exists()


@pytest.mark.slow
def test_an_encoder_of_ones_own(place):
    (code,) = blocks("python", "layers.PostNorm")
    stdout = run([sys.executable, "-c", code], place)
    assert float(re.findall(r"accuracy: ([\d.]+)", stdout)[-1]) > 0.9


@pytest.mark.slow  # test_parsing_binaries.py does the same with more looked at
def test_the_binaries_parse(place):
    (place / "treebank").mkdir()
    test_parsing_binaries.write_treebank(place / "treebank")
    script = shortened(test_parsing_binaries, "wsj_parsing_small.py")
    evaluated, tree, scored = run(["bash", "-ec", script], place).splitlines()[-3:]
    assert tree.count("(") == tree.count(")") > 6 and " cat)" in tree
    assert json.loads(evaluated)["all"] == json.loads(scored)["all"]


def test_the_configs_of_the_readme_exist():
    names = re.findall(r"(\w+\.py)`", README) + re.findall(r"configs/(\w+\.py)", README)
    tasks = ("wmt14", "multi30k", "grammar", "sentence", "imdb", "wsj")
    configs = [name for name in names if name.startswith(tasks)]
    assert len(set(configs)) == 10
    assert all((ROOT / "pipelines" / "configs" / name).exists() for name in configs)


def test_the_files_of_the_readme_exist():
    names = {name.rsplit("/", 1)[-1] for name in re.findall(r"([\w/]+\.py)\b", README)}
    files = {
        path.name
        for part in ("t2t_keras", "pipelines", "tests", "tools")
        for path in (ROOT / part).rglob("*.py")
    }
    assert len(names) > 20
    assert not names - files
