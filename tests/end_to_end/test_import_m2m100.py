"""A pretrained folder of many languages becomes a workdir that all commands work on."""

import shutil

import pytest
import tensorflow as tf

import t2t_keras as t2t
from pipelines import train
from pipelines.workdir import Workdir
from t2t_keras.training.metrics_log import MetricsLog
from tests.data.reading import read_pairs
from tests.end_to_end.binaries import run
from tests.end_to_end.test_many_languages import write_corpora
from tests.interop import m2m100_folder

LINES = ["The old man sees a small dog.", "A train.", ""]
LANGUAGES = {"source_language": "en", "target_language": "de"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return m2m100_folder.write(tmp_path_factory.mktemp("pretrained") / "hf")


@pytest.fixture(scope="module")
def workdir(folder, tmp_path_factory):
    path = tmp_path_factory.mktemp("runs") / "imported"
    run("import_model", f"--from={folder}", f"--workdir={path}")
    return path


@pytest.fixture(scope="module")
def expected(folder):
    return t2t.load_m2m100(folder)(LINES, **LANGUAGES)


def test_the_workdir_answers_as_the_folder_does(expected, workdir):
    flags = [f"--{name}={code}" for name, code in LANGUAGES.items()]
    stdout, _ = run("translate", f"--workdir={workdir}", *flags, stdin="\n".join(LINES).encode())
    assert stdout.split("\n")[: len(LINES)] == expected


@pytest.mark.slow  # the command loads it, too
def test_the_workdir_loads_in_one_line(expected, workdir):
    assert t2t.load(workdir)(LINES, **LANGUAGES) == expected


@pytest.mark.parametrize("precision", ["bfloat16", "int8"])
@pytest.mark.slow  # test_native_client.py exports one in float32
def test_its_export_answers_as_the_translator(workdir, precision, tmp_path):
    run(
        "export",
        f"--workdir={workdir}",
        f"--output={tmp_path}",
        f"--precision={precision}",
        "--signatures=serving_default,n_best,score",
    )
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    codes = {name: tf.fill([3], code) for name, code in LANGUAGES.items()}
    found = signature(text=tf.constant(LINES), **codes)
    assert found["translation"].numpy()[2] == b""
    with pytest.raises(
        tf.errors.InvalidArgumentError, match=r"target_language holds .*xx.*: give one of"
    ):
        signature(text=tf.constant(LINES), **codes | {"target_language": tf.fill([3], "xx")})


def our_ids(text, code):
    """The ids of a text behind its language's token: rows 2, 3, then all others from id 4 on."""
    row = m2m100_folder.tokens("m2m100").index(f"__{code}__")
    rows = [row, *m2m100_folder.ids_of("m2m100", text)]
    return (*({2: 1, 3: 2}.get(r, r + 4 if r < 2 else r + 2) for r in rows), 1)


@pytest.mark.slow
def test_it_is_tuned_on_two_corpora(workdir, tmp_path):
    run_of_two = Workdir(shutil.copytree(workdir, tmp_path / "run"))
    folder = tmp_path / "digits"
    folder.mkdir()
    write_corpora(folder)
    config = run_of_two.load_config()
    config.data.update(
        corpora=f"{folder}:en=de,{folder}/french:fr-en",
        validation_split="val",
        tokens_per_batch=400,
    )
    config.train.update(
        steps=60, warmup_steps=10, log_every=30, validate_every=30, checkpoint_every=30
    )
    before = t2t.load(workdir).model.get_weights()
    train.train(config, run_of_two)
    directions = {"en-de": folder, "de-en": folder, "fr-en": folder / "french"}
    for name, place in directions.items():
        texts = zip(
            *((place / f"train.{code}").read_text().splitlines() for code in name.split("-")),
            strict=True,
        )
        expected = {tuple(map(our_ids, pair, name.split("-"))) for pair in texts}
        assert {*read_pairs(tmp_path / "run" / "tokens", f"train/{name}")} == expected
        log = MetricsLog(tmp_path / "run", step=60).values(f"validation_loss_{name}")
        (_, first), (_, last) = log
        assert last < first
    tuned = t2t.load(tmp_path / "run").model.get_weights()
    assert all((old != new).any() for old, new in zip(before, tuned, strict=True))
