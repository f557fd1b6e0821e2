"""Runs with the settings for accelerators."""

import csv

import absl.flags
import numpy as np
import pytest
from ml_collections import config_flags

from pipelines import training
from pipelines.configs import wmt14_en_de_base
from pipelines.fields import check_fields, make_config
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras import ops
from t2t_keras.data import LengthBuckets, Packing
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import checkpoint_paths
from tests.end_to_end.small_config import small_config


def test_batches_fit_replicas_and_xla():
    config = wmt14_en_de_base.get_config()
    config.data.update(tokens_per_batch=0, tokens_per_replica=150)
    assert make_task(config).make_batcher(replicas=4).tokens_per_batch == 600
    config.data.update(tokens_per_batch=25_000, tokens_per_replica=0)
    config.train.update(xla=True, micro_batches=3)
    config.data.batching = "buckets"
    batcher = make_task(config).make_batcher(replicas=4)
    assert batcher.tokens_per_batch == 25_000
    assert 8 <= len(batcher.bucket_lengths) <= 16 and batcher.batch_multiple == 12
    config.data.batching = "packed"
    assert make_task(config).make_batcher(replicas=4).batch_multiple == 12


@pytest.mark.parametrize(
    ("xla", "tokens", "kind"),
    [
        (True, 12 * 256, Packing),
        (True, 12 * 256 - 1, LengthBuckets),
        (False, 25_000, LengthBuckets),
    ],
)
def test_batches_for_xla_are_packed_if_there_is_room_for_a_row_each(xla, tokens, kind):
    config = wmt14_en_de_base.get_config()  # rows of 256 tokens
    config.data.tokens_per_batch = tokens
    config.train.update(xla=xla, micro_batches=3)
    assert isinstance(make_task(config).make_batcher(replicas=4), kind)


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
        assert isinstance(make_task(values.c).make_batcher(replicas=1), Packing) == right
        values.c.data.batching = "buckets"
        task = make_task(values.c)
        assert bool(task.make_batcher(replicas=1).bucket_lengths) == right
        task.lengths = np.array([[3, 4], [9, 8]])
        shapes = ((3, 4), (9, 8), (256, 256)) if right else None
        assert task.make_batcher(replicas=1).bucket_lengths == shapes
        values.c.data.batching = "auto"
    values.c.train.xla = "on"
    with pytest.raises(InputError, match="'on': give auto, True or False"):
        check_fields(values.c)


@pytest.mark.slow
def test_a_run_in_float16_resumes_and_learns(corpus_folder, tmp_path):
    config = small_config(corpus_folder)
    config.train.update(
        learning_rate_scale=2.0, warmup_steps=5, mixed_precision="float16", ema_decay=0.9
    )
    for config.train.steps in (10, 20):
        training.train(config, Workdir(tmp_path))
    checkpoints = checkpoint_paths(tmp_path / "checkpoints")
    assert checkpoints[-1].name == "step_00000020"
    assert list((tmp_path / "checkpoints").glob("ema_*"))
    rows = list(csv.DictReader((tmp_path / "metrics.csv").open()))
    rows = [row for row in rows if row["loss"]]
    assert [int(row["step"]) for row in rows] == [*range(2, 21, 2)]
    assert float(rows[-1]["gradient_norm"]) > 0 and float(rows[-1]["loss_scale"]) >= 1
    assert float(rows[-1]["loss"]) < float(rows[0]["loss"]) - 0.5
