"""Runs whose loss or data change on the way: each stage is as if the run were that alone."""

import shutil

import pytest

from pipelines import train
from pipelines.stages import make_stages
from pipelines.workdir import Workdir
from t2t_keras.training.r_drop import RDrop
from tests.end_to_end.binaries import write_folder
from tests.end_to_end.checkpoints import assert_same_checkpoint
from tests.end_to_end.small_config import small_config


@pytest.fixture
def config(tmp_path):
    config = small_config(write_folder(tmp_path))
    config.train.update(steps=6, checkpoint_every=1, keep_checkpoints=6)
    config.train.cooldown_share = 0.0  # else the rate depends on the steps
    return config


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, [(6, False, False)]),
        ({"r_drop": 1.0}, [(6, True, False)]),
        ({"r_drop": 1.0, "r_drop_from": 4}, [(4, False, False), (6, True, False)]),
        (
            {"r_drop": 1.0, "r_drop_from": 4, "both_directions_until": 3},
            [(3, False, True), (4, False, False), (6, True, False)],
        ),
        (
            {"r_drop": 1.0, "r_drop_from": 2, "both_directions_until": 5},
            [(2, False, True), (5, True, True), (6, True, False)],
        ),
    ],
)
def test_stages_end_where_something_changes(config, fields, expected):
    config.train.update(fields)
    stages = make_stages(config)
    assert [(s.end, isinstance(s.loss, RDrop), s.both_directions) for s in stages] == expected


def test_a_stage_takes_up_the_last_one_and_so_does_a_resumed_run(config, tmp_path):
    staged, first, resumed = (Workdir(tmp_path / name) for name in ("staged", "first", "resumed"))
    config.train.update(r_drop=3.0, r_drop_from=2, both_directions_until=2, steps=4)
    train.train(config, staged)
    shutil.copytree(staged.path, resumed.path)
    shutil.rmtree(resumed.checkpoints / "step_00000004")
    train.train(config, resumed)
    assert_same_checkpoint(staged.path, resumed.path, step=4)

    config.train.update(r_drop=0.0, r_drop_from=0, steps=3)  # the first stage, and on without one
    train.train(config, first)
    assert_same_checkpoint(staged.path, first.path, step=2)
    with pytest.raises(AssertionError):
        assert_same_checkpoint(staged.path, first.path, step=3)
