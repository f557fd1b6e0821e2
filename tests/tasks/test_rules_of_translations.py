"""Rules of a translator's settings, in each of its ways to find translations."""

import pytest
import tensorflow as tf

from t2t_keras.decoding.token_rules import rules_of
from t2t_keras.errors import InputError
from tests.serving.session import loaded_export
from tests.tasks import tiny

TEXTS = ["The dog sees a man.", "", "She does not know the small old dog."]
RULES = {"no_repeat_ngram_size": 1, "min_target_length": 12, "repetition_penalty": 1.5}


@pytest.mark.slow
def test_every_way_to_translate_follows_the_settings():
    plain, translator = tiny.translator(), tiny.translator(**RULES)
    best = translator(TEXTS)
    assert best != plain(TEXTS) and best[1] == ""  # the forced end of an empty text
    assert best == [row[0].text for row in translator.n_best(TEXTS, 1)]
    tokens = translator.n_best_tokens(TEXTS, 1)
    assert best == [row[0].text for row in tokens]
    assert all(len(found.tokens) > 12 for [found] in tokens[::2])
    given = "Der Hund Der Hund"  # a prefix may repeat itself
    assert translator(TEXTS[:1], prefix=[given])[0].startswith(given)
    assert translator.sample(TEXTS) != plain.sample(TEXTS)


@pytest.mark.slow
def test_a_search_repeats_no_token_if_it_must_not():
    repeats = []
    for size in (0, 1):
        translator = tiny.translator(beam_size=1, no_repeat_ngram_size=size)
        ids = translator.search(translator.encode(tf.constant(TEXTS[::2]))).ids[:, 0].numpy()
        repeats.append(any(len(set(row)) < len(row) for row in (row[row > 0] for row in ids)))
    assert repeats == [True, False]


@pytest.mark.slow
def test_an_export_follows_the_rules(tmp_path):
    translator = tiny.translator(**RULES)
    loaded = loaded_export(translator, tmp_path / "1", "serving_default")
    found = loaded.signatures["serving_default"](text=tf.constant(TEXTS))["translation"]
    assert [text.decode() for text in found.numpy()] == translator(TEXTS)


def test_without_rules_the_model_is_searched_as_it_is():
    off = {"no_repeat_ngram_size": 0, "min_target_length": 0, "repetition_penalty": 1}
    for settings in ({}, off):
        assert not rules_of(tiny.translator(**settings).settings, eos_id=1)
    for name, value in RULES.items():
        assert len(rules_of(tiny.translator(**{name: value}).settings, eos_id=1)) == 1


def test_a_minimum_that_no_translation_can_have_is_refused():
    with pytest.raises(
        InputError, match="min_target_length is 48, and a translation has at most 48"
    ):
        tiny.translator(min_target_length=48)
    tiny.translator(min_target_length=47)
