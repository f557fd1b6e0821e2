"""Adam (section 5.3) and Muon against NumPy, global-norm clipping, and averages of the weights."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines.configs import multi30k_en_de
from pipelines.experiment import make_optimizer
from t2t_keras import keras_compat
from t2t_keras.errors import InputError
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.settings import settings_of
from t2t_keras.training.callbacks import StopOnDivergence, gradient_norm
from t2t_keras.training.checkpoints import model_variables, restore_weights, write_ema
from t2t_keras.training.optimizers import Adam, Muon, adam
from t2t_keras.training.schedules import InverseSquareRoot
from tests import reference
from tests.training import tiny

BOTH = pytest.mark.parametrize("kind", [Adam, Muon])


def copied(optimizer):
    """Returns the optimizer as its config makes it anew."""
    return keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))


def trained(optimizer, start, gradients, dtype="float32", name=None, seen=None):
    variable = keras.Variable(start, dtype=dtype, name=name)
    for gradient in gradients:
        optimizer.apply([tf.constant(gradient, dtype)], [variable])
        if seen is not None:
            seen.append(variable.numpy().astype(np.float64))
    return variable


def average(seen, decay):
    """Returns the average that weights have after the updates seen: Σ d^(t-i) w_i / Σ d^(t-i)."""
    return np.average(np.float64(seen), axis=0, weights=decay ** np.arange(len(seen))[::-1])


# Adam ------------------------------------------------------------------------------------------


def test_adam_updates_as_its_algorithm_says():
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=(4, 3)), rng.normal(size=(5, 4, 3))
    optimizer = Adam(0.01)
    variable = trained(optimizer, start, gradients)
    expected = reference.adam(start, gradients, 0.01)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-6)
    optimizer = copied(adam(512))  # the paper's constants
    assert (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon) == (0.9, 0.98, 1e-9)
    assert float(optimizer.learning_rate) == pytest.approx(512**-0.5 * 4000**-1.5)


def test_a_word_that_a_batch_holds_twice_has_the_sum_of_both_gradients():
    """Keras's own Adam adds up the squares of an embedding's gradients, not their sum's square."""
    start, parts = np.ones([4, 2]), np.random.default_rng(0).normal(size=(5, 3, 2))
    gradients = np.zeros([5, 4, 2])
    gradients[:, 1], gradients[:, 3] = parts[:, 0] + parts[:, 1], parts[:, 2]
    variable, optimizer = keras.Variable(start.astype("float32")), Adam(0.01)
    for part, gradient in zip(parts, gradients, strict=True):
        rows = tf.constant(part, tf.float32)
        optimizer.apply([tf.IndexedSlices(rows, tf.constant([1, 1, 3]), (4, 2))], [variable])
        assert float(optimizer.gradient_norm) == pytest.approx(np.linalg.norm(gradient), rel=1e-5)
    expected = reference.adam(start, gradients, 0.01)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-6)


# Muon ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nesterov", [True, False])
@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_matrices_move_by_orthogonal_ones(shape, nesterov):
    rng = np.random.default_rng(0)
    gradients = rng.normal(size=(2, *shape))
    variable, optimizer = keras.Variable(np.zeros(shape, "float32")), Muon(0.01, nesterov=nesterov)
    sums = np.zeros(shape)
    for gradient in gradients:
        before = variable.numpy()
        optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
        sums = 0.95 * sums + gradient
        left, _, right = np.linalg.svd(
            gradient + 0.95 * sums if nesterov else sums, full_matrices=False
        )
        # Five steps of the iteration bring singular values to 0.7 … 1.2; an Adam of like root mean
        # square has 0.2 of the rate in each element.
        moved = (before - variable.numpy()) / (0.01 * 0.2 * max(shape) ** 0.5)
        values = left.T @ moved @ right.T
        assert np.all((np.diag(values) > 0.65) & (np.diag(values) < 1.25))
        np.testing.assert_allclose(values, np.diag(np.diag(values)), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "shape"), [("bias", [3]), ("embedding", [4, 3]), ("key_table", [4, 3])]
)
def test_muon_updates_other_weights_than_matrices_by_adam(name, shape):
    rng = np.random.default_rng(0)
    start, gradients = rng.normal(size=shape), rng.normal(size=(5, *shape))
    variable = trained(Muon(0.02, adam_lr_ratio=0.5), start, gradients, name=name)
    expected = reference.adam(start, gradients, 0.01)
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5, atol=1e-6)


