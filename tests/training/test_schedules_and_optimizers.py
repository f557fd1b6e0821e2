"""The rate of equation 3 and the paper's Adam (section 5.3)."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.training.muon import scheduled_muon
from t2t_keras.training.optimizers import NormedAdam, adam, scheduled_adam
from t2t_keras.training.schedules import Cooldown, InverseSquareRoot
from tests import reference


def test_rate_peaks_at_6_99e_4_with_the_papers_constants():
    schedule = InverseSquareRoot(model_dim=512, warmup_steps=4000)
    rates = np.array([schedule(i) for i in range(3900, 4100)])
    assert np.argmax(rates) + 3900 == 3999  # Keras's 3999 is the paper's step 4000
    assert rates.max() == pytest.approx(6.99e-4, abs=5e-7)


@pytest.mark.parametrize("step", [1, 2, 1999, 2000, 2001, 100_000])
def test_rate_is_equation_3_from_step_1_on(step):
    expected = 2.0 * 128**-0.5 * min(step**-0.5, step * 2000**-1.5)
    rate = InverseSquareRoot(128, warmup_steps=2000, scale=2.0)(step - 1)
    assert float(rate) == pytest.approx(expected, rel=1e-6)


def test_adam_has_the_papers_constants_and_survives_its_config():
    optimizer = keras.optimizers.deserialize(keras.optimizers.serialize(adam(512)))
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    assert float(optimizer.learning_rate) == pytest.approx(512**-0.5 * 4000**-1.5)


@pytest.mark.parametrize("wrong", [{"model_dim": 0}, {"warmup_steps": 0}, {"scale": -1.0}])
def test_senseless_schedules_are_refused(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        InverseSquareRoot(**({"model_dim": 512} | wrong))


def test_cooldown_follows_its_schedule_then_falls_in_a_line():
    paper = InverseSquareRoot(512, warmup_steps=10)
    optimizer = scheduled_adam(Cooldown(paper, steps=100, cooldown_steps=20))
    schedule = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))._learning_rate
    for step, share in [(0, 1), (79, 1), (80, 1), (85, 0.75), (99, 0.05), (100, 0), (150, 0)]:
        assert float(schedule(step)) == pytest.approx(share * float(paper(step)), rel=1e-5)
    with pytest.raises(InputError, match="cooldown_steps is 101"):
        Cooldown(paper, steps=100, cooldown_steps=101)


def test_adam_updates_as_its_algorithm_says():
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=(4, 3)), rng.normal(size=(5, 4, 3))
    variable, optimizer = keras.Variable(start.astype("float32")), scheduled_adam(0.01)
    for gradient in gradients:
        optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
    expected = reference.adam(start, gradients, 0.01)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("make", [scheduled_adam, scheduled_muon])
def test_weights_without_gradient_fall_by_their_decay_at_the_rate(make):
    schedule, variable = InverseSquareRoot(64, warmup_steps=2), keras.Variable([[3.0, -2.0]])
    optimizer, expected = make(schedule, weight_decay=0.5), np.array([[3.0, -2.0]])
    for step in range(4):
        optimizer.apply([tf.zeros([1, 2])], [variable])
        expected *= 1 - 0.5 * float(schedule(step))
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-6)
    assert abs(expected[0, 0]) < 2.8
    with pytest.raises(InputError, match=r"weight_decay is -0\.1: give 0 or more"):
        make(schedule, weight_decay=-0.1)


def test_a_word_that_a_batch_holds_twice_has_the_sum_of_both_gradients():
    """Keras's own Adam adds up the squares of an embedding's gradients, not their sum's square."""
    start, parts = np.ones([4, 2]), np.random.default_rng(0).normal(size=(5, 3, 2))
    gradients = np.zeros([5, 4, 2])
    gradients[:, 1], gradients[:, 3] = parts[:, 0] + parts[:, 1], parts[:, 2]
    variable, optimizer = keras.Variable(start.astype("float32")), scheduled_adam(0.01)
    for part in parts:
        rows = tf.constant(part, tf.float32)
        optimizer.apply([tf.IndexedSlices(rows, tf.constant([1, 1, 3]), (4, 2))], [variable])
    expected = reference.adam(start, gradients, 0.01)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_adam_of_the_greatest_square_is_that_of_keras():
    results = []
    for kind in (NormedAdam, keras.optimizers.Adam):
        variable = keras.Variable(np.ones([3], "float32"))
        optimizer = kind(0.1, amsgrad=True)
        for gradient in ([3.0, 1.0, 0.0], [0.1, -1.0, 2.0]):
            optimizer.apply([tf.constant(gradient)], [variable])
        results.append(variable.numpy())
    np.testing.assert_allclose(*results, rtol=1e-6)
