"""One model of several corpora, from files to scores: shards, batches, validation, evaluation."""

import csv
import json
import shutil

import numpy as np
import pytest

from pipelines import experiment, training
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras import ops
from t2t_keras.data.shards import open_shards
from t2t_keras.errors import InputError
from t2t_keras.tasks.loading import load
from tests.data.reading import read_pairs
from tests.end_to_end.binaries import assert_same_checkpoint, refused, run, write_corpora
from tests.end_to_end.small_config import small_config

pytestmark = pytest.mark.slow

DIRECTIONS = ["en-de", "de-en", "en-fr"]


def many_config(folder):
    config = small_config("")
    config.data.update(
        corpora=f"{folder}:en=de,{folder}/french:en-fr", sampling_temperature=2.0, test_split="test"
    )
    config.train.update(validation_sentences=2, checkpoint_every=2, log_every=4)
    return config


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return write_corpora(tmp_path_factory.mktemp("corpora"))


@pytest.fixture(scope="module")
def many(folder, tmp_path_factory):
    """The workdir of four steps."""
    path = tmp_path_factory.mktemp("run") / "work"
    with ops.made_for("gpu"):  # as within a test, where a resumed run has the same dropout
        training.train(many_config(folder), Workdir(path))
    return path


def test_each_direction_has_its_shards_whose_sources_begin_with_the_target_language(many):
    predictor = load(many)
    assert predictor.languages.codes == ["de", "en", "fr"]
    assert predictor.tokenizer.vocab_size == 300
    counts = {"en-de": 300, "de-en": 300, "en-fr": 100}
    for name in DIRECTIONS:
        code = predictor.languages.ids[name[-2:]]
        found = read_pairs(many / "tokens", f"train/{name}")
        assert len(found) == counts[name]
        assert {source[0] for source, _ in found} == {code}
        assert not {code} & {token for _, target in found for token in target}
        assert open_shards(str(many / "tokens"), f"val/{name}").report["kept"] == 20
    forward, backward = (read_pairs(many / "tokens", f"train/{n}") for n in DIRECTIONS[:2])
    assert {(s[1:], t) for s, t in forward} == {(t, s[1:]) for s, t in backward}


def test_metrics_have_each_direction_their_means_and_the_batches(many):
    rows = list(csv.DictReader((many / "metrics.csv").open()))
    validated = [row for row in rows if row["validation_loss"]]
    assert [row["step"] for row in validated] == ["2", "4"]
    for row in validated:
        for name in ("loss", "perplexity", "bleu"):
            values = [float(row[f"validation_{name}_{direction}"]) for direction in DIRECTIONS]
            assert float(row[f"validation_{name}"]) == pytest.approx(np.mean(values), rel=1e-4)
    assert len({validated[-1][f"validation_loss_{direction}"] for direction in DIRECTIONS}) == 3
    [trained] = [row for row in rows if row["tokens_per_second"]]
    shares = [float(trained[f"batches_{direction}"]) for direction in DIRECTIONS]
    assert sum(shares) == pytest.approx(1) and {4 * share % 1 for share in shares} == {0}


@pytest.mark.slow  # tests/data/test_streams.py resumes its batches
def test_a_run_that_is_cut_off_ends_where_an_unbroken_one_ends(many, folder, tmp_path):
    """And its corpora may have moved."""
    workdir = tmp_path / "work"
    shutil.copytree(many, workdir)
    for path in workdir.glob("checkpoints/*00000004"):
        shutil.rmtree(path)
    shutil.copytree(folder, tmp_path / "moved")
    training.train(many_config(tmp_path / "moved"), Workdir(workdir))
    assert_same_checkpoint(workdir, many, step=4)


def test_every_direction_is_evaluated_with_the_means(many):
    stdout, _ = run("evaluate", f"--workdir={many}", "--beam_size=1")
    *titles, last = stdout.splitlines()
    assert titles == [f"Scoring split test, direction {name}: 10 sentences" for name in DIRECTIONS]
    found = json.loads(last)
    assert (found["split"], found["sentences"]) == ("test", 30)
    assert list(found["directions"]) == DIRECTIONS
    for name in ("bleu", "chrf"):
        values = [row[name] for row in found["directions"].values()]
        assert found[name] == pytest.approx(np.mean(values))


def test_a_direction_that_was_not_trained_is_named_so(many, folder):
    flags = [f"--workdir={many}", "--beam_size=1", "--source_language=de", "--target_language=fr"]
    files = [f"--source={folder}/test.de", f"--reference={folder}/test.fr"]
    stdout, _ = run("evaluate", *flags, *files)
    assert "direction de-fr (zero-shot): 10 sentences" in stdout.splitlines()[0]
    found = json.loads(stdout.splitlines()[-1])
    assert (found["direction"], found["zero_shot"]) == ("de-fr", True)
    assert found["sentences"] == 10


@pytest.mark.parametrize(("binary", "flags", "message"), [
    ("translate", [], "target_language is missing: give one of de, en, fr"),
    ("translate", ["--target_language=xx"], "target_language is 'xx': give one of de, en, fr"),
    ("translate", ["--target_language=fr", "--n_best=99"], "n is 99: give a whole number from"),
    ("evaluate", ["--output=x"], "are for one corpus, and en-de, "),
    ("evaluate", ["--source_language=fr", "--target_language=es"],
     "for fr-es give --config.data.folder, or --source and --reference"),
    ("export", ["--output=x", "--shortlist=10"], "--shortlist is for one corpus"),
])  # fmt: skip
def test_mistakes_are_one_line(many, binary, flags, message):
    assert message in refused(binary, f"--workdir={many}", *flags)


def test_a_bilingual_vocabulary_is_refused_before_shards_are_written(folder, tmp_path):
    config = small_config(folder)
    workdir = Workdir(tmp_path / "run")
    experiment.prepare(make_task(config), workdir)
    shutil.rmtree(workdir.tokens)
    with pytest.raises(InputError, match="has no tokens of languages"):
        experiment.prepare(make_task(many_config(folder)), workdir)
    assert not workdir.tokens.exists()
