import collections
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.decoding import beam_search
from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.language_model import TransformerLM
from t2t_keras.models.transformer import Transformer
from t2t_keras.ops import products
from t2t_keras.tasks.generation import TextGenerator
from t2t_keras.tasks.shortlist import ShortlistTranslator
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

TEXTS = ["The dog sees a man.", "A train.", "She does not know the small old dog, she sees."]


@pytest.fixture(params=[None, pytest.param(1, marks=pytest.mark.slow)], ids=["small", "large"])
def sized_translator(request, monkeypatch, translator):
    """Its decoder counts as small, or as large: then it packs its matrices."""
    if request.param is None:
        return translator
    monkeypatch.setattr(products, "_MIN_PACKED_WEIGHTS", request.param)
    return tiny.translator()


def test_a_translation_is_the_search_over_the_models_own_probabilities(sized_translator):
    """Cached steps find what a search finds that runs the whole model at every step."""
    translator = sized_translator
    texts = TEXTS[:2]
    model, tokenizer = translator.model, translator.tokenizer
    source_ids = translator.encode(tf.constant(texts))
    lengths = [len(tokenizer.encode([text])[0]) + 1 for text in texts]
    batch, beams = len(texts), translator.beam_size
    sources = tf.repeat(source_ids, beams, axis=0)

    def uncached(ids, state):
        read = tf.concat([state["read"], ids[..., tf.newaxis]], axis=2)
        targets = tf.reshape(read, [batch * beams, -1])
        logits = model({"source_ids": sources, "target_ids": targets})[:, -1]
        return tf.reshape(logits, [batch, beams, -1]), {"read": read}

    expected = beam_search(
        uncached,
        {"read": tf.zeros([batch, beams, 0], tf.int32)},
        bos_ids=tf.fill([batch], tokenizer.bos_id),
        eos_id=tokenizer.eos_id,
        beam_size=beams,
        max_lengths=[length + 8 for length in lengths],
        n_best=beams,
        n_best_patience=2,
        stopping_length_ratio=1.5,
    )
    found = translator.search(source_ids, n_best=beams)
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4)
    decoded = tokenizer.decode(expected.ids[:, 0]).numpy()
    assert translator(texts) == [text.decode() for text in decoded]


@pytest.mark.parametrize("least", [1, 2**62])
def test_layers_with_policies_of_their_own_are_searched(least, monkeypatch):
    monkeypatch.setattr(products, "_MIN_PACKED_WEIGHTS", least)
    policies = keras.dtype_policies.DTypePolicyMap(default_policy="float32")
    for name in ("decoder.*", "embedding"):
        policies[name] = keras.dtype_policies.DTypePolicy("mixed_bfloat16")
    mixed = Transformer(tiny.model().config, dtype=policies)
    mixed.set_weights(tiny.model().get_weights())
    settings = {"max_extra_tokens": 8, "max_source_length": 40}
    texts = ["A dog.", "The old man sees it."]
    for made in (
        Translator,
        lambda *own, **rest: ShortlistTranslator(Translator(*own, **rest), tiny.shortlist()),
    ):
        found = made(mixed, tiny.tokenizer(), **settings).n_best(texts, 1)
        expected = made(tiny.model(), tiny.tokenizer(), **settings).n_best(texts, 1)
        for [ours], [theirs] in zip(found, expected, strict=True):
            assert abs(ours.score - theirs.score) < 0.2 * abs(theirs.score)


def test_n_best_begins_with_the_best(translator):
    for n in (1, 3, None):
        beams = translator.n_best(TEXTS, n)
        assert [beam[0].text for beam in beams] == translator(TEXTS)
        assert {len(beam) for beam in beams} == {n or 4}


def test_unique_translations_are_the_best_of_those_with_one_text(translator, monkeypatch):
    decode = translator.tokenizer.decode
    # The first two characters: different hypotheses have equal texts.
    monkeypatch.setattr(
        translator.tokenizer, "decode", lambda ids: tf.strings.substr(decode(ids), 0, 2)
    )
    made = Translator(translator.model, translator.tokenizer, max_extra_tokens=8)
    rows, unique = made.n_best(TEXTS), made.n_best(TEXTS, unique=True)
    assert any(len({found.text for found in row}) < len(row) for row in rows)
    for row, kept in zip(rows, unique, strict=True):
        assert [found.text for found in kept] == list(dict.fromkeys(found.text for found in row))
        assert all(found in row for found in kept)
        assert kept[0] == row[0]


def test_odd_texts_translate_alone_as_among_others(translator, caplog):
    together = translator(tiny.ODD)
    assert f"1 of {len(tiny.ODD)} texts were longer than the model's limit" in caplog.text
    assert together == [translator([text])[0] for text in tiny.ODD]
    assert together[1] == together[2] == "" != together[0]
    counts = [sum(t.score > -np.inf for t in beam) for beam in translator.n_best(["", "A train."])]
    assert counts == [1, 4]
    expected = translator(["A train."])[0]
    assert translator(["\ud800", b"\xff\xfe", "A train.\r\n", ""])[2:] == [expected, ""]
    assert translator([]) == translator.n_best([]) == []
    assert pickle.loads(pickle.dumps(translator))(tiny.ODD) == together


def test_a_prefix_begins_its_own_sentence_only(translator):
    free, forced, nothing = translator(["A train.", "A train.", ""], prefix=["", "Der Hund", "Ob"])
    assert free == translator(["A train."])[0]
    assert forced.startswith("Der Hund")
    assert nothing.startswith("Ob")


