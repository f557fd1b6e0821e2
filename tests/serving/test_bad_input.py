"""Requests that nobody should send, through the C++ session: an answer or an error, no more."""

import numpy as np
import pytest
import tensorflow as tf

from tests.tasks import tiny

pytestmark = pytest.mark.slow

GOOD = "The old man sees a small dog."

ODD = {
    "empty": b"", "spaces": b"    ", "long word": b"x" * 100_000,
    "long text": b"The dog. " * 11_112,
    "long spaces": b"dog" + b" " * 100_000 + b"dog",
    "long marks": ("e" + "\u0301\u0323" * 50_000).encode(),
    "invalid UTF-8": b"\xff\xfe the \xe2\x82 dog \xed\xa0\x80\xf0\x9f",
    "NUL": b"the\x00dog\x00",
    "control characters": bytes(range(32)) + b"\x7f\xc2\x85",
    "right to left": "\u202e\u05d0\u05d1\u05d2 dog \u0645\u0631\u062d\u0628\u0627\u202c".encode(),
    "emoji": "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea \U0001f600".encode(),
    "unknown script": "\U00012000\ua66e \U00010330\U00010331".encode(),
    "combining": "Z\u0351\u036b\u0343 q\u0323\u0307 \u1112\u1161\u11ab \u0344".encode(),
    "noncharacters": "\ufdd0\uffff\U0010ffff\ufeff".encode(),
}  # fmt: skip
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


@pytest.mark.parametrize(("changes", "message"), [
    ({"temperature": np.array([1, 0], np.float32)}, r"temperature holds \[0\]: give a number"),
    ({"temperature": np.array([1, np.nan], np.float32)}, r"temperature holds \[-?nan\]: give"),
    ({"top_k": np.array([5, -1], np.int32)}, r"top_k holds \[-1\]: give a whole number from 0"),
    ({"top_p": np.array([0, 1], np.float32)}, r"top_p holds \[0\]: give a number from 1e-06 to 1"),
    ({"seed": np.zeros(1, np.int32)}, "text has 2 rows and seed has 1: give one seed for each"),
    ({"seed": np.zeros([2, 2], np.int32)}, r"seed has shape \[2 2\]: give one number for each"),
])  # fmt: skip
def test_settings_of_samples_that_cannot_work_are_named(served, changes, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served("sample", **sampling(2, **changes))


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


@pytest.mark.parametrize("bad", [-1, 330])
def test_ids_out_of_range_are_named(served, bad):
    assert tiny.tokenizer().vocab_size == 330
    ids = np.array([[5, 6, 1], [7, bad, 1]], np.int32)
    message = f"source_ids holds the id {bad}: ids are 0 to 329"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served("decode_ids", source_ids=ids)
    assert len(served("decode_ids", source_ids=ids[:1])["scores"]) == 1  # and it still answers


@pytest.mark.parametrize(
    ("signature", "other"),
    [("prefix", "prefix"), ("score", "translation"), ("align", "translation")],
)
@pytest.mark.parametrize("sizes", [(2, 1), (0, 2)])
def test_batches_that_do_not_match_are_named(served, signature, other, sizes):
    message = f"text has {sizes[0]} rows and {other} has {sizes[1]}: give one {other} for each text"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        served(signature, **{"text": [b"a"] * sizes[0], other: [b"b"] * sizes[1]})


@pytest.mark.parametrize("shape", [(), (2, 1)])
def test_shapes_that_no_signature_has_are_named(served, shape):
    bad, good = np.full(shape, b"dog", object), [b"dog"]
    for signature, inputs in (
        ("serving_default", {"text": bad}),
        ("n_best", {"text": bad}),
        ("document", {"text": bad}),
        ("prefix", {"text": bad, "prefix": good}),
        ("score", {"text": bad, "translation": good}),
        ("align", {"text": bad, "translation": bad}),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=r"(text|translation) has shape"):
            served(signature, **inputs)
    with pytest.raises(tf.errors.InvalidArgumentError, match="source_ids has shape"):
        served("decode_ids", source_ids=np.ones([*shape, 1, 1, 1][:3], np.int32))


def test_a_beam_of_one_answers(served_wordpiece):
    """As tensor2tensor's exports did not (its issue 828)."""
    translator = tiny.translator(kind="wordpiece", beam_size=1)
    best = served_wordpiece("serving_default", text=[GOOD.encode()])
    beams = served_wordpiece("n_best", text=[GOOD.encode()])
    assert best["translation"][0].decode() == translator([GOOD])[0] != ""
    assert beams["translations"].tolist() == [best["translation"].tolist()]
