"""Runs with placeholders: their vocabulary and shards; runs without them have those of before."""

import numpy as np
import pytest

from pipelines import experiment
from pipelines.fields import restored_config
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.data import Filters, FolderCorpus, train_tokenizer, write_shards
from tests.data.reading import read_pairs
from tests.end_to_end.binaries import write_folder
from tests.end_to_end.small_config import small_config


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    return small_config(write_folder(tmp_path_factory.mktemp("corpus")))


def files(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_run_without_placeholders_has_the_bytes_that_the_library_writes(config, tmp_path):
    old = config.to_dict()
    for field in ("placeholders", "placeholder_fraction"):
        del old["data"][field]  # as an earlier version saved it
    workdir = Workdir(tmp_path / "run")
    experiment.prepare(make_task(restored_config(old)), workdir)
    corpus = FolderCorpus(config.data.folder, "en", "de")
    lines = [
        pair[side]
        for pair in corpus.examples("train").as_numpy_iterator()
        for side in ("source", "target")
    ]
    tokenizer = train_tokenizer("bpe", lines, 300)
    tokenizer.save(tmp_path / "vocabulary")
    assert files(workdir.vocabulary) == files(tmp_path / "vocabulary")
    for split in ("train", "val"):
        write_shards(corpus, split, tokenizer, str(tmp_path / "tokens"), Filters(40, 4.0))
    assert files(workdir.tokens) == files(tmp_path / "tokens")


def test_a_run_with_placeholders_has_them_in_its_vocabulary_and_training_shards(config, tmp_path):
    config = config.copy_and_resolve_references()
    config.data.update(placeholders=4, placeholder_fraction=0.5)
    workdir = Workdir(tmp_path / "run")
    experiment.prepare(make_task(config), workdir)
    tokenizer = make_task(config).load_tokenizer(workdir.vocabulary)
    assert tokenizer.placeholder_ids == range(296, 300)
    for split, least, most in (("train", 0.3, 0.6), ("val", 0, 0)):
        pairs = [
            [sorted(i for i in ids if i >= 296) for ids in pair]
            for pair in read_pairs(workdir.tokens, split)
        ]
        assert all(source == target for source, target in pairs)
        assert all(len(set(source)) == len(source) for source, _ in pairs)
        assert least <= np.mean([bool(source) for source, _ in pairs]) <= most


def test_a_vocabulary_without_placeholders_is_refused_where_they_are_asked_for(config, tmp_path):
    workdir = Workdir(tmp_path)
    make_task(config).train_tokenizer(make_task(config).make_corpus()).save(workdir.vocabulary)
    config = config.copy_and_resolve_references()
    config.data.placeholders = 4
    message = r"data.placeholders is 4, and the vocabulary of the run has none: give 0, or a new"
    with pytest.raises(ValueError, match=message):
        experiment.prepare(make_task(config), workdir)
    assert not workdir.tokens.exists()
