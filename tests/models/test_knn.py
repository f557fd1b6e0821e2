"""kNN-MT: the interpolation against NumPy, and searches with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import Transformer, TransformerConfig
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.errors import InputError
from t2t_keras.models import enable_lora
from t2t_keras.models.knn import Datastore, KNNTransformer, TfIdfRetriever, build_datastore
from tests.reference import softmax

START, END = 3, 1
SOURCE = np.array([[5, 6, 7, 1, 0], [8, 9, 10, 11, 1]], np.int32)
LABELS = np.array([[12, 13, 1, 0], [14, 15, 16, 1]], np.int32)
READ = np.array([[START, 12, 13, 0], [START, 14, 15, 16]], np.int32)
INPUTS = {"source_ids": tf.constant(SOURCE), "target_ids": tf.constant(READ)}
BATCHES = [(INPUTS, tf.constant(LABELS), tf.constant(LABELS != 0))]


@pytest.fixture(scope="module")
def model():
    return Transformer(TransformerConfig.tiny(vocab_size=20))


def with_knn(model, batches=BATCHES, **settings):
    return KNNTransformer(model, build_datastore(model, batches), **settings)


def interpolated(model, hidden, keys, tokens, k, temperature, interpolation):
    """The paper's formula, a row at a time, in float64."""
    matrix = model.embedding.matrix.numpy().astype("float64")
    result = (1 - interpolation) * softmax(hidden @ matrix.T)
    for row, query in zip(result, hidden, strict=True):
        distances = ((query - keys) ** 2).sum(axis=1)
        near = np.argsort(distances)[:k]
        for index, weight in zip(near, softmax(-distances[near] / temperature), strict=True):
            row[tokens[index]] += interpolation * weight
    return result