def never_ending(**settings):
    """A translator whose search shows the limit: the end never wins."""
    model = tiny.model()
    bias = model.decoder.layers[-1].feed_forward_residual.norm.beta
    bias.assign(-10 * model.embedding.matrix[1])
    return Translator(model, tiny.tokenizer(), **({"max_source_length": 40} | settings))


@pytest.mark.slow
def test_outputs_end_at_the_limit_and_a_long_prefix_is_kept_whole(translator, caplog):
    """A source of 3 tokens, 8 extra tokens, and a prefix of 30 to 40."""
    for extra in (0, 5):
        limited = never_ending(beam_size=2, max_extra_tokens=extra)
        source_ids = limited.encode(tf.constant(TEXTS))
        lengths = np.count_nonzero(source_ids, axis=1)
        np.testing.assert_array_equal(limited.search(source_ids).lengths[:, 0], lengths + extra)
    prefix = " ".join(["Der Hund"] * 6) + " e"
    count = len(translator.tokenizer.encode(tf.constant([prefix]))[0])
    assert 3 + 8 < 30 <= count <= translator.max_source_length
    prefix_ids = translator.tokenizer.encode(tf.constant([prefix])).to_tensor()
    limited = never_ending(max_extra_tokens=8)
    found = limited.search(limited.encode(tf.constant(["Hi."])), prefix_ids)
    assert int(found.lengths[0, 0]) == count + 8
    short, found = translator(["Hi.", "Hi."], prefix=["", prefix])
    assert found.startswith(prefix)
    assert short == translator(["Hi."])[0]
    assert not caplog.records


def test_a_prefix_beyond_the_longest_translation_is_cut_with_a_warning(translator, caplog):
    prefix = "Der Hund " * 40
    [text] = translator(["Hi."], prefix=[prefix])
    assert text and prefix.startswith(text)
    assert "1 of 1 texts were longer than the model's limit" in caplog.text


def test_sources_are_cut_where_the_translator_or_the_models_positions_end():
    text = "The old man sees a small dog. " * 20
    cut = tiny.translator(max_source_length=9)
    assert cut.encode([text]).shape == (1, 9)
    assert cut.encode([text])[0, -1] == 1
    model = tiny.model(position_embedding="learned", max_positions=12)
    learned = Translator(model, tiny.tokenizer(), max_extra_tokens=50)
    assert learned.encode([text]).shape == (1, 12)
    assert np.max(learned.search(learned.encode([text])).lengths) <= 12


def test_a_translator_follows_its_models_weights_and_all_batches_share_one_graph(monkeypatch):
    translate, traced = Translator.translate, []
    monkeypatch.setattr(Translator, "translate", lambda *args: traced.append(0) or translate(*args))
    translator = tiny.translator()
    before = translator(TEXTS)
    translator.model.set_weights(tiny.model(seed=2).get_weights())
    assert translator(TEXTS[:1] * 5) != before[:1] * 5
    translator.model.set_weights(tiny.model().get_weights())
    assert translator(TEXTS) == before
    assert len(traced) == 1


@pytest.mark.parametrize(
    "make",
    [tuple, iter, lambda x: np.array(x, object), lambda x: np.array([t.encode() for t in x]),
     collections.deque, tf.constant, lambda x: tf.data.Dataset.from_tensor_slices(x).batch(2)],
)  # fmt: skip
def test_whatever_holds_strings_is_translated(translator, make):
    expected = translator(TEXTS)
    assert translator(make(TEXTS)) == expected
    assert translator.predict(make(TEXTS), batch_size=2) == expected


@pytest.mark.parametrize(("texts", "message"), [
    (["a", None], r"texts\[1\] is None, of type NoneType: give a string"),
    (["a", "b", float("nan")], r"texts\[2\] is nan, of type float"),
    ([["a"], "b"], r"texts\[0\] is \['a'\], of type list"),
    (np.array([1, 2]), r"texts\[0\] is .*1\)?, of type int64"),
    (None, "texts is a NoneType: give a list of strings"),
    (7, "texts is a int: give"),
    ({"a": 1}, "texts is a dict: give"),
    (np.array([["a"]]), r"texts is a ndarray of shape \(1, 1\): give"),
    (tf.constant("a"), "texts is the string b'a': give"),
    (tf.constant([["a"]]), r"texts is a ndarray of shape \(1, 1\): give"),
    (tf.data.Dataset.range(3), "texts is a dataset of .*int64.*: map it to strings"),
    (tf.data.Dataset.from_tensors("a").repeat(), "infinite dataset: limit it"),
])  # fmt: skip
def test_the_error_names_an_argument_that_is_not_a_list_of_strings(translator, texts, message):
    for method in (translator, translator.predict, translator.n_best):
        with pytest.raises(InputError, match=message):
            method(texts)


@pytest.mark.parametrize(("call", "message"), [
    (lambda t: t(["a", "b"], prefix=["c"]), "1 strings for 2 texts"),
    (lambda t: t.n_best(["a"], 5), "n is 5: give a whole number from 1 to beam_size, which"),
    (lambda t: Translator(t.tokenizer, t.model), "The tokenizer is a Transformer: give one"),
    (
        lambda t: Translator(Transformer(TransformerConfig.tiny(400)), t.tokenizer),
        "the model has 400 ids and the tokenizer 330",
    ),
    (
        lambda t: Translator(TransformerLM(TransformerConfig.tiny(330)), t.tokenizer),
        "is a TransformerLM, the model of a TextGenerator: give a Transformer",
    ),
    (lambda t: TextGenerator(t.model, t.tokenizer), "model of a Translator: give a TransformerLM"),
])  # fmt: skip
def test_mistakes_are_named(translator, call, message):
    with pytest.raises(InputError, match=message):
        call(translator)
