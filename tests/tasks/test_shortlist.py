"""Searches over the candidates of a shortlist."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import Transformer, Translator, ops
from t2t_keras.data.base_tokenizer import FIRST_WORD
from t2t_keras.errors import InputError
from t2t_keras.serving import export_saved_model
from t2t_keras.tasks.shortlist import Shortlist, ShortlistTranslator
from tests.data.reading import MemoryShards
from tests.tasks import tiny
from tests.tasks.tiny import classifier, shortlist


def allowed_ids(given, text, prefix=""):
    translator = tiny.translator()
    ids = translator.encode(tf.constant([text])).numpy()[0]
    prefix_ids = tiny.tokenizer().encode(tf.constant([prefix])).to_tensor().numpy()[0]
    return {*given.common.tolist(), *given.table[ids].flatten().tolist(), *prefix_ids.tolist()}


def searching(translator):
    """Returns the translator's search by ids as a graph."""
    spec = tf.TensorSpec([None, None], tf.int32)
    return tf.function(translator.translate_ids, input_signature=[spec], autograph=False)


@pytest.mark.slow
def test_with_all_words_as_candidates_answers_are_those_of_the_whole_vocabulary(translator):
    everything = shortlist(common=range(tiny.tokenizer().vocab_size))
    narrowed = ShortlistTranslator(translator, everything)
    prefixes = ["Der ", "", "", "", "", "The "]
    found, right = (t.n_best(tiny.ODD, 1, prefixes) for t in (narrowed, translator))
    for [translation], [expected] in zip(found, right, strict=True):
        assert translation.text == expected.text
        np.testing.assert_allclose(translation.score, expected.score, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["gpu", "cpu"])
def test_each_sentence_has_its_own_candidates_alone_and_in_a_batch(device):
    given = shortlist()
    texts = [*tiny.LINES, *tiny.ODD]
    with ops.made_for(device):
        search = searching(ShortlistTranslator(tiny.translator(), given))
        ids = tiny.translator().encode(tf.constant(texts))
        found = search(ids)
        free = searching(tiny.translator())(ids)
        chosen = 0
        for row, text in enumerate(texts):
            allowed = allowed_ids(given, text)
            assert set(found.ids[row].numpy().flatten().tolist()) <= allowed
            chosen += not set(free.ids[row].numpy().flatten().tolist()) <= allowed
            alone = search(ids[row : row + 1])
            np.testing.assert_allclose(alone.scores[0], found.scores[row], rtol=1e-5)
            length = alone.ids.shape[2]
            np.testing.assert_array_equal(alone.ids[0], found.ids[row, :, :length])
            assert not found.ids[row, :, length:].numpy().any()
    assert chosen > 3  # the whole vocabulary has other answers


def test_scores_are_log_probabilities_over_the_candidates_less_the_cost_of_each_token():
    given, translator = shortlist(), tiny.translator(length_penalty=0.0, beam_size=1)
    plain, costly = (
        ShortlistTranslator(translator, given._replace(token_cost=cost)) for cost in (0.0, 0.25)
    )
    ids = translator.encode(tf.constant(tiny.LINES[:1]))
    free, found = (narrowed.translate_ids(ids) for narrowed in (plain, costly))  # without a graph
    np.testing.assert_array_equal(free.ids, found.ids)  # a beam of 1 has no choice of lengths
    target = found.ids.numpy()[0, :1, : int(found.lengths[0, 0])]
    read = np.concatenate([[[tiny.tokenizer().bos_id]], target[:, :-1]], axis=1)
    logits = translator.model({"source_ids": ids, "target_ids": read}).numpy()[0].astype("float64")
    normalizers = np.log(np.exp(logits[:, sorted(allowed_ids(given, tiny.LINES[0]))]).sum(axis=1))
    log_probability = (logits[np.arange(len(logits)), target[0]] - normalizers).sum()
    np.testing.assert_allclose(free.scores[0, 0], log_probability, rtol=1e-4)
    expected = log_probability - 0.25 * target.shape[1]
    np.testing.assert_allclose(found.scores[0, 0], expected, rtol=1e-4)
    # The penalty of a search by `find` may be a number, as for any `beam_search`.
    limit, model = tf.fill([1], tf.shape(found.ids)[2]), translator.model
    again = costly.find(model, ids, limit, ids[:, :0], length_penalty=0.0)
    np.testing.assert_allclose(again.scores, found.scores, rtol=1e-6)


