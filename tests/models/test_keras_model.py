"""What Keras does with any model: export, summary, TensorFlow's checkpoints, pickling, refusals."""

import functools
import pickle

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.errors import InputError
from t2t_keras.layers.attention import SeparateProjections

CONFIG = t2t.TransformerConfig(11, 1, 1, 8, 12, num_heads=2)
IDS = np.random.default_rng(0).integers(4, 11, (4, 6))
INPUTS = {"source_ids": IDS[:, :5], "target_ids": IDS}


@functools.cache
def trained(kind="transformer", seed=0):
    """A model, which no test changes, and inputs."""
    keras.utils.set_random_seed(seed)
    if kind == "transformer":
        model = t2t.Transformer(CONFIG)
        model.compile(t2t.adam(8, 10), t2t.LabelSmoothedCrossEntropy(0.1))
        model.fit(INPUTS, IDS, verbose=0)
        return model, INPUTS
    model = t2t.TransformerClassifier(CONFIG, 3)
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(IDS, IDS[:, 0] % 3, verbose=0)
    return model, IDS


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["transformer", "classifier"])
def test_export_after_fit_takes_batches_of_any_shape(kind, tmp_path):
    model, inputs = trained(kind)
    model.export(tmp_path / "export", verbose=False)
    loaded = tf.saved_model.load(tmp_path / "export")
    for rows in (1, 3):
        part = keras.tree.map_structure(lambda x, n=rows: x[:n, :n].astype("int32"), inputs)
        expected = model.predict(part, verbose=0)
        np.testing.assert_allclose(loaded.serve(part), expected, rtol=1e-4, atol=1e-6)
    part = part if isinstance(part, dict) else {"source_ids": tf.constant(part)}
    (found,) = loaded.signatures["serving_default"](**part).values()
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)
    lines = []
    model.summary(print_fn=lambda text, **_: lines.append(text))
    assert "(None, None, 8)" in "".join(lines) and "?" not in "".join(lines)


@pytest.mark.slow
def test_a_checkpoint_of_tensorflow_holds_model_and_optimizer(tmp_path):
    model, inputs = trained()
    path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(tmp_path / "ckpt")
    other, _ = trained(seed=1)
    status = tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    status.assert_existing_objects_matched()
    np.testing.assert_array_equal(
        other.predict(inputs, verbose=0), model.predict(inputs, verbose=0)
    )
    for a, b in zip(other.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a, b, err_msg=a.path)


def test_a_checkpoint_of_tensorflow_has_the_projections(tmp_path):
    layer = SeparateProjections([3, 4])
    layer.build((None, 5))
    path = tf.train.Checkpoint(layer=layer).save(tmp_path / "ckpt")
    shapes = [shape for _, shape in tf.train.list_variables(path)]
    assert [5, 3] in shapes and [5, 4] in shapes


@pytest.mark.slow
def test_pickled_models_predict_and_train_on():
    model, inputs = trained()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(
        again.predict(inputs, verbose=0), model.predict(inputs, verbose=0)
    )
    again.fit(inputs, IDS, verbose=0)


def test_what_a_model_does_not_support_is_refused(tmp_path):
    model, classifier = t2t.Transformer(CONFIG), t2t.TransformerClassifier(CONFIG, 3)
    for dtype in ("uint8", "int16", "uint32", "int64"):
        ids = {name: ids.astype(dtype) for name, ids in INPUTS.items()}
        np.testing.assert_array_equal(model(ids), model(INPUTS))
    floats = IDS.astype("float64")
    for call, message in (
        (lambda: model(INPUTS | {"source_ids": floats}), "ids are float32: give integers"),
        (lambda: classifier(floats), "ids are float32: give integers"),
        (lambda: model.save(tmp_path / "model.h5"), r"model\.h5: save the model as \.keras"),
        (lambda: model.quantize("int8"), r"^quantize\('int8'\) is not supported: "),
    ):
        with pytest.raises(InputError, match=message):
            call()
    assert not list(tmp_path.iterdir())
