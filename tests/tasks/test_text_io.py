"""Encoding with a limit, and lines through batches of similar length."""

import threading
import time

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.tasks.text_io import Reader, map_by_length, without_repeats
from tests.tasks import tiny


@pytest.fixture(scope="module", params=["bpe", "wordpiece"])
def reader(request):
    return Reader(tiny.tokenizer(request.param), limit=6)


def test_a_sequence_is_the_tokens_up_to_the_limit_and_the_end(reader):
    texts = ["The dog", "", "The old man sees a small dog."]
    rows = [[*ids[:5], 1] for ids in reader.tokenizer.encode(texts).to_list()]
    found = reader.encode(tf.constant(texts))
    expected = np.zeros([3, 6], np.int32)
    for row, ids in zip(expected, rows, strict=True):
        row[: len(ids)] = ids
    np.testing.assert_array_equal(found.ids, expected)
    assert found.truncated.numpy().tolist() == [len(row) == 6 for row in rows]
    # Characters beyond 64 for each token are dropped, even behind spaces.
    long, spaces = "dog " * 20_000, " " * 10_000
    texts = [long, f"dog{spaces}dog", b"\xff" * 10_000, f"dog{spaces}", "  dog", "", spaces]
    found = reader.encode(tf.constant(texts))
    assert found.truncated.numpy().tolist() == [True] * 3 + [False] * 4


def test_a_blank_text_has_no_tokens_but_the_end(reader):
    texts = ["\u3000", "\u2003\u00a0", "\u200b", "\x0b", "\ufeff\n", "\x00"]
    assert reader.encode(tf.constant(texts)).ids.numpy().tolist() == [[1]] * len(texts)
    assert reader.encode_prefix(tf.constant(texts))[0].to_list() == [[]] * len(texts)
    for given in (texts, []):
        found = reader.encode_with_offsets(tf.constant(given, tf.string))
        assert found.ids.shape == found.starts.shape == (len(given), 1)
    assert reader.encode(tf.constant([], tf.string)).ids.shape == (0, 1)
    assert reader.from_ids(tf.zeros([0, 3], tf.int32)).ids.shape == (0, 1)


def test_ids_lose_padding_and_what_follows_their_end(reader):
    ids = [[5, 6, 0, 0], [0, 5, 0, 6], [5, 6, 1, 7], [0, 0, 0, 0], [1, 5, 6, 7]]
    found = reader.from_ids(tf.constant(ids))
    np.testing.assert_array_equal(
        found.ids, [[5, 6, 1], [5, 6, 1], [5, 6, 1], [1, 0, 0], [1, 0, 0]]
    )
    assert not np.any(found.truncated)
    long = reader.from_ids(tf.constant([[5] * 5 + [1], [5] * 6]))
    np.testing.assert_array_equal(long.ids, [[5] * 5 + [1]] * 2)
    assert long.truncated.numpy().tolist() == [False, True]


def test_offsets_are_those_of_the_same_ids(reader):
    texts = tf.constant(["The  dog", "", "The old man sees a small dog."])
    found = reader.encode_with_offsets(texts)
    np.testing.assert_array_equal(found.ids, reader.encode(texts).ids)
    assert found.ids.shape == found.starts.shape == found.ends.shape
    offsets = reader.tokenizer.encode_with_offsets(texts)
    for row, starts in enumerate(offsets.starts.to_list()):
        kept = starts[:5]
        np.testing.assert_array_equal(found.starts[row, : len(kept)], kept)
        assert not np.any(found.ends[row, len(kept) :])


def test_results_keep_the_order_of_lines_and_batches_have_similar_lengths():
    lines = [str(i) * (i * 7 % 11) for i in range(101)]
    batches = []

    def function(batch):
        batches.append(batch)
        return [line.upper() for line in batch]

    assert list(map_by_length(function, iter(lines), batch_size=8, window=3)) == lines
    assert sum(map(len, batches)) == 101
    for batch in batches:
        assert len(batch) <= 8
        assert sorted(batch, key=len, reverse=True) == batch
    spread = [len(batch[0]) - len(batch[-1]) for batch in batches[:3]]
    assert sum(spread) <= max(map(len, lines))


@pytest.mark.parametrize(
    ("device", "sizes"), [("cpu", [64, 64, 32]), ("gpu", [1, 8, 16, 135])], ids=["cpu", "gpu"]
)
def test_batches_fill_a_gpu_by_default(device, sizes, monkeypatch):
    monkeypatch.setattr(ops, "visible_device", lambda: device)
    lines, found = ["a" * n for n in (10, 2_000, 40_000, 4_000)], []
    lines = [line for line, n in zip(lines, (135, 16, 1, 8), strict=True) for _ in range(n)]

    def function(batch):
        found.append(len(batch))
        return batch

    assert list(map_by_length(function, lines)) == lines
    assert found == sizes


def test_parallel_batches_run_together_and_keep_the_order():
    both = threading.Barrier(2, timeout=20)  # seconds; breaks if one batch waits for another
    sizes = []

    def function(batch):
        both.wait()
        sizes.append(len(batch))
        return [line.upper() for line in batch]

    lines = ["a" * (i * 7 % 11) for i in range(46)]
    found = list(map_by_length(function, lines, batch_size=10, window=4, num_parallel_batches=2))
    assert found == [line.upper() for line in lines]
    assert sizes == [10] * 4 + [3] * 2  # the last window is divided evenly


def test_repeated_texts_and_missing_results_are_left_out():
    row = [("a", -1.0), ("b", -2.0), ("a", -3.0), ("c", -4.0), ("b", -4.5), ("", -np.inf)]
    assert without_repeats(row) == [("a", -1.0), ("b", -2.0), ("c", -4.0)]
    assert without_repeats([("", -np.inf)] * 2) == [("", -np.inf)]


def test_a_batch_that_fails_ends_the_work():
    done = []

    def function(batch):
        if batch == ["longest"]:
            raise InputError(f"there is {len(batch)} line")
        time.sleep(0.01)  # seconds
        done.append(batch)
        return batch

    with pytest.raises(InputError, match="there is 1 line"):
        lines = ["short"] * 63 + ["longest"]
        list(map_by_length(function, lines, batch_size=1, num_parallel_batches=2))
    assert len(done) < 63


@pytest.mark.parametrize("parallel", [1, 3])
def test_odd_lines_keep_their_count(parallel, translator):
    lines = [*tiny.ODD, "", "\n", "a\rb"]
    found = list(map_by_length(translator, lines, batch_size=2, num_parallel_batches=parallel))
    assert found == translator(lines)


def test_a_prefix_is_kept_up_to_the_limit_and_cut_one_token_beyond():
    reader, tokenizer = tiny.translator(max_source_length=9).targets, tiny.tokenizer()
    texts = tf.constant([("xq" * reader.limit)[:n] for n in range(2 * reader.limit)])
    ids = tokenizer.encode(texts)
    lengths = ids.row_lengths().numpy().tolist()
    rows = [lengths.index(reader.limit + more) for more in (0, 1)]
    found, truncated = reader.encode_prefix(tf.gather(texts, rows))
    assert truncated.numpy().tolist() == [False, True]
    whole, longer = (ids[row].numpy().tolist() for row in rows)
    assert found.to_list() == [whole, longer[:-1]]
