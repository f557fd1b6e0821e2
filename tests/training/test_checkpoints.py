"""CheckpointManager bring back a run exactly, are whole or absent, and average to the mean."""

import resource
import signal
import time
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.training import checkpoint_files
from t2t_keras.training.callbacks import CheckpointCallback
from t2t_keras.training.checkpoint_files import (
    CheckpointReader,
    DamagedCheckpointError,
    average_path,
    ema_path,
    newest_weights,
    write_checkpoint,
)
from t2t_keras.training.checkpoints import (
    CheckpointManager,
    average_checkpoints,
    model_variables,
    optimizer_variables,
    restore_weights,
    write_ema,
)
from t2t_keras.training.optimizers import Adam, Muon
from t2t_keras.training.schedules import InverseSquareRoot
from tests.training import tiny

DATA, INDEX = "variables.data-00000-of-00001", "variables.index"


def all_values(model):
    named = model_variables(model) | optimizer_variables(model)
    return {name: variable.numpy() for name, variable in named.items()}


def assert_equal(first, second):
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_array_equal(first[name], second[name], err_msg=name)


def assert_mean(path, checkpoints, weights=None, **tolerance):
    """Asserts that the weights at a path are the mean of those of a manager's checkpoints."""
    other = tiny.TinyModel()  # without optimizer, without dropout's random states
    restore_weights(other, path)
    readers = [CheckpointReader(one) for one in checkpoints.paths()]
    for name, variable in model_variables(other).items():
        arrays = [reader.read(name).astype(np.float64) for reader in readers]
        mean = np.average(arrays, axis=0, weights=weights).astype(np.float32)
        np.testing.assert_allclose(variable, mean, **({"rtol": 0} | tolerance))


@pytest.mark.parametrize("kind", [Adam, Muon])
def test_a_resumed_run_ends_where_an_unbroken_one_ends(tmp_path, kind):
    def new(seed=0):
        optimizer = kind(0.01, ema_decay=0.7, global_clipnorm=1.0)
        return tiny.eager_model(seed, optimizer, dropout=0.5)

    unbroken, first = tiny.fit(new(), tiny.dataset(6), 6), new()
    checkpoints = CheckpointManager(tmp_path, first, keep_last=2)
    tiny.fit(first, tiny.dataset(6), 4, [CheckpointCallback(checkpoints, minutes=1e-9)])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_00000003", "step_00000004"]
    (tmp_path / ".step_00000005.unfinished").mkdir()  # of a kill
    second = new(seed=1)
    done = CheckpointManager(tmp_path, second).restore_latest()
    assert done == 4
    assert_equal(all_values(second), all_values(first))
    assert checkpoints.steps() == [3, 4] and len(list(tmp_path.iterdir())) == 2
    tiny.fit(second, tiny.dataset(6).skip(done), 2)
    assert_equal(all_values(second), all_values(unbroken))
    second.embedding.embeddings.assign(np.full([tiny.VOCAB_SIZE, 8], np.nan))
    with pytest.raises(InputError, match=r"not finite.*step_00000004"):
        CheckpointManager(tmp_path, second).save()


def test_every_variable_has_one_name_that_tells_its_place():
    model = tiny.fit(tiny.eager_model(dropout=0.5), tiny.dataset(1), 1)
    names = model_variables(model)
    assert {id(v) for v in names.values()} == {id(v) for v in model.variables}
    assert {id(v) for v in optimizer_variables(model).values()} == {
        id(v) for v in model.optimizer.variables
    }
    assert "model/embedding/_embeddings" in names
    assert sum(name.startswith("random/hidden/") for name in names) == 2
    assert list(model_variables(tiny.TinyModel(dropout=0.5))) == list(names)


