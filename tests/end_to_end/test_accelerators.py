"""Runs with the settings for accelerators end as the plain run does, or learn as it does."""

import csv

import absl.flags
import numpy as np
import pytest
from ml_collections import config_flags

from pipelines import train
from pipelines.configs import wmt14_en_de_base
from pipelines.fields import check_fields, make_config
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import CheckpointReader, checkpoint_paths
from tests.end_to_end.small_config import small_config


def trained(path, folder, **fields):
    """Trains; returns the rows of the log and the last checkpoint."""
    config = small_config(folder)
    config.model.dropout = 0.0
    config.data.batching = "packed"  # the same batches with XLA and without
    config.train.update(fields)
    train.train(config, Workdir(path))
    with (path / "metrics.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["loss"]]
    return rows, CheckpointReader(checkpoint_paths(path / "checkpoints", "step")[-1])


def test_batches_fit_replicas_and_xla():
    config = wmt14_en_de_base.get_config()
    config.data.update(tokens_per_batch=0, tokens_per_replica=150)
    assert make_task(config).make_batcher(replicas=4).tokens_per_batch == 600
    config.data.update(tokens_per_batch=25_000, tokens_per_replica=0)
    config.train.update(xla=True, micro_batches=3)
    batcher = make_task(config).make_batcher(replicas=4)
    assert batcher.tokens_per_batch == 25_000
    assert 8 <= len(batcher.bucket_lengths) <= 16 and batcher.batch_multiple == 12
    config.data.batching = "packed"
    assert make_task(config).make_batcher(replicas=4).batch_multiple == 12


@pytest.mark.parametrize(
    ("flags", "on_a_gpu", "on_a_cpu"),
    [([], True, False), (["--c.train.xla=auto"], True, False), (["--c.train.xla"], True, True)]
    + [([flag], False, False) for flag in ("--c.train.xla=false", "--noc.train.xla")],
)
def test_xla_is_the_default_on_a_gpu(flags, on_a_gpu, on_a_cpu, monkeypatch):
    values = absl.flags.FlagValues()
    config_flags.DEFINE_config_dict(
        "c", make_config(), flag_values=values, sys_argv=["train", *flags]
    )
    values(["train", *flags])
    for device, right in (("gpu", on_a_gpu), ("cpu", on_a_cpu)):
        monkeypatch.setattr(ops, "visible_device", lambda name=device: name)
        check_fields(values.c)
        task = make_task(values.c)
        assert bool(task.make_batcher(replicas=1).bucket_lengths) == right
        task.lengths = np.array([[3, 4], [9, 8]])
        shapes = ((3, 4), (9, 8), (256, 256)) if right else None
        assert task.make_batcher(replicas=1).bucket_lengths == shapes
    values.c.train.xla = "on"
    with pytest.raises(InputError, match="'on': give auto, True or False"):
        check_fields(values.c)


@pytest.mark.slow
def test_a_run_of_xla_with_several_steps_together_is_the_plain_run(corpus_folder, tmp_path):
    rows, plain = trained(tmp_path / "plain", corpus_folder)
    compiled_rows, compiled = trained(
        tmp_path / "xla", corpus_folder, xla=True, steps_per_execution=2
    )
    for name in plain.shapes:
        if name.startswith("model/"):
            np.testing.assert_allclose(plain.read(name), compiled.read(name), atol=1e-5)
    assert [row["step"] for row in compiled_rows] == [row["step"] for row in rows] == ["2", "4"]
    for row, compiled_row in zip(rows, compiled_rows, strict=True):
        assert float(row["loss"]) == pytest.approx(float(compiled_row["loss"]), rel=1e-4)


@pytest.mark.slow
def test_a_run_in_float16_resumes_and_learns_as_the_plain_run(corpus_folder, tmp_path):
    settings = {"learning_rate_scale": 2.0, "warmup_steps": 5}
    plain, _ = trained(tmp_path / "plain", corpus_folder, steps=20, **settings)
    settings |= {"mixed_precision": "float16", "ema_decay": 0.9}
    for steps in (10, 20):
        rows, reader = trained(tmp_path / "half", corpus_folder, steps=steps, **settings)
    assert reader.path.name == "step_00000020"
    assert [int(row["step"]) for row in rows] == [*range(2, 21, 2)]
    assert list((tmp_path / "half" / "checkpoints").glob("ema_*"))
    assert float(rows[-1]["gradient_norm"]) > 0 and float(rows[-1]["loss_scale"]) >= 1
    assert float(rows[-1]["loss"]) == pytest.approx(float(plain[-1]["loss"]), rel=0.05)
