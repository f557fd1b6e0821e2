"""The norm of a gradient and its clipping, against NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.training.callbacks import StopOnDivergence, gradient_norm
from t2t_keras.training.optimizers import AveragingAdam, NormedAdam
from tests.training import tiny

GRADIENTS = [np.float32([[3.0, -4.0]]), np.float32([12.0])]  # of norm 13


def applied(clip_norm):
    optimizer = NormedAdam(0.1, beta_1=0.5, clip_norm=clip_norm)
    variables = [keras.Variable(np.zeros_like(gradient)) for gradient in GRADIENTS]
    optimizer.apply([tf.constant(gradient) for gradient in GRADIENTS], variables)
    return optimizer


@pytest.mark.parametrize(("clip_norm", "factor"), [(None, 1), (26, 1), (6.5, 0.5), (1, 1 / 13)])
def test_a_long_gradient_is_shortened_and_a_short_one_is_not(clip_norm, factor):
    optimizer = applied(clip_norm)
    assert float(optimizer.gradient_norm) == pytest.approx(13)
    for momentum, gradient in zip(optimizer._momentums, GRADIENTS, strict=True):
        np.testing.assert_allclose(momentum, 0.5 * factor * gradient, rtol=1e-6)


def test_it_is_saved_with_its_settings():
    optimizer = keras.optimizers.deserialize(keras.optimizers.serialize(NormedAdam(clip_norm=2.0)))
    assert type(optimizer) is NormedAdam
    assert optimizer.clip_norm == 2.0


def test_a_moving_average_is_saved_with_its_decay():
    saved = keras.optimizers.serialize(AveragingAdam(ema_decay=0.9, clip_norm=2.0))
    optimizer = keras.optimizers.deserialize(saved)
    assert (optimizer.ema_decay, optimizer.clip_norm) == (0.9, 2.0)


def test_settings_of_nothing_are_refused():
    with pytest.raises(InputError, match="clip_norm is 0"):
        NormedAdam(clip_norm=0)
    with pytest.raises(InputError, match=r"ema_decay is 1\.0: give more than 0 and less"):
        AveragingAdam(ema_decay=1.0)


def test_an_exploding_gradient_stops_training_and_another_optimizer_does_not_mind():
    model = tiny.compiled_model()
    tiny.fit(model, tiny.dataset(1), 1, [StopOnDivergence(largest_gradient_norm=1e3)])
    with pytest.raises(InputError, match=r"norm became .* at step 2, where 1e-09 is the most"):
        tiny.fit(model, tiny.dataset(1), 1, [StopOnDivergence(largest_gradient_norm=1e-9)])
    other = tiny.compiled_model(optimizer=keras.optimizers.SGD(0.1))
    tiny.fit(other, tiny.dataset(1), 1, [StopOnDivergence(largest_gradient_norm=1e-9)])
    assert gradient_norm(other) is None