def test_checkpoints_of_version_0_1_have_these_names(tmp_path):
    """What an existing workdir holds must be found in it under the same names."""
    for optimizer, states in [
        (Adam(0.01, ema_decay=0.9), ["_momentums", "_velocities", "averages"]),
        (Muon(0.01), ["momentums"]),
    ]:
        model = tiny.eager_model(optimizer=optimizer)
        shapes = CheckpointReader(CheckpointManager(tmp_path, model).save()).shapes
        layers = "embedding/_embeddings", "output_layer/_kernel", "output_layer/bias"
        names = {f"model/{name}" for name in layers}
        names |= {f"optimizer/{state}/{i}" for state in states for i in range(7)}
        names |= {"optimizer/_iterations", "optimizer/_learning_rate"}
        if states == ["momentums"]:
            names |= {f"optimizer/adam_velocities/{i}" for i in (0, 2, 4, 6)}
        assert {name for name in shapes if "/hidden/" not in name} == names


def test_a_kill_between_two_renames_loses_no_average(tmp_path):
    _, checkpoints = saved_twice(tmp_path)
    path = average_checkpoints(checkpoints.paths(), average_path(tmp_path, 2))
    expected = CheckpointReader(path).read("model/embedding/_embeddings")

    with (
        mock.patch.object(checkpoint_files, "replace", side_effect=KeyboardInterrupt),  # a kill
        pytest.raises(KeyboardInterrupt),
    ):
        average_checkpoints(checkpoints.paths()[:1], path)
    assert not path.exists()
    (tmp_path / ".average_00000001.unfinished").mkdir()  # of another kill
    checkpoint_files.remove_unfinished(tmp_path)
    found = CheckpointReader(path).read("model/embedding/_embeddings")
    np.testing.assert_array_equal(found, expected)
    names = ["average_00000002", "step_00000001", "step_00000002"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == names


def model_with(optimizer, **settings):
    """A model with dropout, and an optimizer with the settings given."""
    optimizer = optimizer(InverseSquareRoot(8, warmup_steps=20), global_clipnorm=1.0, **settings)
    return tiny.eager_model(optimizer=optimizer, dropout=0.5)


@pytest.mark.parametrize("optimizer", [Adam, pytest.param(Muon, marks=pytest.mark.slow)])
def test_a_moving_average_is_the_mean_of_all_updates_and_changes_none(tmp_path, optimizer):
    model = model_with(optimizer, ema_decay=0.7)
    checkpoints = CheckpointManager(tmp_path, model)
    tiny.fit(model, tiny.dataset(5), 5, [CheckpointCallback(checkpoints, steps=1)])
    path, weights = write_ema(model, ema_path(tmp_path, 5)), 0.7 ** np.arange(4, -1, -1)
    assert_mean(path, checkpoints, weights, rtol=1e-4, atol=1e-6)
    assert newest_weights(tmp_path).name == "ema_00000005"
    without = tiny.fit(model_with(optimizer), tiny.dataset(5), 5)
    for a, b in zip(model.get_weights(), without.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_an_average_is_the_mean_of_the_arrays(tmp_path):
    model = tiny.eager_model(dropout=0.5)
    checkpoints = CheckpointManager(tmp_path, model)
    tiny.fit(model, tiny.dataset(3), 3, [CheckpointCallback(checkpoints, steps=1)])
    path = average_checkpoints(checkpoints.paths(), average_path(tmp_path, 3))
    assert_mean(path, checkpoints)
    assert newest_weights(tmp_path) == path
    tiny.fit(model, tiny.dataset(1), 1, [CheckpointCallback(checkpoints)])
    assert newest_weights(tmp_path).name == "step_00000004"
    for number in (1, 4):  # an id or a count has no mean: the newest counts
        write_checkpoint(tmp_path / f"ids_{number}", {"model/ids": tf.constant([number])})
    path = average_checkpoints([tmp_path / "ids_1", tmp_path / "ids_4"], tmp_path / "mean")
    assert CheckpointReader(path).read("model/ids") == [4]


@pytest.mark.parametrize("how", ["cut", "flipped", "index cut", "empty"])
def test_a_damaged_newest_checkpoint_is_named_and_the_one_before_used(tmp_path, how, caplog):
    model, checkpoints = saved_twice(tmp_path)
    newest = checkpoints.paths()[-1]
    data, index = newest / DATA, newest / INDEX
    content = bytearray(data.read_bytes())
    if how == "cut":
        data.write_bytes(content[:10])
    elif how == "flipped":
        content[10] ^= 1
        data.write_bytes(content)
    elif how == "index cut":
        index.write_bytes(index.read_bytes()[:-9])
    else:
        data.unlink(), index.unlink()
    with pytest.raises(InputError, match=r"step_00000002 is damaged"):
        restore_weights(model, newest)
    for times in (1, 2):  # it may be damaged again
        assert checkpoints.restore_latest() == 1
        assert int(model.optimizer.iterations) == 1
        assert checkpoints.steps() == [1]
        assert len(list(tmp_path.glob("step_00000002.damaged*"))) == times
        tiny.fit(model, tiny.dataset(1), 1, [CheckpointCallback(checkpoints)])
        index.unlink()


def test_averages_beyond_the_restored_step_are_set_aside(tmp_path):
    _, checkpoints = saved_twice(tmp_path)
    for step in (1, 2):
        average_checkpoints(checkpoints.paths()[:step], average_path(tmp_path, step))
    assert checkpoints.restore_latest() == 2
    assert newest_weights(tmp_path) == average_path(tmp_path, 2)
    checkpoint_files.remove_checkpoint(checkpoints.paths()[-1])
    assert checkpoints.restore_latest() == 1
    assert newest_weights(tmp_path) == average_path(tmp_path, 1)
    assert [path.name for path in tmp_path.glob("*.superseded")] == ["average_00000002.superseded"]


@pytest.fixture
def waits(monkeypatch):
    """The seconds that were waited between attempts, instead of waiting."""
    seconds = []
    monkeypatch.setattr(time, "sleep", seconds.append)
    return seconds


STALE = tf.errors.UnavailableError(None, None, "Stale file handle")


def fail_to_open(monkeypatch, *effects):
    """Makes attempts to open a checkpoint fail as a network file system does, or by `effects`."""
    opening = mock.Mock(wraps=tf.train.load_checkpoint, side_effect=effects or STALE)
    monkeypatch.setattr(tf.train, "load_checkpoint", opening)


def saved_twice(folder):
    """Returns a model and its checkpoints of the steps 1 and 2."""
    model = tiny.eager_model()
    checkpoints = CheckpointManager(folder, model)
    tiny.fit(model, tiny.dataset(2), 2, [CheckpointCallback(checkpoints, steps=1)])
    return model, checkpoints


@pytest.mark.parametrize("how", ["cannot be opened", "is no file", "no memory"])
def test_a_checkpoint_that_cannot_be_read_is_not_damaged(tmp_path, monkeypatch, waits, how):
    model, checkpoints = saved_twice(tmp_path)
    with monkeypatch.context() as patch:  # a read that fails for a moment is repeated
        fail_to_open(patch, STALE, STALE, *[mock.DEFAULT] * 9)
        assert checkpoints.restore_latest() == 2 and len(waits) == 2
    waits.clear()
    if how == "cannot be opened":
        fail_to_open(monkeypatch)
    elif how == "is no file":
        data = checkpoints.paths()[-1] / DATA
        data.unlink(), data.mkdir()
    else:
        error = tf.errors.ResourceExhaustedError(None, None, "out of memory")
        monkeypatch.setattr(tf.raw_ops, "RestoreV2", mock.Mock(side_effect=error))
    before = [variable.numpy() for variable in model.variables]
    message = r"step_00000002 could not be read in \d attempts \(.*\); nothing was changed: check"
    with pytest.raises(InputError, match=message):
        checkpoints.restore_latest()
    assert checkpoints.steps() == [1, 2]
    assert waits == sorted(waits) and len(waits) > 1
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value)


def test_any_flipped_byte_of_an_index_is_damage_or_harmless(tmp_path, waits):
    _, checkpoints = saved_twice(tmp_path)
    path = checkpoints.paths()[-1]
    index, damaged = path / INDEX, 0
    content = index.read_bytes()
    expected = {name: CheckpointReader(path).read(name) for name in CheckpointReader(path).shapes}
    for place in range(len(content)):
        index.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        try:
            reader = CheckpointReader(path)
            values = {name: reader.read(name) for name in reader.shapes}
        except DamagedCheckpointError:
            damaged += 1
        else:
            assert_equal(values, expected)
    assert damaged > len(content) / 2
    assert not waits


def test_a_run_whose_checkpoints_are_all_damaged_never_starts_over_by_itself(tmp_path):
    _, checkpoints = saved_twice(tmp_path)
    for path in checkpoints.paths():
        data = path / DATA
        data.write_bytes(data.read_bytes()[:-4])  # so that other tensors can be read
    model = tiny.eager_model(seed=1)
    fresh = [variable.numpy() for variable in model.variables]
    for _ in range(2):
        with pytest.raises(InputError, match=r"All checkpoints in .* are damaged.*start_over"):
            CheckpointManager(tmp_path, model).restore_latest()
    assert CheckpointManager(tmp_path, model).restore_latest(start_over=True) == 0
    for variable, value in zip(model.variables, fresh, strict=True):
        np.testing.assert_array_equal(variable, value)
    names = ["step_00000001.damaged", "step_00000002.damaged"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    with pytest.raises(InputError, match=r"All checkpoints in .* are damaged"):
        CheckpointManager(tmp_path, model).restore_latest()  # killed before its first checkpoint
    CheckpointManager(tmp_path, model).save()
    assert CheckpointManager(tmp_path, model).restore_latest() == 0


@pytest.mark.parametrize(
    "name", ["[x]", "a\\b", "a*b", "a?b", "spaces and ünïcödé", "\udcff", "[a-c]\\*?{x,y}"]
)
def test_a_checkpoint_is_read_whatever_characters_its_path_has(tmp_path, name):
    """Also beside folders that the path would mean if it were a pattern."""
    for other in (name, "x", "ab", "axb"):
        path = tmp_path / other / "step_00000001"
        write_checkpoint(path, {"name": tf.constant(other.encode(errors="replace"))})
    reader = CheckpointReader(tmp_path / name / "step_00000001")
    assert reader.shapes == {"name": []}
    assert reader.read("name") == name.encode(errors="replace")


def test_another_model_is_refused_by_name_and_shapes(tmp_path):
    CheckpointManager(tmp_path, tiny.eager_model()).save()
    wider = tiny.eager_model(width=9)
    message = r"model/embedding/_embeddings as \[11, 8\] and the model wants \[11, 9\]"
    with pytest.raises(InputError, match=message):
        CheckpointManager(tmp_path, wider).restore_latest()
    with pytest.raises(InputError, match=r"holds no model/hidden/2/"):
        restore_weights(tiny.TinyModel(layers=3), newest_weights(tmp_path))
    with pytest.raises(InputError, match=r"model/hidden/1/.*the model lacks"):
        restore_weights(tiny.TinyModel(layers=1), newest_weights(tmp_path))


def test_a_full_disk_leaves_the_last_good_checkpoint_and_says_so(tmp_path):
    model = tiny.eager_model()
    checkpoints = CheckpointManager(tmp_path, model, keep_last=1)
    checkpoints.save()
    tiny.fit(model, tiny.dataset(1), 1)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, limits[1]))  # as if no more fitted
    try:
        with pytest.raises(
            InputError,
            match=r"step_00000001 could not be .*step_00000000: correct this, .* making room",
        ):
            checkpoints.save()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.name for path in tmp_path.iterdir()] == ["step_00000000"]
    checkpoints.save()
    assert checkpoints.steps() == [1]


def test_nothing_there(tmp_path):
    model = tiny.eager_model()
    assert CheckpointManager(tmp_path / "none", model).restore_latest() == 0
    with pytest.raises(InputError, match="holds no checkpoint"):
        newest_weights(tmp_path)
    with pytest.raises(InputError, match="no checkpoint"):
        restore_weights(model, tmp_path / "step_00000001")
    with pytest.raises(InputError, match="no checkpoints to average"):
        average_checkpoints([], tmp_path / "average_00000001")
    with pytest.raises(InputError, match="no weights yet"):
        unbuilt = keras.Sequential([keras.layers.Dense(1)])
        unbuilt.compile("adam")
        CheckpointManager(tmp_path, unbuilt).save()