def small_config(**settings):
    sizes = {"model_dim": 16, "feed_forward_dim": 24, "num_heads": 2}
    return TransformerConfig(9, 1, 1, **sizes, **settings)


def moved_by_adam(optimizer, model):
    """Returns the weights of two axes that a built Muon does not move as matrices."""
    optimizer.build(model.trainable_variables)
    squares = zip(model.trainable_variables, optimizer.adam_velocities, strict=True)
    return [v for v, square in squares if square is not None and len(v.shape) > 1]


def same_weights(weights, expected):
    return sorted(id(weight) for weight in weights) == sorted(id(weight) for weight in expected)


def test_vectors_and_output_kernels_are_no_hidden_matrices():
    model = TransformerClassifier(small_config(), 3, pooling="attention")
    expected = [model.embedding.matrix, model.head.kernel, model.pool.score.kernel]
    assert same_weights(moved_by_adam(Muon(0.01), model), expected)
    expected += [layer.feed_forward.inner.kernel for layer in model.encoder.layers]
    assert same_weights(moved_by_adam(Muon(0.01, exclude_layers=["inner"]), model), expected)


class Biases(keras.layers.Layer):
    """A layer of one's own with a table of two axes and a matrix."""

    def build(self, input_shape):
        self.rates = self.add_weight(name="rates", shape=(3, 4))
        self.matrix = self.add_weight(name="kernel", shape=(input_shape[-1], 4))


VARIANTS = [
    {field: name}
    for field, described in settings_of(TransformerConfig).items()
    for name in getattr(described.allowed, "names", ())
]


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
def test_kernels_of_hidden_layers_alone_are_hidden_matrices(variant):
    model = Transformer(small_config(**variant), name="embedding_model")  # in each path
    model.own = Biases()
    model.own.build((None, 5))
    linear = [x for x in model._flatten_layers() if isinstance(x, keras.layers.Dense)]
    kernels = [model.own.matrix, *(layer.kernel for layer in linear)]
    others = [v for v in model.trainable_variables if len(v.shape) > 1]
    others = [v for v in others if not any(v is kernel for kernel in kernels)]
    assert any(v is model.own.rates for v in others)
    assert same_weights(moved_by_adam(Muon(0.01), model), others)


def kernel_of(name, columns, rows=4):
    """Returns the kernel of a layer of that name."""
    layer = keras.layers.Dense(columns, use_bias=False, name=name)
    layer.build((None, rows))
    return layer.kernel


def test_fused_matrices_move_each_as_if_alone():
    rng, widths = np.random.default_rng(0), [5, 5, 3]
    kernel = kernel_of("qkv_projection", sum(widths))
    start, splits = kernel.numpy(), np.cumsum(widths)[:-1]
    alone = [keras.Variable(part) for part in np.split(start, splits, axis=1)]
    fused = copied(Muon(0.01, split_kernels={"kv_projection": [7, 6], "qkv_projection": widths}))
    each = Muon(0.01)
    for gradient in rng.normal(size=(2, 4, 13)).astype("float32"):
        fused.apply([tf.constant(gradient)], [kernel])
        each.apply([tf.constant(part) for part in np.split(gradient, splits, axis=1)], alone)
    expected = np.concatenate([part.numpy() for part in alone], axis=1)
    np.testing.assert_allclose(kernel.numpy(), expected, atol=1e-6)
    assert np.abs(expected - start).min() > 1e-5


def test_a_kernel_without_the_columns_of_its_matrices_is_refused():
    optimizer = Muon(0.01, split_kernels={"kv_projection": [4, 4]})
    message = r"split_kernels\['kv_projection'\] is \[4, 4\].* kv_projection/kernel has 9 columns"
    with pytest.raises(InputError, match=message):
        optimizer.build([kernel_of("kv_projection", 9)])


