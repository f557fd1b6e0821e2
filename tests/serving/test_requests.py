"""A kind of request is one row: methods, signatures and their verification are made of it."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.serving import export_saved_model
from t2t_keras.serving.signatures import signature_function
from t2t_keras.serving.verification import sample_requests
from t2t_keras.settings import Range
from t2t_keras.tasks.requests import TEXT, Input, RequestKind
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

LIMIT = Input(
    "limit",
    lambda predictor, lines: np.full(len(lines), 3, np.int32),
    tf.int32,
    allowed=Range(1, 9_999, whole=True),
)


def count_tokens(translator, text, limit):
    """The number of tokens of each text, up to a limit."""
    lengths = tf.math.count_nonzero(translator.encode(text), axis=1, dtype=tf.int32)
    return {"tokens": tf.minimum(lengths, limit), "rest": tf.maximum(lengths - limit, 0)}


class Counting(Translator):
    requests = Translator.requests | {
        "count": RequestKind(count_tokens, (TEXT, LIMIT), ("tokens",))
    }


@pytest.fixture(scope="module")
def counting():
    plain = tiny.translator()
    return Counting(plain.model, plain.tokenizer, **vars(plain.settings))


def test_a_row_is_a_graph_and_a_signature(counting):
    texts, limits = tf.constant(tiny.LINES[:2]), tf.constant([2, 1000])
    lengths = [len(ids) + 1 for ids in counting.tokenizer.encode(texts).to_list()]
    found = counting.run("count", text=texts, limit=limits)
    assert found["tokens"].numpy().tolist() == [2, lengths[1]]
    assert found["rest"].numpy().tolist() == [lengths[0] - 2, 0]
    signature = signature_function(counting.requests["count"], counting)
    answer = signature(texts, limits)
    assert answer.keys() == {"tokens"}
    assert answer["tokens"].numpy().tolist() == found["tokens"].numpy().tolist()
    for inputs, message in (
        ((texts, limits[:1]), "text has 2 rows and limit has 1: give one limit for each text"),
        ((texts, limits * 0), "limit holds [0]: give a whole number from 1 to 9,999."),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            signature(*inputs)
        assert message in caught.value.message
    [request, *_] = sample_requests(counting, ["count"], tiny.LINES)
    assert request.inputs.keys() == {"text", "limit"}


def test_ids_of_any_length_are_one_graph(counting):
    for length in (3, 5):
        found = counting.run("decode_ids", source_ids=tf.fill([2, length], 70))
        assert found["scores"].shape[0] == 2


@pytest.mark.slow
def test_a_row_is_exported_and_verified(counting, tmp_path):
    export_saved_model(counting, tmp_path / "1", signatures=["count"])
    [answer] = (
        tf.saved_model.load(str(tmp_path / "1"))
        .signatures["count"](text=tf.constant(["", "The dog."]), limit=tf.constant([5, 2]))
        .values()
    )
    assert answer.numpy().tolist() == [1, 2]
