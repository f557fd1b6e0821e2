"""Searches whose steps XLA compiles, as a GPU does by default, find what the plain search finds."""

import dataclasses
import logging
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf
from absl import logging as absl_logging

from t2t_keras import ops
from t2t_keras.models.ensemble import Ensemble
from t2t_keras.models.search_steps import has_room
from t2t_keras.tasks import search
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.parse_constraints import ConstrainedModel
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

# Their searches end at different steps, the longest after the 32 of the first room.
TEXTS = ["The dog sees a man.", "", "A train.", "The old man sees a dog. " * 6]
TEXTS += [f"She does not know {i}." for i in range(14)]
SETTINGS = {"max_extra_tokens": 8, "max_source_length": 40}


@pytest.fixture
def on_gpu(monkeypatch):
    def turn_on(plain_calls=0):
        monkeypatch.setattr(ops, "visible_device", lambda: "gpu")
        monkeypatch.setattr(search, "PLAIN_CALLS", plain_calls)

    return turn_on


def rows(translator):
    found = translator.n_best(TEXTS)
    texts = [[hypothesis.text for hypothesis in row] for row in found]
    return texts, np.array([[hypothesis.score for hypothesis in row] for row in found])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "settings"),
    [
        ({}, {"beam_size": 4, "length_penalty": 0.6}),
        ({}, {"beam_size": 1}),
        ({"position_embedding": "relative"}, {"beam_size": 2, "length_penalty": 2.0}),
        ({"position_embedding": "learned"}, {"beam_size": 4, "exhaustive": True}),
    ],
    ids=["beam", "greedy", "relative", "exhaustive"],
)
def test_a_compiled_search_is_the_plain_one(sizes, settings, on_gpu):
    model = tiny.model(**sizes)
    translator = Translator(model, tiny.tokenizer(), **(SETTINGS | settings))
    prefixes = ["Der Hund" if i % 2 else "" for i in range(len(TEXTS))]
    (texts, scores), best = rows(translator), translator(TEXTS)
    with_prefix = translator(TEXTS, prefix=prefixes)
    on_gpu()
    compiled_texts, compiled_scores = rows(translator)
    assert compiled_texts == texts
    np.testing.assert_allclose(compiled_scores, scores, rtol=1e-4)
    assert translator(TEXTS) == best
    assert translator(TEXTS, prefix=prefixes) == with_prefix
    assert not translator.searches().without_xla


@pytest.mark.slow
def test_a_search_that_xla_cannot_do_is_done_without(on_gpu, monkeypatch, caplog):
    def put_at(x, values, begin):
        del begin
        found = tf.numpy_function(lambda x, values: x, [x, values], x.dtype)  # not in XLA
        return tf.ensure_shape(found, x.shape)

    translator = tiny.translator()
    best = translator(TEXTS[:2])
    on_gpu(plain_calls=2)
    monkeypatch.setattr(ops.indices, "put_at", put_at)
    with caplog.at_level(logging.INFO, absl_logging.get_absl_logger().name):
        assert translator(TEXTS[:2]) == best
        assert "continue without XLA" not in caplog.text  # the second call, still plain
        for _ in range(2):
            assert translator(TEXTS[:2]) == best
    assert len([text for text in caplog.messages if "continue without XLA" in text]) == 1


def test_a_search_with_records_is_not_compiled(on_gpu, monkeypatch):
    translator = tiny.translator()
    expected = [[found.text for found in row] for row in translator.n_best_tokens(TEXTS[:2])]
    on_gpu()
    monkeypatch.setattr(search, "CompiledLoop", None)
    found = [[found.text for found in row] for row in translator.n_best_tokens(TEXTS[:2])]
    assert found == expected
    assert not translator.searches().without_xla


def test_a_predictor_of_another_kind_may_have_a_request_that_searches(on_gpu):
    class Own(Classifier):
        requests: ClassVar = {
            name: dataclasses.replace(request, searches=True)
            for name, request in Classifier.requests.items()
        }

    made = tiny.classifier()
    on_gpu()
    assert Own(made.model, made.tokenizer, tiny.LABELS)(TEXTS[:2]) == made(TEXTS[:2])


@pytest.mark.parametrize(("make", "right"), [
    (tiny.model, True),
    (lambda: tiny.model(attention_window=3), False),
    (lambda: Ensemble([tiny.model()]), False),
    (lambda: ConstrainedModel(tiny.model(), None), False),
])  # fmt: skip
def test_only_a_model_whose_steps_can_have_fixed_sizes_is_compiled(make, right):
    assert has_room(make()) == right