@pytest.mark.parametrize("fused", [True, False])
def test_a_config_says_which_matrices_its_model_fuses(fused):
    config = multi30k_en_de.get_config()
    config.model.update(num_heads=4, model_dim=32, key_dim=6, value_dim=10, fused_qkv=fused)
    optimizer = make_optimizer(config.train, TransformerConfig(**config.model))
    split = {"qkv_projection": [24, 24, 40], "kv_projection": [24, 40]}
    assert optimizer.split_kernels == (split if fused else {})


# Clipping --------------------------------------------------------------------------------------

GRADIENTS = [np.float32([[3.0, -4.0]]), np.float32([12.0])]  # of norm 13


@BOTH
@pytest.mark.parametrize(("norm", "factor"), [(None, 1), (26, 1), (6.5, 0.5)])
def test_a_long_gradient_is_shortened_and_a_short_one_is_not(kind, norm, factor):
    optimizer = kind(0.1, global_clipnorm=norm)
    variables = [keras.Variable(np.zeros_like(gradient)) for gradient in GRADIENTS]
    optimizer.apply([tf.constant(gradient) for gradient in GRADIENTS], variables)
    assert float(optimizer.gradient_norm) == pytest.approx(13)
    momentums = [v for v in optimizer.variables if v.name.endswith("momentum")]
    np.testing.assert_allclose(momentums[1], 0.1 * factor * GRADIENTS[1], rtol=1e-5)


def test_an_optimizer_without_a_norm_does_not_stop_training():
    other = tiny.eager_model(optimizer=keras.optimizers.SGD(0.1))
    tiny.fit(other, tiny.dataset(1), 1, [StopOnDivergence(stop_above_grad_norm=1e-9)])
    assert gradient_norm(other) is None


# Both ------------------------------------------------------------------------------------------


@BOTH
def test_weights_without_gradient_fall_by_their_decay_at_the_rate(kind):
    schedule, variable = InverseSquareRoot(64, warmup_steps=2), keras.Variable([[3.0, -2.0]])
    optimizer, expected = kind(schedule, weight_decay=0.5), np.array([[3.0, -2.0]])
    for step in range(4):
        optimizer.apply([tf.zeros([1, 2])], [variable])
        expected *= 1 - 0.5 * float(schedule(step))
    np.testing.assert_allclose(variable.numpy(), expected, rtol=1e-5)
    assert abs(expected[0, 0]) < 2.8
    kept = [keras.Variable([1.0], dtype=dtype) for dtype in ("float32", HALF)]
    optimizer = kind(0.1, weight_decay=0.5)
    optimizer.exclude_from_weight_decay(var_list=kept)
    optimizer.apply([tf.zeros([1], variable.dtype) for variable in kept], kept)
    assert all(float(variable[0]) == 1.0 for variable in kept)


@BOTH
def test_an_optimizer_is_saved_with_its_settings(kind):
    settings = {"global_clipnorm": 2.0, "ema_decay": 0.9, "weight_decay": 0.3}
    optimizer = copied(kind(0.1, **settings))
    assert type(optimizer) is kind
    assert {name: getattr(optimizer, name) for name in settings} == settings
    if kind is Muon:
        optimizer = copied(Muon(momentum=0.8, adam_beta_2=0.97, split_kernels={"a": [1, 2]}))
        assert (optimizer.momentum, optimizer.adam_beta_2) == (0.8, 0.97)
        assert optimizer.split_kernels == {"a": [1, 2]}


@BOTH
@pytest.mark.parametrize(("settings", "dtype", "message"), [
    ({"global_clipnorm": 0}, "float32", "global_clipnorm is 0: give more than 0"),
    ({"ema_decay": 1.0}, "float32", "ema_decay is 1.0: give more than 0 and less"),
    ({"weight_decay": -0.1}, "float32", "weight_decay is -0.1: give 0 or more"),
    ({"use_ema": True}, "float32", "use_ema .* give ema_decay"),
    ({}, "float16", 'train with dtype="mixed_float16"'),
])  # fmt: skip
def test_settings_out_of_their_range_and_weights_of_float16_are_refused(
    kind, settings, dtype, message
):
    with pytest.raises(InputError, match=message):
        kind(**settings).build([keras.Variable([1.0], dtype=dtype)])


