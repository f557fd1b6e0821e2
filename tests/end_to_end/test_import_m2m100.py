"""A pretrained folder of many languages becomes a workdir that all commands work on."""

import pytest
import tensorflow as tf

import t2t_keras as t2t
from tests.end_to_end.binaries import run
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