def test_a_shortlist_is_learned_from_shards_measured_and_kept_in_a_file(tmp_path):
    first, second = (tiny.translator(seed) for seed in (1, 2))
    encode = lambda text: first.encode(tf.constant([text])).numpy()[0].tolist()  # noqa: E731
    pairs = [(encode(a), encode(b)) for a, b in (tiny.LINES[:2], tiny.LINES[2:4])]
    learned, other = (Shortlist.learn(MemoryShards(pairs), one, 5) for one in (first, second))
    costs = []
    for (source, target), text in zip(pairs, tiny.LINES[::2], strict=True):
        read = np.array([[tiny.tokenizer().bos_id, *target[:-1]]])
        logits = first.model({"source_ids": np.array([source]), "target_ids": read})[0]
        probabilities = tf.nn.softmax(logits).numpy().astype("float64")
        costs += list(-np.log(probabilities[:, sorted(allowed_ids(learned, text))].sum(axis=1)))
    assert learned.token_cost > 0.1 and learned.token_cost != other.token_cost
    np.testing.assert_allclose(learned.token_cost, np.mean(costs), rtol=1e-4)
    assert learned.measured(MemoryShards(pairs), second).token_cost == other.token_cost
    assert learned.table.shape == (tiny.tokenizer().vocab_size, 5)
    assert set(learned.common.tolist()) >= {*range(FIRST_WORD), *pairs[0][1]}
    learned.save(tmp_path / "list.npz")
    for part, right in zip(Shortlist.load(tmp_path / "list.npz"), learned, strict=True):
        np.testing.assert_array_equal(part, right)
    (tmp_path / "list.npz").write_bytes(b"half")
    with pytest.raises(InputError, match=r"list.npz is not a shortlist"):
        Shortlist.load(tmp_path / "list.npz")


def test_a_model_in_mixed_precision_is_searched():
    model = Transformer(tiny.translator().model.config, dtype="mixed_bfloat16")
    half = Translator(model, tiny.tokenizer(), max_extra_tokens=8, max_source_length=40)
    assert len(ShortlistTranslator(half, shortlist())(["The dog."])) == 1


def test_a_prefix_may_have_any_words():
    given = shortlist()
    narrowed = ShortlistTranslator(tiny.translator(), given)
    prefix = "Der alte Mann sieht einen"
    prefix_ids = set(tiny.tokenizer().encode(tf.constant([prefix])).to_tensor().numpy()[0].tolist())
    assert not prefix_ids <= allowed_ids(given, "The dog.")
    [found] = narrowed(["The dog."], [prefix])
    assert found.startswith(prefix)


class OwnTranslator(Translator):
    """A user's own."""


@pytest.mark.parametrize(("make", "vocabulary", "message"), [
    (lambda: OwnTranslator(tiny.model(), tiny.tokenizer()), None, "drop what OwnTr"),
    (classifier, None, "for a Translator of a Transformer, not for a Classifier"),
    (tiny.translator, "other", "is not the one that the shortlist was learned with: learn"),
    (lambda: tiny.translator(beam_size=131), None, "beam_size is 131: with this shortlist"),
])  # fmt: skip
def test_shortlists_that_do_not_fit_are_refused(make, vocabulary, message, tmp_path):
    given = shortlist()
    given = given._replace(vocabulary=vocabulary or given.vocabulary)
    with pytest.raises(InputError, match=message):
        export_saved_model(make(), tmp_path / "1", shortlist=given)
    with pytest.raises(InputError, match=r"cannot be saved to .*saved: save the translator"):
        ShortlistTranslator(tiny.translator(), shortlist()).save(tmp_path / "saved")
    assert not list(tmp_path.iterdir())