def test_loss_scaling_hides_neither_norm_nor_average(tmp_path):
    """With float16 Keras wraps the optimizer, which then skips updates that are not finite."""
    inner = Adam(0.01, ema_decay=0.5)
    model = tiny.eager_model(optimizer=keras.optimizers.LossScaleOptimizer(inner))
    tiny.fit(model, tiny.dataset(1), 1)
    assert gradient_norm(model) == pytest.approx(float(inner.gradient_norm))
    assert gradient_norm(model) > 0
    other = tiny.TinyModel()
    restore_weights(other, write_ema(model, tmp_path / "ema_00000001"))
    for name, variable in model_variables(other).items():
        np.testing.assert_array_equal(variable, model_variables(model)[name])


def test_loss_scaling_sees_each_row_of_a_sparse_gradient():
    """One occurrence of a word overflows, and a later one does not."""
    weight = keras.Variable(np.ones([3, 2], "float32"))
    optimizer = keras_compat.LossScaleOptimizer(Adam(0.1))
    optimizer.build([weight])
    before = float(optimizer.dynamic_scale)
    rows = tf.constant([[np.inf, 1.0], [1.0, 1.0]])
    optimizer.apply([tf.IndexedSlices(rows, [1, 1], [3, 2])], [weight])
    np.testing.assert_array_equal(weight, np.ones([3, 2]))
    assert float(optimizer.dynamic_scale) == before / 2


@pytest.mark.slow
@BOTH
def test_xla_compiles_the_step_of_a_users_own_model(kind):
    """On a GPU that is what Keras does by default, with whatever optimizer, loss and metrics."""
    losses, averages = [], []
    for xla in (False, True):
        made = kind(0.01, ema_decay=0.5, global_clipnorm=1.0, weight_decay=0.1)
        optimizer = keras.optimizers.LossScaleOptimizer(made) if kind is Adam else made
        model = tiny.compiled_model(optimizer=optimizer, jit_compile=xla)
        losses.append(model.fit(tiny.dataset(3), verbose=0).history["loss"])
        averages.append([average.numpy() for average in made.averages])
    np.testing.assert_allclose(*losses, rtol=1e-5)
    for plain, compiled in zip(*averages, strict=True):
        np.testing.assert_allclose(compiled, plain, atol=1e-5)


# Weights of other types --------------------------------------------------------------------------


HALF = "bfloat16"


def rounded(values):
    """Returns float64 values rounded to bfloat16, as float64."""
    return values.astype(tf.bfloat16.as_numpy_dtype).astype(np.float64)


def half_precision_case():
    rng = np.random.default_rng(0)
    return rounded(rng.normal(size=(40, 30))), rounded(rng.normal(size=(6, 40, 30)) * 1e-3)


def assert_nearly_all_equal(values, expected):
    """Float32 and float64 may round to the two neighbors of a number, once in a while."""
    assert np.mean(values == expected) > 0.99
    np.testing.assert_allclose(values, expected, rtol=2**-7)


def test_adam_of_bfloat16_weights_computes_in_float32():
    weights, gradients = half_precision_case()
    weights[0], gradients[:, 0] = 1.0, 0.0  # ε = 1e-9 is 0 in float16, and 0 / 0 is no number
    optimizer = Adam(0.01, weight_decay=0.1, amsgrad=True)
    variable = trained(optimizer, weights, gradients, HALF)
    mean, square, largest = np.zeros((3, *weights.shape))
    for step, gradient in enumerate(gradients, start=1):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.98 * square + 0.02 * gradient**2
        largest = np.maximum(largest, square)
        scale = np.sqrt(1 - 0.98**step) / (1 - 0.9**step)
        change = scale * mean / (np.sqrt(largest) + 1e-9)
        weights = rounded(weights * (1 - 0.01 * 0.1) - 0.01 * change)
    assert variable.dtype == HALF
    assert_nearly_all_equal(variable.numpy().astype(np.float64), weights)


@pytest.mark.parametrize("name", ["kernel", "embedding"])
def test_muon_of_half_precision_weights_computes_in_float32(name):
    weights, gradients = half_precision_case()
    half, exact = (Muon(0.01, weight_decay=0.1) for _ in range(2))
    variable = trained(half, weights, gradients, HALF, name)
    single = keras.Variable(weights, dtype="float32", name=name)  # whose test is above
    for gradient in gradients:
        exact.apply([tf.constant(gradient, tf.float32)], [single])
        single.assign(rounded(single.numpy().astype(np.float64)))
    assert_nearly_all_equal(variable.numpy().astype(np.float64), single.numpy())


