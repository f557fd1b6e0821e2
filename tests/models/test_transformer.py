"""The whole model against section 3 in NumPy, its steps, and what a user of Keras does with it."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras
from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.layers.basic import Dropout
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Decoder, Encoder, Transformer
from tests import reference
from tests.models import numpy_model
from tests.models.batches import inputs
from tests.models.numpy_model import randomized

SMALL = {"num_encoder_layers": 2, "num_decoder_layers": 2, "model_dim": 16, "feed_forward_dim": 24}


def small(**overrides):
    return Transformer(TransformerConfig(40, num_heads=2, **(SMALL | overrides)))


SOURCE = [[5, 6, 7, 1, 0, 0], [5, 6, 7, 8, 9, 1]]
TARGET = [[3, 8, 9, 10, 11], [3, 4, 5, 6, 7]]


def test_the_whole_model_is_section_3_in_numpy():
    model = randomized(small())
    logits, weights = numpy_model.transformer(model, SOURCE, TARGET)
    np.testing.assert_allclose(model(inputs(SOURCE, TARGET)), logits, atol=2e-4)
    same_logits, attention = model(inputs(SOURCE, TARGET), return_attention_weights=True)
    np.testing.assert_allclose(same_logits, logits, atol=2e-4)
    for found, expected in zip(attention, weights, strict=True):
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.all(np.isfinite(model(inputs([[0, 0, 0]], [[0, 0]]))))  # padding alone


@pytest.mark.parametrize("norm", ["pre", "post"])
@pytest.mark.parametrize("kind", [Encoder, Decoder])
def test_only_a_stack_of_pre_norm_ends_with_one_more_norm(kind, norm):
    rng = np.random.default_rng(0)
    x, *memory = rng.normal(size=(1 + (kind is Decoder), 2, 3, 16)).astype("float32")
    stack = kind(TransformerConfig(40, num_heads=2, norm=norm, norm_epsilon=0.1, **SMALL))
    found, expected = stack(x, *memory), x
    for layer in stack.layers:
        expected = layer(expected, *memory)
    if norm == "pre":
        gamma, beta = rng.normal(size=(2, 16))
        stack.final_norm.gamma.assign(gamma)
        stack.final_norm.beta.assign(beta)
        found = stack(x, *memory)
        expected = reference.layer_norm(expected.numpy(), gamma, beta, epsilon=0.1)
    np.testing.assert_allclose(found, expected, atol=1e-4)


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_cached_steps_equal_the_call(device):
    model = randomized(small())
    expected, weights = model(inputs(SOURCE, TARGET), return_attention_weights=True)
    with ops.made_for(device):
        np.testing.assert_allclose(model(inputs(SOURCE, TARGET)), expected, atol=1e-5)
        state = model.initial_state(model.encode(np.array(SOURCE)), beams=1)
        for t in range(5):
            ids = tf.constant(TARGET)[:, t : t + 1]
            logits, state, cross = model.step(ids, state, return_attention_weights=True)
            np.testing.assert_allclose(logits[:, 0], expected[:, t], atol=1e-4)
            np.testing.assert_allclose(cross[:, :, 0], weights.cross[:, -1, :, t], atol=1e-4)


@pytest.mark.parametrize("changes", [{}, {"norm": "pre", "key_dim": 5, "value_dim": 3}])
def test_reordered_hypotheses_continue_from_their_parents(changes):
    """The logits of each hypothesis are those of its own tokens, whatever the others were."""
    model, beams, rng = randomized(small(**changes)), 3, np.random.default_rng(2)
    state = model.initial_state(model.encode(tf.constant(SOURCE)), beams)
    histories = np.zeros([2, beams, 0], np.int32)
    for t in range(4):
        ids = rng.integers(3, 40, [2, beams]).astype(np.int32)
        logits, state = model.step(tf.constant(ids), state)
        histories = np.concatenate([histories, ids[..., np.newaxis]], axis=2)
        for beam in range(beams):
            alone = model(inputs(SOURCE, histories[:, beam]))[:, -1]
            np.testing.assert_allclose(logits[:, beam], alone, atol=1e-4)
        parents = rng.integers(beams, size=[2, beams]).astype(np.int32)
        state = model.reorder(state, tf.constant(parents))
        histories = np.take_along_axis(histories, parents[..., np.newaxis], axis=1)
        assert state.beam_history.shape == (2, beams, t + 1)


@pytest.mark.parametrize("fused_qkv", [False, True])
def test_matrices_start_from_glorots_distribution_and_differ(fused_qkv):
    model = small(fused_qkv=fused_qkv)
    kernels = [w.numpy() for w in model.weights if w.path.endswith("kernel")]
    assert len({kernel.tobytes() for kernel in kernels}) == len(kernels) > 20
    for kernel in kernels:  # uniform in ±√(6 / (rows + columns))
        bound = np.sqrt(6 / sum(kernel.shape))
        assert np.abs(kernel).max() <= bound
        assert kernel.std() == pytest.approx(bound / np.sqrt(3), rel=0.15)
    embedding = model.embedding.matrix.numpy()  # logits of variance 1
    assert embedding.std() == pytest.approx(model.config.model_dim**-0.5, rel=0.15)


@pytest.mark.parametrize("field", [None, "dropout", "attention_dropout", "activation_dropout"])
def test_fit_drops_out_and_evaluate_does_not(field):
    model = small(**{"dropout": 0.0, **({field: 0.5} if field else {})})
    loss = t2t_keras.LabelSmoothedCrossEntropy(0.1)
    model.compile(keras.optimizers.SGD(0.0), loss, run_eagerly=True)
    one = tf.data.Dataset.from_tensors((inputs(SOURCE, TARGET), tf.constant(TARGET)))
    evaluated = model.evaluate(one, verbose=0)
    assert model.evaluate(one, verbose=0) == evaluated
    fitted = model.fit(one, epochs=2, verbose=0).history["loss"]
    same = [loss == pytest.approx(evaluated, rel=1e-5) for loss in fitted]
    assert same == [field is None] * 2


def test_the_sums_of_embeddings_and_positions_are_dropped_out_too():
    model, batch = small(dropout=0.5), inputs(SOURCE, TARGET)
    for layer in model._flatten_layers():
        if isinstance(layer, Dropout) and layer is not model.embedding_dropout:
            layer.rate = 0.0
    assert not np.allclose(model(batch, training=True), model(batch))


def test_inputs_labels_losses_and_configs_that_do_not_fit_are_refused():
    model, batch, empty = small(), inputs(SOURCE, TARGET), tf.zeros([2, 0], tf.int32)
    fitted = small()
    fitted.compile("sgd", t2t_keras.LabelSmoothedCrossEntropy())
    labels = np.array(TARGET)
    for call, message in (
        *((lambda x=x: model(batch | {x: empty}), r"\(2, 0\): give \[batch") for x in batch),
        (lambda: model(batch | {"source_ids": tf.ones([2], tf.int32)}), r"give \[batch, length\]"),
        *((lambda x=x: model(x), "give a dict of source_ids and target_ids")
          for x in (np.array(SOURCE), {"source_ids": np.array(SOURCE)})),
        *((lambda x=x: Transformer(x), "give a TransformerConfig") for x in (None, 40)),
        *((lambda x=x: fitted.fit(batch, x, verbose=0), "but the predictions are of")
          for x in (labels[:, :-1], labels[:, 0])),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            call()
    with pytest.raises(ValueError, match="value 16, but received input with shape"):
        Encoder(model.config)(tf.ones([2, 5, 8]))
