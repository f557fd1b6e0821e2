"""What is replaced after the first call takes effect at the next one, or is refused."""

import copy
import logging
import threading

import pytest
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.graphs import model_function
from t2t_keras.tasks import search
from t2t_keras.tasks.shortlist import ShortlistTranslator
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny
from tests.tasks.tiny import classifier, shortlist

TEXTS = tiny.LINES[:2]


def best(predictor):
    return predictor.n_best(TEXTS, 1)


@pytest.mark.parametrize(("make", "name", "value", "ask"), [
    (tiny.translator, "max_source_length", 4, best),
    (classifier, "labels", ("x", "y", "z"), best),
    (classifier, "max_source_length", 3, best),
    pytest.param(tiny.translator, "model", tiny.model, best, marks=pytest.mark.slow),
    (classifier, "model", tiny.classifier_model, best),
])  # fmt: skip
def test_what_is_replaced_is_that_of_a_new_predictor(make, name, value, ask):
    replaced = make()
    before = ask(replaced)
    value = value(7) if name == "model" else value
    setattr(replaced, name, value)
    if name == "model":
        fresh = type(replaced)(value, replaced.tokenizer, **vars(replaced.settings))
    else:
        fresh = make(**{name: value})
        assert getattr(replaced, name) == getattr(replaced.settings, name) == value
    assert ask(replaced) == ask(fresh) != before


@pytest.mark.parametrize(("make", "name", "value", "reason"), [
    (tiny.translator, "beam_size", 0, "beam_size is 0: give a whole number"),
    (classifier, "labels", ["a"], "labels are .*: give 3 different ones"),
    (classifier, "labels", "abc", "labels is the string 'abc': give a list of strings"),
    (tiny.translator, "tokenizer", None, "The tokenizer is a NoneType"),
    (tiny.translator, "model", None, "The model is a NoneType, without 'encode': give a Tr"),
    (classifier, "model", tiny.model(), "a Transformer, without 'classes': give a Transform"),
    (
        lambda: ShortlistTranslator(tiny.translator(), shortlist()),
        "beam_size",
        131,
        "with this shortlist give at most 130",
    ),
])  # fmt: skip
def test_a_replacement_that_is_refused_changes_nothing(make, name, value, reason):
    predictor = make()
    before = getattr(predictor, name)
    with pytest.raises(InputError, match=reason):
        setattr(predictor, name, value)
    assert getattr(predictor, name) is before


@pytest.mark.parametrize(("make", "name", "nearest"), [
    (tiny.translator, "beamsize", "beam_size"),
    (tiny.translator, "lenght_penalty", "length_penalty"),
    (tiny.translator, "max_sourcelength", "max_source_length"),
    (classifier, "label", "labels"),
])  # fmt: skip
def test_a_misspelled_setting_is_refused(make, name, nearest):
    predictor = make()
    with pytest.raises(InputError, match=rf"has no setting '{name}': give {nearest}\."):
        setattr(predictor, name, 3)
    assert name not in vars(predictor)


def test_attributes_of_a_users_own_subclass_are_no_misspelled_settings():
    class Own(Translator):
        beam_sizes = ()  # near a setting, and defined here

        @property
        def beams_size(self):
            return self._beams_size  # set by its setter

        @beams_size.setter
        def beams_size(self, value):
            self._beams_size = value

        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.my_cache = {}
            self._beamsize = self.beam_sizes = (1, 2)
            self.beams_size = 3

    made = tiny.translator(beam_size=2)
    own = Own(made.model, made.tokenizer, beam_size=2)
    own.note = "any other name"
    again = copy.copy(own)
    again.my_cache, again.beam_sizes = {"a": 1}, (3,)
    assert (own.my_cache, own.beam_sizes, own._beamsize) == ({}, (1, 2), (1, 2))
    assert (own.beam_size, own.beams_size, again.note) == (2, 3, own.note)


def test_one_search_serves_any_number_of_rows(monkeypatch):
    translator, made, beam_search = tiny.translator(beam_size=2), [], search.beam_search
    submodules = translator.submodules

    def counting(*inputs, **options):
        made.append(ops.options().products)
        return beam_search(*inputs, **options)

    monkeypatch.setattr(search, "beam_search", counting)
    with ops.made_for("cpu"):
        found = translator(TEXTS[:1])
        assert translator(TEXTS[:1] * 100) == found * 100
        assert translator(TEXTS[:1]) == found
    assert len(made) == 1
    assert translator.submodules == submodules  # TensorFlow sorts the keys of `graphs`


class Counting:
    """A predictor as `model_function` takes one, which counts its traces."""

    model = tf.Module()

    def __init__(self):
        self.graphs, self.traces = {}, 0

    @model_function([tf.TensorSpec([None])])
    def double(self, x):
        self.traces += 1
        return 2 * x


def test_threads_that_call_first_at_the_same_time_share_one_trace():
    counting, barrier, found = Counting(), threading.Barrier(8), []

    def call():
        barrier.wait()
        found.append(counting.double(tf.constant([3.0])).numpy().item())

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (counting.traces, found) == (1, [6.0] * 8)


def test_new_predictors_print_no_warning_of_retracing(caplog):
    with caplog.at_level(logging.WARNING):
        for number in range(8):
            assert Counting().double(tf.constant([float(number)])).numpy() == [2 * number]
    assert not caplog.records


def test_a_call_in_a_graph_names_the_method_for_graphs():
    translator = tiny.translator()
    for ask in (
        lambda: tf.function(translator)(tf.constant(TEXTS)),
        lambda: tf.function(translator.n_best)(tf.constant(TEXTS)),
        lambda: tf.data.Dataset.from_tensor_slices(TEXTS).map(translator),
        lambda: tf.data.Dataset.from_tensor_slices(TEXTS).batch(2).map(translator.documents),
        lambda: tf.function(classifier())(tf.constant(TEXTS)),
    ):
        with pytest.raises(InputError, match=r"a tensor of a graph.*translator\.translate"):
            ask()
