"""What a command sets for its whole process: threads, GPUs, number types, determinism."""

import os
import subprocess
import sys

import keras
import pytest
import tensorflow as tf

from pipelines import devices, experiment
from pipelines.configs import multi30k_en_de


@pytest.mark.parametrize(("wanted", "cores", "gpus", "batches", "threads"), [
    (1, 6, 0, 1, []), (2, 6, 0, 2, [3]), (4, 6, 0, 4, [1]), (9, 6, 0, 9, [1]),
    (None, 6, 0, 6, [1]), (None, 40, 0, 8, [5]), (None, 6, 1, 1, []),
])  # fmt: skip
def test_parallel_batches_share_the_cores(wanted, cores, gpus, batches, threads, monkeypatch):
    made = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind] * gpus)
    monkeypatch.setattr(tf.config.threading, "set_intra_op_parallelism_threads", made.append)
    assert (devices.limit_threads_per_batch(wanted), made) == (batches, threads)


@pytest.mark.parametrize(("end", "shown"), [
    ("", ""), ("raise ValueError", "notice"), ("os.abort()", "notice"), ("os._exit(0)", "notice")
])  # fmt: skip
def test_messages_of_an_import_are_shown_only_if_it_fails(end, shown):
    code = f"""import os, pipelines.library
with pipelines.library._held_back():
    os.write(2, b'notice')
    {end}
os.write(2, b' later')"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.startswith(shown or " later")


# GPUs ---------------------------------------------------------------------------------------------


@pytest.fixture
def gpus(monkeypatch):
    """The settings that were made, on a machine with a GPU."""
    made, config = [], tf.config.experimental
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: ["GPU:1"])
    monkeypatch.setattr(
        tf.config, "set_visible_devices", lambda devices, kind: made.append((devices, kind))
    )
    monkeypatch.setattr(config, "set_memory_growth", lambda device, on: made.append((device, on)))
    monkeypatch.setattr(config, "get_device_details", lambda device: {"device_name": f"a {device}"})
    return made


def test_a_gpu_that_is_used_is_named_and_gives_memory_as_it_is_needed(gpus, caplog):
    with caplog.at_level("INFO", logger="absl"):
        devices.choose_devices()
    assert gpus == [("GPU:1", True)]
    assert "Devices: a GPU:1" in caplog.text


@pytest.mark.parametrize(
    ("present", "hidden", "warned"), [(True, None, True), (True, "-1", False), (False, None, False)]
)
def test_a_gpu_that_tensorflow_does_not_see_is_warned_of(
    present, hidden, warned, monkeypatch, tmp_path, caplog
):
    monkeypatch.setattr(
        devices, "_NVIDIA", [tmp_path / "none", tmp_path if present else tmp_path / "x"]
    )
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if hidden:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    with caplog.at_level("INFO", logger="absl"):
        devices.choose_devices()
    assert "Devices: CPU, " in caplog.text
    assert ("pip install 't2t_keras[gpu]'" in caplog.text) == warned


def test_numerics_fields_set_the_process(monkeypatch):
    config = multi30k_en_de.get_config()
    calls, numerics = [], tf.config.experimental
    monkeypatch.setattr(numerics, "enable_op_determinism", lambda: calls.append("deterministic"))
    config.train.update(deterministic=True, mixed_precision="bfloat16", tf32=False)
    try:
        experiment.set_numerics(config)
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
        assert calls == ["deterministic"]
        assert not numerics.tensor_float_32_execution_enabled()
        config.train.update(deterministic=False, mixed_precision="float16", tf32=True)
        experiment.set_numerics(config)
        assert keras.config.dtype_policy().name == "mixed_float16"
        assert numerics.tensor_float_32_execution_enabled()
    finally:
        keras.config.set_dtype_policy("float32")
