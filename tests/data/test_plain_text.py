"""Texts without a target: corpora, shards, rows of lines, of packed texts and of a stream."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.base_tokenizer import BOS_ID, EOS_ID
from t2t_keras.data.plain_text import (
    NoTarget,
    TextBuckets,
    TextFilters,
    TextFolder,
    TextPacking,
    TextStream,
    encode_texts,
)
from t2t_keras.data.shard_writing import write_shards
from t2t_keras.data.shards import open_shards
from t2t_keras.data.streams import evaluation_batches, padding_fraction
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.errors import InputError
from tests.data.reading import packed_sequences

LENGTHS = [5, 2, 9, 1, 7, 3, 3, 4]


def _examples(lengths=LENGTHS):
    """Texts of given lengths, whose ids are unlike, and end with the end id."""
    rows = [
        [*range(100 * n + 10, 100 * n + 9 + length), EOS_ID] for n, length in enumerate(lengths)
    ]
    sources = tf.ragged.constant(rows, dtype=tf.int32)
    targets = tf.zeros([len(rows), 0], tf.int32)
    return rows, tf.data.Dataset.from_tensor_slices({"source": sources, "target": targets})


def _texts_of(batches):
    """Returns the rows of labels without padding, and checks inputs and weights beside them."""
    found = []
    for inputs, labels, weights in batches:
        np.testing.assert_array_equal(weights, labels != 0)
        for ids, row in zip(inputs["target_ids"].numpy(), labels.numpy(), strict=True):
            found.append((ids[ids != 0].tolist(), row[row != 0].tolist()))
            assert len(found[-1][0]) == len(found[-1][1])
    return found


def test_a_bucketed_row_is_a_text_after_the_begin_id():
    rows, examples = _examples()
    found = _texts_of(TextBuckets(12)(examples, seed=1))
    assert sorted(labels for _, labels in found) == sorted(rows)
    assert all(ids == [BOS_ID, *labels[:-1]] for ids, labels in found)


def test_packed_rows_hold_whole_texts_with_segments_and_positions():
    rows, examples = _examples()
    found, begun = [], []
    for inputs, labels, _ in TextPacking(20, 10)(examples):
        assert labels.shape == (2, 10)
        places = inputs["target_segments"], inputs["target_positions"]
        found += packed_sequences(labels, *places)
        begun += packed_sequences(inputs["target_ids"], *places)
    assert sorted(found) == sorted(map(tuple, rows))
    assert begun == [(BOS_ID, *text[:-1]) for text in found]


@pytest.mark.parametrize("across", [True, False])
def test_a_stream_is_cut_into_rows_and_loses_no_token(across):
    rows, examples = _examples()
    stream = np.concatenate(rows)
    inputs_of_stream = np.concatenate([[BOS_ID, *row[:-1]] for row in rows])
    batches = list(TextStream(12, 6, across_texts=across)(examples))
    labels = np.concatenate([labels for _, labels, _ in batches])
    ids = np.concatenate([inputs["target_ids"] for inputs, _, _ in batches])
    weights = np.concatenate([weights for _, _, weights in batches])
    assert labels.shape == (6, 6)  # 34 tokens in rows of 6
    np.testing.assert_array_equal(labels.ravel()[: len(stream)], stream)
    np.testing.assert_array_equal(ids.ravel()[: len(stream)], inputs_of_stream)
    np.testing.assert_array_equal(weights.ravel(), np.arange(36) < len(stream))
    if across:
        assert set(batches[0][0]) == {"target_ids"}
        return
    text = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
    for row, (segments, positions) in enumerate(
        zip(
            np.concatenate([inputs["target_segments"] for inputs, _, _ in batches]),
            np.concatenate([inputs["target_positions"] for inputs, _, _ in batches]),
            strict=True,
        )
    ):
        own = text[6 * row : 6 * row + 6]
        expected = [(n - own[0] + 1, list(own[:i]).count(n)) for i, n in enumerate(own)]
        expected += [(0, 0)] * (6 - len(own))
        assert list(zip(segments, positions, strict=True)) == expected


@pytest.mark.parametrize("stride", [1, 3, 8])
@pytest.mark.parametrize("count", [1, 7, 8, 9, 23])
def test_overlapping_rows_count_each_token_once_with_enough_context(count, stride):
    rows, examples = _examples([count])
    counted = []
    for _, [labels], [weights] in TextStream(8, 8, stride=stride)(examples).as_numpy_iterator():
        new = np.flatnonzero(weights)
        assert new.size and (not counted or new[0] == 8 - stride)
        begin = len(counted) - new[0]  # of the row in the stream
        np.testing.assert_array_equal(labels[: new[-1] + 1], rows[0][begin : begin + new[-1] + 1])
        counted.extend(labels[new])
    assert counted == rows[0]


def test_a_shuffled_stream_has_the_same_rows_each_epoch_in_another_order():
    _, examples = _examples([3, 4] * 40)
    plain = {labels for _, labels in map(_as_tuples, _texts_of(TextStream(14, 7)(examples)))}
    shuffled = TextStream(14, 7)(examples, seed=3)
    first, second = ([_as_tuples(row)[1] for row in _texts_of(shuffled)] for _ in range(2))
    assert set(first) == set(second) == plain
    assert first != second


def _as_tuples(row):
    return tuple(map(tuple, row))


def test_texts_of_a_folder_become_shards(tmp_path):
    lines = ["a house", "", "the small dog", "a dog sees a house", "\u00a0", "dogs"]
    (tmp_path / "train.de").write_text("\n".join(lines) + "\n")
    (tmp_path / "train.en.gz").write_bytes(gzip.compress(b"other text\n"))
    corpus = TextFolder(tmp_path, "de")
    kept = [line for line in lines if line.strip()]
    tokenizer = train_tokenizer("wordpiece", kept, 290)
    report = write_shards(
        corpus, "train", tokenizer, tmp_path / "tokens", TextFilters(), None, None, NoTarget()
    )
    assert report.kept == 4 and report.dropped["empty side"] == 2
    pairs = open_shards(tmp_path / "tokens", "train").read(0)
    texts = [text.decode() for text in tokenizer.decode(pairs.source.to_tensor()).numpy()]
    assert texts == kept and pairs.target_values.shape == 0
    found = padding_fraction(evaluation_batches(tmp_path / "tokens", "train", TextBuckets(100)))
    assert found.source is None and 0 < found.target < 1


def test_a_limit_of_length_drops_texts(tmp_path):
    (tmp_path / "train.txt").write_text("a b\na b c d\n")
    tokenizer = train_tokenizer("wordpiece", ["a b c d"], 273)
    arguments = "train", tokenizer, tmp_path / "tokens", TextFilters(max_length=4)
    report = write_shards(TextFolder(tmp_path), *arguments, target_tokenizer=NoTarget())
    assert report.kept == 1 and report.dropped["over-length"] == 1


def test_no_text_and_no_tokenizer_are_refused():
    with pytest.raises(InputError, match="there are no texts"):
        encode_texts([], None)
    with pytest.raises(InputError, match="The tokenizer is a NoneType: give one of t2t_keras"):
        encode_texts(["a"], None)
