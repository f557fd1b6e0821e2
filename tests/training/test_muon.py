"""Muon against NumPy's singular value decomposition, and beside Adam."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.layers.projections import StackedProjections
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.training.muon import AveragingMuon, NormedMuon, scheduled_muon
from tests import reference


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_matrices_move_by_orthogonal_ones(shape, nesterov):
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(2, *shape))
    variable, optimizer = keras.Variable(np.zeros(shape, "float32")), scheduled_muon(0.01)
    optimizer.nesterov = nesterov
    sums = np.zeros(shape)
    for gradient in gradients:
        before = variable.numpy()
        optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
        sums = 0.95 * sums + gradient
        left, _, right = np.linalg.svd(
            gradient + 0.95 * sums if nesterov else sums, full_matrices=False
        )
        # Five steps of the iteration bring singular values to 0.7 … 1.2; an Adam of like root mean
        # square has 0.2 of the rate in each place.
        moved = (before - variable.numpy()) / (0.01 * 0.2 * max(shape) ** 0.5)
        values = left.T @ moved @ right.T
        assert np.all((np.diag(values) > 0.65) & (np.diag(values) < 1.25))
        np.testing.assert_allclose(values, np.diag(np.diag(values)), atol=1e-4)


@pytest.mark.parametrize(("name", "shape"), [("bias", [3]), ("embedding", [4, 3])])
def test_what_is_no_matrix_of_a_layer_moves_as_the_papers_adam_moves_it(name, shape):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=shape), rng.normal(size=(5, *shape))
    variable = keras.Variable(start.astype("float32"), name=name)
    optimizer = scheduled_muon(0.01)
    for gradient in gradients:
        optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
    expected = reference.adam(start, gradients, 0.01)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-6)


def test_no_embedding_is_moved_as_a_matrix():
    model = Transformer(
        TransformerConfig.tiny(vocab_size=9, position_embedding="learned", max_positions=5)
    )
    optimizer = scheduled_muon(0.01)
    optimizer.build(model.trainable_variables)
    squares = zip(model.trainable_variables, optimizer.adam_velocities, strict=True)
    by_adam = {v.path for v, square in squares if square is not None and len(v.shape) > 1}
    assert by_adam == {"embedding/matrix", "source_positions/table", "target_positions/table"}


def test_it_is_saved_with_its_settings():
    kept = {NormedMuon: {"clip_norm": 2.0}, AveragingMuon: {"clip_norm": 2.0, "ema_decay": 0.9}}
    for kind, settings in kept.items():
        optimizer = scheduled_muon(0.1, momentum=0.8, beta_2=0.97, **settings)
        optimizer = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
        assert type(optimizer) is kind
        assert {name: getattr(optimizer, name) for name in settings} == settings
        assert (optimizer.momentum, optimizer.adam_beta_2) == (0.8, 0.97)


def test_the_norm_is_that_of_all_gradients():
    optimizer = scheduled_muon(0.1)
    gradients = [np.float32([[3.0, -4.0]]), np.float32([12.0])]
    variables = [keras.Variable(np.zeros_like(gradient)) for gradient in gradients]
    optimizer.apply([tf.constant(gradient) for gradient in gradients], variables)
    assert float(optimizer.gradient_norm) == pytest.approx(13)


def test_matrices_side_by_side_move_each_as_if_alone():
    rng, widths = np.random.default_rng(0), [5, 5, 3]
    layer = StackedProjections(widths)
    layer.build((None, None, 4))
    start, places = layer.kernel.numpy(), np.cumsum(widths)[:-1]
    alone = [keras.Variable(part) for part in np.split(start, places, axis=1)]
    together, each = scheduled_muon(0.01), scheduled_muon(0.01)
    for gradient in rng.normal(size=(2, 4, 13)).astype("float32"):
        together.apply([tf.constant(gradient)], [layer.kernel])
        each.apply([tf.constant(part) for part in np.split(gradient, places, axis=1)], alone)
    expected = np.concatenate([part.numpy() for part in alone], axis=1)
    np.testing.assert_allclose(layer.kernel.numpy(), expected, atol=1e-6)
    assert np.abs(expected - start).min() > 1e-5
