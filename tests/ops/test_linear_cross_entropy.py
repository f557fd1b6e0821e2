"""The output projection fused with the loss, in all forms, against NumPy in float64."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import ops
from tests import reference

VOCAB, WIDTH, ROWS = 13, 5, 7
rng = np.random.default_rng(0)
HIDDEN = rng.normal(size=(ROWS, WIDTH)) * 3
MATRIX = rng.normal(size=(VOCAB, WIDTH))
LABELS = rng.integers(0, VOCAB, ROWS)
WEIGHTS = np.array([1, 0, 0.5, 2, 1, 0, 1])


def written_out(hidden, matrix, smoothing):
    """Returns the loss, its gradients by hidden and matrix, and log p(label) of each row."""
    logits = hidden @ matrix.T
    probabilities = reference.softmax(logits)
    targets = (1 - smoothing) * np.eye(VOCAB)[LABELS] + smoothing / VOCAB
    by_logits = (probabilities - targets) * WEIGHTS[:, np.newaxis]
    loss = -(targets * np.log(probabilities)).sum(-1) @ WEIGHTS
    log_probabilities = np.log(probabilities[np.arange(ROWS), LABELS])
    return loss, by_logits @ matrix, by_logits.T @ hidden, log_probabilities


def three_times_the_loss(hidden, matrix, smoothing, compute_argmax, max_logits):
    """Returns three times the loss, its gradients by hidden and matrix, and the `LossTerms`."""
    with tf.GradientTape() as tape:
        tape.watch([hidden, matrix])
        terms = ops.linear_cross_entropy(
            hidden,
            matrix,
            LABELS,
            tf.constant(WEIGHTS, tf.float32),
            smoothing,
            compute_argmax,
            max_logits,
        )
        loss = 3 * terms.loss
    gradients = tape.gradient(loss, [hidden, matrix])
    # A function returns tensors: what was not computed is left out.
    return loss, *gradients, *(t for t in (terms.log_probability, terms.argmax) if t is not None)


THREE_TIMES = {
    device: tf.function(three_times_the_loss, jit_compile=device == "xla")
    for device in ("cpu", "gpu", "xla")
}


@pytest.mark.parametrize(("device", "smoothing", "chunk_rows", "compute_argmax"), [
    ("cpu", 0.1, 3, True),
    ("cpu", 0.0, 3, False),
    ("cpu", 0.1, 1000, True),
    ("cpu", 0.1, 1, False),
    ("cpu", 0.0, None, True),
    ("gpu", 0.1, 3, True),
    ("gpu", 0.0, 1000, False),
    ("xla", 0.1, 3, True),
    ("xla", 0.0, 1000, False),
])  # fmt: skip
def test_loss_gradients_and_terms_are_those_of_one_hot_targets(
    smoothing, chunk_rows, compute_argmax, device
):
    hidden, matrix = tf.constant(HIDDEN, tf.float32), tf.constant(MATRIX, tf.float32)
    arguments = hidden, matrix, smoothing, compute_argmax, chunk_rows and chunk_rows * VOCAB
    with ops.made_for(device):
        found = THREE_TIMES[device](*arguments)
    loss, by_hidden, by_matrix, log_probabilities, *argmax = found
    expected = written_out(HIDDEN, MATRIX, smoothing)
    assert float(loss) == pytest.approx(3 * expected[0], rel=1e-5)
    reference.assert_close(by_hidden, 3 * expected[1])
    reference.assert_close(by_matrix, 3 * expected[2])
    reference.assert_close(log_probabilities, expected[3])
    assert len(argmax) == compute_argmax
    for classes in argmax:
        assert classes.dtype == (tf.int64 if device == "gpu" else tf.int32)
        np.testing.assert_array_equal(classes, (HIDDEN @ MATRIX.T).argmax(-1))


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("max_logits", [None, 3 * VOCAB])
def test_a_bias_is_one_more_column_of_the_matrix(max_logits):
    bias = np.linspace(-2, 3, VOCAB)
    tensors = [tf.constant(x, tf.float32) for x in (HIDDEN, MATRIX, bias)]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        terms = ops.linear_cross_entropy(
            *tensors[:2],
            LABELS,
            tf.constant(WEIGHTS, tf.float32),
            0.1,
            max_logits=max_logits,
            bias=tensors[2],
        )
    gradients = tape.gradient(terms.loss, tensors)
    wider = np.pad(HIDDEN, [[0, 0], [0, 1]], constant_values=1)
    loss, by_hidden, by_matrix, found = written_out(wider, np.column_stack([MATRIX, bias]), 0.1)
    assert float(terms.loss) == pytest.approx(loss, rel=1e-5)
    expected = by_hidden[:, :-1], by_matrix[:, :-1], by_matrix[:, -1]
    for gradient, wanted in zip(gradients, expected, strict=True):
        reference.assert_close(gradient, wanted)
    reference.assert_close(terms.log_probability, found)
    np.testing.assert_array_equal(terms.argmax, (HIDDEN @ MATRIX.T + bias).argmax(-1))


@pytest.mark.usefixtures("form")
def test_leading_dimensions_are_kept_and_no_row_gives_0():
    matrix = tf.constant(MATRIX, tf.float32)
    for shape in ((2, 1, 3), (0,)):
        hidden = np.resize(HIDDEN, (*shape, WIDTH)) if shape[0] else np.zeros((0, WIDTH))
        labels, weights = np.resize(LABELS, shape), np.resize(WEIGHTS, shape)
        with tf.GradientTape() as tape:
            tape.watch(matrix)
            terms = ops.linear_cross_entropy(
                tf.constant(hidden, tf.float32), matrix, tf.constant(labels, tf.int32),
                tf.constant(weights, tf.float32), 0.1,
            )  # fmt: skip
        gradient, logits = tape.gradient(terms.loss, matrix), hidden @ MATRIX.T
        losses = reference.smoothed_cross_entropy(labels, logits, 0.1)
        assert float(terms.loss) == pytest.approx(np.sum(losses * weights), rel=1e-5)
        expected = -reference.smoothed_cross_entropy(labels, logits, 0.0)
        reference.assert_close(terms.log_probability, expected)
        np.testing.assert_array_equal(terms.argmax, logits.argmax(-1))
        assert shape[0] or not np.any(gradient)


def test_bfloat16_rounds_the_difference_from_the_label_and_not_the_probability():
    """0.999 in bfloat16 is 1, and its difference from 1 would be lost."""
    matrix = np.eye(4) * 8
    hidden = tf.constant(np.eye(4) * np.log(3 * 0.999 / 0.001) / 8, tf.bfloat16)
    with tf.GradientTape() as tape:
        tape.watch(hidden)
        terms = ops.linear_cross_entropy(
            hidden, tf.constant(matrix, tf.float32), np.arange(4), tf.ones(4), smoothing=0.0
        )
    logits = np.asarray(tf.cast(hidden, tf.float64)) @ matrix
    gradient = tape.gradient(terms.loss, hidden)
    assert gradient.dtype == tf.bfloat16
    expected = (reference.softmax(logits) - np.eye(4)) @ matrix
    np.testing.assert_allclose(tf.cast(gradient, tf.float64), expected, rtol=0.02)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_is_as_exact_as_its_factors(dtype):
    hidden, matrix = tf.constant(HIDDEN / 3, dtype), tf.constant(MATRIX, tf.float32)
    with tf.GradientTape() as tape:
        tape.watch([hidden, matrix])
        terms = ops.linear_cross_entropy(
            hidden, matrix, LABELS, tf.constant(WEIGHTS, tf.float32), smoothing=0.1
        )
    by_hidden, by_matrix = tape.gradient(terms.loss, [hidden, matrix])
    assert (by_hidden.dtype, by_matrix.dtype) == (dtype, tf.float32)
    expected = written_out(HIDDEN / 3, MATRIX, 0.1)
    error = {"bfloat16": 2**-6, "float16": 2**-9}[dtype]
    assert float(terms.loss) == pytest.approx(expected[0], rel=error)
    for found, wanted in ((by_hidden, expected[1]), (by_matrix, expected[2])):
        difference = np.asarray(tf.cast(found, tf.float64)) - wanted
        assert np.linalg.norm(difference) < error * np.linalg.norm(wanted)


@pytest.mark.usefixtures("form")
@pytest.mark.parametrize("compute_argmax", [False, True])
@pytest.mark.parametrize("apart", [1e3, 80.0])  # the label's probability is 0, or 2e-35
def test_logits_far_apart_have_a_finite_loss(apart, compute_argmax):
    terms = ops.linear_cross_entropy(
        tf.constant([[apart, 0.0]]), tf.eye(2), tf.constant([1]), tf.ones([1]), 0.0, compute_argmax
    )
    assert float(terms.loss) == pytest.approx(apart)
    assert float(terms.log_probability[0]) == pytest.approx(-apart)
    if compute_argmax:
        assert int(terms.argmax[0]) == 0


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.5])
@pytest.mark.parametrize(("dtype", "error"), [("float32", 1e-6), ("bfloat16", 1e-3)])
def test_the_loss_of_logits_is_section_5_4(smoothing, dtype, error):
    logits = tf.cast(HIDDEN @ MATRIX.T, dtype)
    exact = tf.cast(logits, tf.float64).numpy()
    with tf.GradientTape() as tape:
        tape.watch(logits)
        losses = ops.smoothed_cross_entropy(LABELS, logits, smoothing)
        total = tf.reduce_sum(losses * tf.constant(WEIGHTS, tf.float32))
    assert losses.dtype == tf.float32
    expected = reference.smoothed_cross_entropy(LABELS, exact, smoothing)
    np.testing.assert_allclose(losses, expected, rtol=1e-5)
    [gradient] = reference.gradients(
        lambda x: reference.smoothed_cross_entropy(LABELS, x, smoothing) @ WEIGHTS, exact
    )
    found = tape.gradient(total, logits)
    assert found.dtype == dtype
    np.testing.assert_allclose(tf.cast(found, tf.float64), gradient, atol=10 * error)


def test_log_probability_is_that_of_the_softmax():
    logits = HIDDEN @ MATRIX.T
    expected = np.log(reference.softmax(logits)[np.arange(ROWS), LABELS])
    for labels in (LABELS, LABELS.astype("uint8")):
        found = ops.log_probability(labels, tf.constant(logits))
        assert found.dtype == tf.float32
        np.testing.assert_allclose(found, expected, rtol=1e-5)
