import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.tasks.reading import Reader
from tests.tasks import tiny


@pytest.fixture(scope="module", params=["bpe", "wordpiece"])
def reader(request):
    return Reader(tiny.tokenizer(request.param), limit=6)


def test_a_sequence_is_the_tokens_up_to_the_limit_and_the_end(reader):
    texts = ["The dog", "", "The old man sees a small dog."]
    rows = [[*ids[:5], 1] for ids in reader.tokenizer.encode(texts).to_list()]
    found = reader.read(tf.constant(texts))
    expected = np.zeros([3, 6], np.int32)
    for row, ids in zip(expected, rows, strict=True):
        row[: len(ids)] = ids
    np.testing.assert_array_equal(found.ids, expected)
    assert found.truncated.numpy().tolist() == [len(row) == 6 for row in rows]


def test_truncated_says_that_something_was_left_out(reader):
    long, spaces = "dog " * 20_000, " " * 10_000
    texts = [long, f"dog{spaces}dog", b"\xff" * 10_000, f"dog{spaces}", "  dog", "", spaces]
    found = reader.read(tf.constant(texts))
    # Beyond 64 characters for each token nothing is read, be it after spaces.
    assert found.truncated.numpy().tolist() == [True] * 3 + [False] * 4


def test_ids_lose_padding_and_what_follows_their_end(reader):
    ids = [[5, 6, 0, 0], [0, 5, 0, 6], [5, 6, 1, 7], [0, 0, 0, 0], [1, 5, 6, 7]]
    found = reader.take(tf.constant(ids))
    np.testing.assert_array_equal(
        found.ids, [[5, 6, 1], [5, 6, 1], [5, 6, 1], [1, 0, 0], [1, 0, 0]]
    )
    assert not np.any(found.truncated)
    long = reader.take(tf.constant([[5] * 5 + [1], [5] * 6]))
    np.testing.assert_array_equal(long.ids, [[5] * 5 + [1]] * 2)
    assert long.truncated.numpy().tolist() == [False, True]


def test_pieces_are_located_for_the_same_ids(reader):
    texts = tf.constant(["The  dog", "", "The old man sees a small dog."])
    found = reader.locate(texts)
    np.testing.assert_array_equal(found.ids, reader.read(texts).ids)
    assert found.ids.shape == found.starts.shape == found.ends.shape
    places = reader.tokenizer.encode_with_offsets(texts)
    for row, begins in enumerate(places.starts.to_list()):
        kept = begins[:5]
        np.testing.assert_array_equal(found.starts[row, : len(kept)], kept)
        assert not np.any(found.ends[row, len(kept) :])


def test_nothing_has_sequences_all_the_same(reader):
    assert reader.read(tf.constant([], tf.string)).ids.shape == (0, 1)
    assert reader.take(tf.zeros([0, 3], tf.int32)).ids.shape == (0, 1)
    assert reader.locate(tf.constant([], tf.string)).starts.shape == (0, 1)
