"""Shards written on a Beam runner have the bytes of those that `write_shards` writes."""

import functools

import pytest

from t2t_keras.data import Filters, MemoryCorpus, load_tokenizer, shard_writing, write_shards
from t2t_keras.data.shard_writing import BlockEncoder
from t2t_keras.errors import InputError

pytest.importorskip("apache_beam", reason="the extra 'beam' is not installed")
from t2t_keras.data import apache_beam_shards


def _examples(pairs):
    return MemoryCorpus({"train": pairs}).examples("train")


def _encoder(folder, filters):
    return BlockEncoder(load_tokenizer(folder), filters)


@pytest.fixture(scope="module")
def with_beam(tokenizer, tmp_path_factory):
    """Returns a function that does what `write_shards` does, by what can be sent to workers."""
    vocabulary = str(tmp_path_factory.mktemp("vocabulary"))
    tokenizer.save(vocabulary)

    def write(pairs, folder, filters=None, shards=None):
        return apache_beam_shards.write_shards_with_beam(
            functools.partial(_examples, pairs),
            functools.partial(_encoder, vocabulary, filters),
            str(folder),
            "train",
            shards,
        )

    return write


def _bytes(folder):
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_both_roads_end_with_the_same_bytes(
    pairs, corpus, tokenizer, with_beam, tmp_path, monkeypatch
):
    monkeypatch.setattr(shard_writing, "PAIRS_PER_BLOCK", 70)
    filters, shards = Filters(max_length=25), 3
    plain = write_shards(corpus, "train", tokenizer, tmp_path / "plain", filters, shards)
    report = with_beam(pairs, tmp_path / "beam", filters, shards)
    assert report == plain
    assert plain.kept < 600, "the filter has nothing to do here"
    assert _bytes(tmp_path / "beam" / "train") == _bytes(tmp_path / "plain" / "train")
    assert [path.name for path in (tmp_path / "beam").iterdir()] == ["train"]


def test_files_of_a_killed_call_are_not_used_and_no_pair_is_an_error(pairs, with_beam, tmp_path):
    with pytest.raises(InputError, match=r"no pair is left .*empty side"):
        with_beam([(" ", "ein Haus")], tmp_path)
    assert list(tmp_path.iterdir()) == []
    left = tmp_path / ".train.unfinished"
    left.mkdir()
    (left / "00005-of-00006.source").write_bytes(b"old")
    with_beam(pairs[:50], tmp_path)
    names = {path.name for path in (tmp_path / "train").iterdir()}
    shard = "00000-of-00001"
    assert names == {"report.json", f"{shard}.lengths", f"{shard}.source", f"{shard}.target"}
