"""`--checkpoint=A,B` makes an ensemble, of one run or of several."""

import json
import shutil

import pytest

from pipelines.workdir import Workdir
from t2t_keras.data.files import read_json
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.models.ensemble import Ensemble
from t2t_keras.models.transformer import Transformer
from tests.end_to_end.binaries import pairs, refused, run

LINES = b"one two\nseven three nine\n\nfour\n"


@pytest.fixture
def other(trained, tmp_path):
    """A second run of the same vocabulary."""
    shutil.copytree(trained, tmp_path / "other")
    shutil.rmtree(tmp_path / "other" / "checkpoints" / "average_00000020")
    return tmp_path / "other"


@pytest.mark.slow
def test_the_commands_take_several_checkpoints(trained, other):
    steps = [trained / "checkpoints" / f"step_000000{step}" for step in (10, 20)]
    checkpoints = f"--checkpoint={steps[0]},{steps[1]},{other}"
    flags = [f"--workdir={trained}", checkpoints]
    mean = "log_probabilities"
    found, _ = run("translate", *flags, f"--ensemble_mean={mean}", "--scores", stdin=LINES)
    translator = Workdir(trained).load_predictor([*steps, other], mean)
    assert isinstance(translator.model, Ensemble) and len(translator.model.members) == 3
    best = translator.n_best(LINES.decode().splitlines(), 1)
    assert found.splitlines() == [f"{t.score:.4f}\t{t.text}" for [t] in best]
    message = refused("export_ctranslate2", *flags, f"--output={other}/engine")
    assert "here is no checkpoint" in message


def test_several_checkpoints_are_an_ensemble_and_one_is_not(trained, other):
    path = trained / "checkpoints" / "step_00000020"
    model = Workdir(trained).load_predictor([path, other], "log_probabilities").model
    assert type(model) is Ensemble and len(model.members) == 2
    assert model.mean == "log_probabilities"
    for given in (path, str(path), [str(path)], None, []):
        assert type(Workdir(trained).load_predictor(given).model) is Transformer
    assert Workdir(trained).load_predictor(knn_k=4, knn_temperature=5).model.temperature == 5
    with pytest.raises(InputError, match=r"--ensemble_mean is for several models"):
        Workdir(trained).load_predictor([path], ensemble_mean="probabilities")


def test_runs_that_do_not_fit_together_are_refused(trained, other):
    newest = trained / "checkpoints" / "step_00000020"
    with pytest.raises(InputError, match=r"kNN-MT is for one checkpoint: give one, or leave"):
        Workdir(trained).load_predictor([newest, other], knn_k=4)
    texts = [line for pair in pairs(200, seed=9) for line in pair]
    shutil.rmtree(other / "vocabulary")
    train_tokenizer("bpe", texts, 330).save(other / "vocabulary")
    with pytest.raises(
        InputError, match=rf"{other} and {trained} have different vocabularies: give"
    ):
        Workdir(trained).load_predictor([newest, other])
    config = read_json(other / "config.json")
    (other / "config.json").write_text(json.dumps(config | {"task": "parsing"}))
    with pytest.raises(InputError, match=r"is from a run of parsing, and .* of translation"):
        Workdir(trained).load_predictor([newest, other])


def test_the_fingerprint_of_an_ensemble_has_the_files_of_all_its_runs(trained, other):
    newest = trained / "checkpoints" / "step_00000020"
    files = Workdir(trained).predictor_files([newest, other])
    assert {newest, other / "checkpoints" / "step_00000020", other / "config.json"} <= set(files)