@pytest.mark.parametrize("tokens", [300, 1_600])  # the nearest of 1,600 are found by blocks
def test_probabilities_are_the_interpolation_of_khandelwal_et_al(model, tokens):
    rng = np.random.default_rng(0)
    hidden = model(INPUTS, return_hidden=True).numpy().astype("float64")  # [2, 4, 128]
    keys = hidden.reshape(8, 128)[rng.integers(0, 8, tokens)]
    keys = keys + rng.normal(0, 0.1, keys.shape)
    found = rng.integers(0, 20, tokens)
    datastore = Datastore(
        list(rng.integers(4, 20, (tokens // 10, 6))), [10] * (tokens // 10), keys, found
    )
    mixed = KNNTransformer(model, datastore, k=3, temperature=2.0, interpolation=0.4)
    probabilities = np.exp(mixed(INPUTS).numpy())
    expected = [interpolated(model, row, keys, found, 3, 2.0, 0.4) for row in hidden]
    np.testing.assert_allclose(probabilities, expected, atol=2e-5)
    np.testing.assert_allclose(probabilities.sum(axis=-1), 1, atol=1e-5)


@pytest.mark.parametrize(("subset_size", "taken"), [(3, 3), (4, 4), (6, 6)])
def test_queries_are_compared_with_tokens_of_the_most_similar_pairs(model, subset_size, taken):
    mixed = with_knn(model, k=5, temperature=9.0, interpolation=0.4, subset_size=subset_size)
    hidden, real = model(INPUTS, return_hidden=True).numpy().astype("float64"), LABELS != 0
    for row, order in enumerate(([0, 1], [1, 0])):
        keys, tokens = (
            np.concatenate([part[i][real[i]] for i in order])[:taken] for part in (hidden, LABELS)
        )
        expected = interpolated(model, hidden[row], keys, tokens, min(5, subset_size), 9.0, 0.4)
        np.testing.assert_allclose(np.exp(mixed(INPUTS)[row]), expected, atol=2e-5)


def test_lora_is_merged_into_the_model():
    keras.utils.set_random_seed(0)
    tuned = Transformer(TransformerConfig.tiny(vocab_size=20))
    enable_lora(tuned, 2)
    for weight in tuned.trainable_weights:
        weight.assign(0.1 * tf.random.stateless_normal(weight.shape, [1, 2]))
    mixed = with_knn(tuned, k=2, interpolation=0.0)
    assert not any("lora" in weight.path for weight in mixed.weights)
    expected = tf.nn.log_softmax(tuned(INPUTS))
    np.testing.assert_allclose(mixed(INPUTS), expected, rtol=1e-4, atol=1e-4)


def test_a_datastore_has_each_token_except_padding(model):
    mixed = with_knn(model, k=2)
    hidden = model(INPUTS, return_hidden=True).numpy()
    np.testing.assert_array_equal(mixed.values, [12, 13, 1, 14, 15, 16, 1])
    np.testing.assert_allclose(mixed.keys, hidden[LABELS != 0], rtol=1e-5, atol=1e-6)
    # A row without tokens is left out.
    mixed = with_knn(model, [(INPUTS, LABELS * [[0], [1]])], k=2, subset_size=2)
    np.testing.assert_array_equal(mixed.values, [14, 15, 16, 1])
    unknown = {"source_ids": tf.zeros([2, 5], tf.int32), "target_ids": INPUTS["target_ids"]}
    assert np.all(np.isfinite(mixed(unknown)))


def test_steps_of_decoding_predict_as_the_whole_pass(model):
    mixed = with_knn(model, k=3, temperature=20.0)
    whole = mixed(INPUTS).numpy()
    state, step = mixed.initial_state(mixed.encode(tf.constant(SOURCE)), 1), mixed.step
    for position in range(4):
        found, state = step(tf.constant(READ[:, position : position + 1]), state)
        real = LABELS[:, position] != 0
        np.testing.assert_allclose(found[:, 0][real], whole[:, position][real], atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("beams", [1, 4])
def test_knn_mt_repeats_the_text_of_its_datastore(model, beams):
    def best(searched):
        return beam_search(
            searched.step,
            searched.initial_state(searched.encode(tf.constant(SOURCE)), beams),
            bos_ids=tf.fill([2], START),
            eos_id=END,
            beam_size=beams,
            max_lengths=tf.fill([2], 6),
            reorder=searched.reorder,
        ).ids[:, 0]

    mixed = with_knn(model, k=2, temperature=1.0, interpolation=0.99)
    np.testing.assert_array_equal(best(mixed)[:, :4], LABELS)
    assert not np.array_equal(best(model)[:, :4], LABELS)  # which alone knows nothing


def test_in_mixed_precision_distances_stay_float32(model):
    mixed_precision = Transformer(model.config, dtype="mixed_bfloat16")
    mixed_precision.set_weights(model.get_weights())
    mixed = with_knn(mixed_precision, k=1, interpolation=0.9)
    assert mixed.compute_dtype == "bfloat16" and mixed.keys.dtype == "float32"
    found = np.exp(mixed(INPUTS).numpy())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found.sum(axis=-1), 1, atol=1e-5)
    said = np.take_along_axis(found, LABELS[..., np.newaxis], axis=2)[..., 0][LABELS != 0]
    assert np.all(said >= 0.9)  # the nearest key of each token is its own
    state = mixed.initial_state(mixed.encode(tf.constant(SOURCE)), 1)
    step, _, weights = mixed.step(tf.fill([2, 1], START), state, return_attention_weights=True)
    np.testing.assert_allclose(np.exp(step[:, 0]), found[:, 0], atol=0.02)
    np.testing.assert_allclose(tf.reduce_sum(weights, axis=3), 1, atol=1e-5)


def test_a_datastore_that_does_not_fit_is_refused(model):
    packed = INPUTS | {"source_segments": INPUTS["source_ids"]}
    for batch, message in (
        ((INPUTS, tf.zeros([2, 4], tf.int32)), "datastore would be empty"),
        ((packed, LABELS), "rows hold several pairs"),
    ):
        with pytest.raises(InputError, match=message):
            build_datastore(model, [batch])
    for sources, lengths, width, tokens, message in (
        ([[4], [5]], [0, 3], 128, [5] * 3, r"pair 0 \(from 0\) has no token"),
        ([[5]], [3], 5, [5, 6, 7], r"shape \(3, 5\) for 3 tokens: .* width 128"),
        ([], [], 128, [], "at least one token"),
        ([[5]], [1, 2], 128, [5, 6, 7], "1 sources have 2 targets of 3 tokens in all"),
    ):
        datastore = Datastore(sources, np.array(lengths), np.zeros([len(tokens), width]), tokens)
        with pytest.raises(InputError, match=message):
            KNNTransformer(model, datastore)


def test_the_most_similar_texts_are_those_of_the_greatest_cosines_of_tf_idf():
    rng, vocab = np.random.default_rng(0), 30
    skewed = np.arange(1, vocab - 3) ** -1.0  # the last ids are in no text
    texts = [
        rng.choice(np.arange(1, vocab - 3), rng.integers(1, 12), p=skewed / skewed.sum())
        for _ in range(200)
    ]
    texts[3] = np.pad(texts[3], (0, 4))
    queries = [rng.integers(0, vocab, 9) for _ in range(20)] + [[1] * 9]
    has, asked = (
        np.array([[i > 0 and i in text for i in range(vocab)] for text in bags])
        for bags in (texts, queries)
    )
    idf = np.log(200 / np.maximum(has.sum(axis=0), 1)) * has.any(axis=0)
    weights = has * idf
    cosines = (asked * idf) @ (weights / np.linalg.norm(weights, axis=1, keepdims=True)).T
    found = TfIdfRetriever(texts, vocab).retrieve(tf.constant(np.array(queries), tf.int32), 10)
    expected = np.sort(cosines, axis=1)[:, :-11:-1]
    found_cosines = np.take_along_axis(cosines, found.numpy(), axis=1)
    np.testing.assert_allclose(found_cosines, expected, rtol=1e-5, atol=1e-6)
    assert all(len(set(row)) == 10 for row in found.numpy())
    ids = tf.constant([[5, 6]])
    np.testing.assert_array_equal(TfIdfRetriever([[5, 6]], vocab).retrieve(ids, 1), [[0]])
    alike = TfIdfRetriever([[5], [5], [7]], vocab).retrieve(ids, 3)
    np.testing.assert_array_equal(alike, [[0, 1, 2]])
