"""Requests that nobody should send, through the C++ session: an answer or an error, no more."""

import re

import numpy as np
import pytest
import tensorflow as tf

from tests.serving.session import GOOD, ODD
from tests.tasks import tiny

pytestmark = pytest.mark.slow

CUT = {"long word", "long text", "long spaces", "long marks"}


@pytest.fixture(params=["served", "served_wordpiece"])
def session(request):
    return request.getfixturevalue(request.param)


def test_odd_texts_have_their_answers_and_leave_their_neighbors_alone(session):
    texts = [text for odd in ODD.values() for text in (odd, GOOD.encode())]
    together = session("serving_default", text=texts)
    alone = session("serving_default", text=[GOOD.encode()])
    assert set(together["translation"][1::2]) == {alone["translation"][0]}
    np.testing.assert_allclose(together["score"][1::2], alone["score"][0], rtol=1e-5)
    for name, text, translation, cut, score in zip(
        ODD, ODD.values(), together["translation"][::2], together["truncated"][::2],
        together["score"][::2], strict=True,
    ):  # fmt: skip
        translation.decode()  # valid UTF-8, whatever came in
        assert np.isfinite(score)
        assert cut == (name in CUT), name
        if name not in CUT:
            again = session("serving_default", text=[text])
            assert again["translation"][0] == translation
            np.testing.assert_allclose(again["score"][0], score, rtol=1e-5)
    assert together["translation"][0] == together["translation"][2] == b""
    beams = session("n_best", text=texts)
    assert beams["translations"][:, 0].tolist() == together["translation"].tolist()


def test_spans_of_odd_texts_slice_them_as_python_does(session):
    names = [name for name in ODD if name not in CUT]
    found = session("align", text=[ODD[name] for name in names], translation=[b"Hund"] * len(names))
    for row, name in enumerate(names):
        text = ODD[name].decode("utf-8", "replace")
        spoken = found["target_pieces"][row] != b""
        begins, ends = found["spans"][row][spoken][:-1].T  # without the end piece
        if name not in ("empty", "spaces", "control characters"):
            assert np.all(begins < ends), name
            assert np.all(ends <= len(text)), name
        else:
            assert not ends.any()


def sampling(count, **changes):
    return {
        "text": [GOOD.encode()] * count,
        "seed": np.arange(count, dtype=np.int32),
        "temperature": np.ones(count, np.float32),
        "top_k": np.zeros(count, np.int32),
        "top_p": np.ones(count, np.float32),
    } | changes


@pytest.mark.parametrize("size", [0, 1])
def test_batches_of_any_size(served, size):
    lengths = np.random.default_rng(0).integers(0, 30, size)
    texts = [b"dog " * length for length in lengths]
    for name, inputs in {
        "serving_default": {"text": texts},
        "n_best": {"text": texts},
        "prefix": {"text": texts, "prefix": texts[::-1]},
        "score": {"text": texts, "translation": texts[::-1]},
        "align": {"text": texts, "translation": texts[::-1]},
        "decode_ids": {"source_ids": np.full([size, 7], 5, np.int32)},
        "document": {"text": texts},
        "n_best_tokens": {"text": texts},
        "sample": sampling(size, text=texts),
    }.items():
        found = served(name, **inputs)
        assert {len(x) for x in found.values()} == {size}


def text(*shape):
    return np.full(shape, b"dog", object)


def sample(**changes):
    return "sample", sampling(2, **changes)


IDS = np.array([[5, 6, 1], [7, 8, 1]], np.int32)
REFUSED = [
    (*sample(temperature=np.array([1, 0], np.float32)), "temperature holds [0]: give a number"),
    (*sample(temperature=np.array([1, np.nan], np.float32)), "nan]: give a number"),
    (*sample(top_k=np.array([5, -1], np.int32)), "top_k holds [-1]: give a whole number from 0"),
    (*sample(top_p=np.array([0, 1], np.float32)), "top_p holds [0]: give a number from 1e-06 to 1"),
    (*sample(seed=np.zeros(1, np.int32)), "text has 2 rows and seed has 1: give one seed for each"),
    (*sample(seed=np.zeros([2, 2], np.int32)), "seed has shape [2 2]: give one number for each"),
    ("decode_ids", {"source_ids": IDS - 6}, "source_ids holds the id -5: ids are 0 to 329"),
    ("decode_ids", {"source_ids": IDS + 322}, "source_ids holds the id 330: ids are 0 to 329"),
    ("decode_ids", {"source_ids": IDS[0]}, "source_ids has shape [3]: give shape [batch, length]"),
    ("decode_ids", {"source_ids": IDS[None]}, "source_ids has shape [1 2 3]"),
    ("prefix", {"text": text(2), "prefix": text(1)},
     "text has 2 rows and prefix has 1: give one prefix for each text."),
    ("score", {"text": text(0), "translation": text(2)},
     "text has 0 rows and translation has 2: give one translation for each text."),
    ("align", {"text": text(2), "translation": text(1)},
     "text has 2 rows and translation has 1: give one translation for each text."),
    ("align", {"text": text(2), "translation": text(2, 1)}, "translation has shape [2 1]: give"),
    ("serving_default", {"text": text()}, "text has shape []: give one string for each row"),
    ("n_best", {"text": text(2, 1)}, "text has shape [2 1]"),
    ("document", {"text": text()}, "text has shape []"),
    ("prefix", {"text": text(2, 1), "prefix": text(1)}, "text has shape [2 1]"),
    ("score", {"text": text(), "translation": text(1)}, "text has shape []"),
]  # fmt: skip


@pytest.mark.parametrize(("signature", "inputs", "message"), REFUSED)
def test_requests_that_cannot_be_answered_are_named(served, signature, inputs, message):
    assert tiny.tokenizer().vocab_size == 330
    with pytest.raises(tf.errors.InvalidArgumentError, match=re.escape(message)):
        served(signature, **inputs)
    assert len(served("decode_ids", source_ids=IDS)["scores"]) == 2  # and it still answers


def test_a_beam_of_one_answers(served_wordpiece):
    """As tensor2tensor's exports did not (its issue 828)."""
    translator = tiny.translator(kind="wordpiece", beam_size=1)
    best = served_wordpiece("serving_default", text=[GOOD.encode()])
    beams = served_wordpiece("n_best", text=[GOOD.encode()])
    assert best["translation"][0].decode() == translator([GOOD])[0] != ""
    assert beams["translations"].tolist() == [best["translation"].tolist()]
