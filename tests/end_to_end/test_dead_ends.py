"""What is missing at the beginning: the error says what to do next."""

import pytest

from pipelines.configs import grammar_en_de, multi30k_en_de, sentence_polarity, wsj_parsing
from pipelines.experiment import check
from pipelines.import_model import load_pretrained
from pipelines.workdir import Workdir
from t2t_keras.data.corpora import FolderCorpus
from t2t_keras.errors import InputError
from tests.end_to_end.binaries import run


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ("opus-mt-en-de", "hf download Helsinki-NLP/opus-mt-en-de --local-dir opus-mt-en-de"),
        (
            "runs/opus-mt-en-fr",
            "hf download Helsinki-NLP/opus-mt-en-fr --local-dir runs/opus-mt-en",
        ),
        ("Someone/model", "hf download Someone/model --local-dir Someone/model"),
        ("model", "hf download OWNER/model --local-dir model"),
    ],
)
def test_a_missing_pretrained_model_comes_with_the_command_that_downloads_it(given, command):
    with pytest.raises(InputError, match=f"there is no such folder; to download .*: {command}"):
        load_pretrained(given)


def test_a_folder_without_a_pretrained_model_says_what_it_lacks(tmp_path):
    with pytest.raises(InputError, match=r"neither config.json .* nor model.bin .*hf download"):
        load_pretrained(tmp_path)


@pytest.mark.parametrize("config", [multi30k_en_de, sentence_polarity, wsj_parsing])
def test_a_config_that_needs_a_folder_says_so(config):
    with pytest.raises(InputError, match=r"data.folder is empty: give --config.data.folder="):
        check(config.get_config())


def test_a_folder_without_the_files_says_which_are_missing(tmp_path):
    message = r"one file named train.….en or train.….en.gz in .*; there is none: it holds nothing"
    with pytest.raises(InputError, match=message):
        FolderCorpus(tmp_path, "en", "de").examples("train")


@pytest.mark.parametrize(
    ("binary", "arguments", "message"),
    [
        ("export", ["--workdir=x"], "--output is missing: The model's folder; the export becomes"),
        ("train", ["--workdir=x"], "--config is missing: Config of the experiment: the name"),
        (
            "export",
            ["--workdir=x", "--output=y", "--shortlist=0"],
            "--shortlist is 0: give a whole number of at least 1",
        ),
        (
            "export",
            ["--workdir=x", "--output=y", "--lines=/dev/null"],
            "--lines=/dev/null is empty: give a file with a source on each line",
        ),
        ("train", ["--config=nowhere/mine.py", "--workdir=x"], "there is no file nowhere/mine.py"),
        (
            "train",
            ["--config=workdir:nowhere", "--workdir=x"],
            "error: there is no folder nowhere: give the --workdir that pipelines.train",
        ),
        ("translate", ["--saved_model=nowhere"], "give the numbered folder that pipelines.export"),
    ],
)
def test_a_missing_flag_or_file_is_explained(binary, arguments, message):
    _, stderr = run(binary, *arguments, code=1)
    last = stderr.strip().splitlines()[-1]
    assert last.startswith("error: ") and message in last


def test_a_workdir_that_is_missing_or_empty_says_which_commands_make_one(tmp_path):
    with pytest.raises(InputError, match=r"there is no folder .*nowhere: give .* pipelines.train"):
        Workdir(tmp_path / "nowhere").load_config()
    with pytest.raises(InputError, match=r"holds no config.json: give .* pipelines.import_model"):
        Workdir(tmp_path).load_config()


def test_a_missing_checkpoint_lists_those_that_there_are(tmp_path):
    workdir = Workdir(tmp_path)
    workdir.save_config(grammar_en_de.get_config())
    for name in ("step_00000010", "step_00000020"):
        (workdir.checkpoints / name).mkdir(parents=True)
    missing = workdir.checkpoints / "step_00000015"
    with pytest.raises(InputError, match=r"step_00000015: .* step_00000010, step_00000020"):
        workdir.load_predictor(missing)
    with pytest.raises(InputError, match=r"no checkpoint elsewhere/step_1: give the folder of one"):
        workdir.load_predictor("elsewhere/step_1")
