"""Runs whose loss or data change on the way: each stage is as if the run were that alone."""

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
    config.train.update(steps=6, checkpoint_every=1)
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


def test_a_run_resumed_within_a_stage_ends_as_an_unbroken_one(config, tmp_path):
    runs = Workdir(tmp_path / "unbroken"), Workdir(tmp_path / "broken")
    config.train.update(r_drop=3.0, r_drop_from=2, both_directions_until=2, steps=4)
    train.train(config, runs[0])
    for steps in (3, 4):
        config.train.steps = steps
        train.train(config, runs[1])
    assert_same_checkpoint(runs[0].path, runs[1].path, step=4)
