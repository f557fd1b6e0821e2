"""Rules of a translator's settings, in each of its ways to find translations."""

import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.decoding.token_rules import rules_of
from t2t_keras.errors import InputError
from tests.tasks import tiny

TEXTS = ["The dog sees a man.", "", "She does not know the small old dog."]


RULES = {"no_repeat_ngram_size": 1, "min_target_length": 12, "repetition_penalty": 1.5}


def ids_of(translator, texts):
    """Returns the ids of the best translations of texts, each without its end, and with it."""
    source_ids = translator.encode(tf.constant(texts))
    prefix_ids, _ = translator._prefix_ids(source_ids)
    found = translator.search(source_ids, prefix_ids)
    rows = [
        ids[:n].tolist()
        for ids, n in zip(found.ids[:, 0].numpy(), found.lengths[:, 0], strict=True)
    ]
    return [[i for i in row if i != translator.tokenizer.eos_id] for row in rows], rows


@pytest.mark.slow
def test_the_ids_of_a_search_follow_the_settings():
    plain = tiny.translator(beam_size=1)
    assert any(len(set(row)) < len(row) for row in ids_of(plain, TEXTS)[0])
    translator = tiny.translator(beam_size=1, no_repeat_ngram_size=1, min_target_length=12)
    found, with_end = ids_of(translator, TEXTS)
    for text, row in zip(TEXTS, found, strict=True):
        assert len(row) >= 12 * bool(text) and len(set(row)) == len(row)
    assert with_end[1] == [translator.tokenizer.eos_id]  # the forced end of an empty text


@pytest.mark.slow
def test_every_way_to_translate_follows_the_settings():
    plain, translator = tiny.translator(), tiny.translator(**RULES)
    best = translator(TEXTS)
    assert best != plain(TEXTS)
    assert best == [row[0].text for row in translator.n_best(TEXTS, 1)]
    assert best == [row[0].text for row in translator.n_best_tokens(TEXTS, 1)]
    given = "Der Hund Der Hund"  # a prefix may repeat itself
    assert translator(TEXTS[:1], prefix=[given])[0].startswith(given)
    assert translator.sample(TEXTS) != plain.sample(TEXTS)


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


@pytest.mark.slow
def test_an_export_follows_the_rules(tmp_path):
    translator = tiny.translator(**RULES)
    t2t.export_saved_model(translator, tmp_path / "1", signatures=["serving_default", "n_best"])
    found = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"](
        text=tf.constant(TEXTS)
    )
    assert [text.decode() for text in found["translation"].numpy()] == translator(TEXTS)
    assert translator(TEXTS) != tiny.translator()(TEXTS)