@pytest.mark.parametrize("decay", [0.9, 0.9999])
def test_the_average_of_half_precision_weights_is_computed_in_float32(decay):
    weights, gradients = half_precision_case()
    optimizer, seen = Adam(0.01, ema_decay=decay), []
    trained(optimizer, weights, gradients, HALF, seen=seen)
    np.testing.assert_allclose(optimizer.averages[0], average(seen, decay), rtol=1e-5, atol=1e-6)


@BOTH
def test_weights_of_several_types_are_trained_together(kind):
    types = ["bfloat16", "float32", "float64"]
    variables = [keras.Variable([1.0], dtype=dtype) for dtype in types]
    optimizer = kind(0.1, global_clipnorm=1.0, weight_decay=0.01, ema_decay=0.9)
    optimizer.apply([tf.constant([2.0], dtype) for dtype in types], variables)
    assert float(optimizer.gradient_norm) == pytest.approx(12**0.5)
    momentums = [float(v[0]) for v in optimizer.variables if v.name.endswith("momentum")]
    np.testing.assert_allclose(momentums, [0.1 / 3**0.5] * 3, rtol=4e-3)  # clipped
    for variable, dtype in zip(variables, types, strict=True):
        assert variable.dtype == dtype
        assert float(variable[0]) == pytest.approx(1 - 0.1 * 0.01 - 0.1, rel=4e-3)


# Averages ----------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Gradients do not exist")
def test_averages_hold_weights_that_steps_leave_out():
    """Of an unused head, and of layers frozen all the time, in the middle, and until late."""
    variables = [keras.Variable([0.5 + i, -1.0]) for i in range(5)]
    optimizer, seen = Adam(0.05, ema_decay=0.9), []
    optimizer.build(variables)
    for variable, first in zip(variables, optimizer.averages, strict=True):
        np.testing.assert_array_equal(variable, first)

    def step(left_out):
        given = [i for i in range(5) if i != left_out]
        gradients = [None if i == 1 else tf.constant([1.0, 2.0]) * (i + 1) for i in given]
        optimizer.apply(gradients, [variables[i] for i in given])

    for left_out in (2, 2, 2, 3, 3, 4, 4, 0, 2):
        step(left_out)
        seen.append([variable.numpy() for variable in variables])
    for found, expected in zip(optimizer.averages, average(seen, 0.9), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_accumulated_gradients_are_averaged_once_an_update():
    optimizer = Adam(0.1, ema_decay=0.5, gradient_accumulation_steps=2)
    variable, seen = keras.Variable([1.0]), []
    for batch in range(6):
        optimizer.apply([tf.constant([1.0 + batch])], [variable])
        if batch % 2:
            seen.append(float(variable[0]))
    assert float(optimizer.averages[0][0]) == pytest.approx(average(seen, 0.5), rel=1e-5)


# As an optimizer of Keras ------------------------------------------------------------------------


@pytest.mark.parametrize(("setting", "value"), [
    ("amsgrad", True),
    ("clipnorm", 0.1),
    ("clipvalue", 0.01),
    ("loss_scale_factor", 128.0),
    ("gradient_accumulation_steps", 2),
    ("weight_decay", 0.1),
])  # fmt: skip
def test_settings_of_keras_act_as_in_keras(setting, value):
    weights = []
    for kind in (Adam, keras.optimizers.Adam):
        settings = {"beta_2": 0.98, "epsilon": 1e-9, setting: value}
        optimizer = kind(0.1, **settings)
        variable = keras.Variable(np.array([[1.0, -2.0], [3.0, 0.5]]), dtype="float32")
        optimizer.build([variable])
        for step in range(4):
            gradient = tf.constant([[0.3, -0.2], [0.1, 0.4]]) * (step + 1.0)
            optimizer.apply([gradient * (optimizer.loss_scale_factor or 1.0)])
        weights.append(variable.numpy())
    np.testing.assert_allclose(weights[0], weights[1], rtol=1e-5)
    assert np.all(weights[0] != [[1.0, -2.0], [3.0, 0.5]])
