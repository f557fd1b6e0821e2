"""Runs whose loss or data change on the way: each stage is as if the run were that alone."""

import dataclasses

import pytest

from pipelines import train
from pipelines.configs import multi30k_en_de, wsj_parsing_small
from pipelines.stages import make_stages
from pipelines.workdir import Workdir
from t2t_keras.models.config import TransformerConfig
from t2t_keras.training.r_drop import RDrop
from tests.end_to_end.binaries import write_folder
from tests.end_to_end.checkpoints import assert_same_checkpoint


@pytest.fixture
def config(tmp_path):
    config = multi30k_en_de.get_config()
    sizes = TransformerConfig.tiny(
        300, encoder_layers=1, decoder_layers=1, model_dim=16, feed_forward_dim=32, heads=2
    )
    config.model.update(dataclasses.asdict(sizes))
    config.data.update(folder=str(write_folder(tmp_path)), tokens_per_batch=200, max_length=40)
    config.train.update(
        steps=6,
        cooldown_share=0.0,  # else the rate depends on the steps
        validate_every=100,
        validation_sentences=0,
        checkpoint_every=1,
        average_last=0,
        micro_batches=1,
        parts_at_once=1,
        mixed_precision=False,
        deterministic=False,
        r_drop=0.0,
        r_drop_from=0,
        both_directions_until=0,
    )
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


def test_only_a_translation_has_two_directions():
    config = wsj_parsing_small.get_config()
    config.train.both_directions_until = 1
    with pytest.raises(ValueError, match="only translations have two directions"):
        make_stages(config)


def test_a_run_resumed_within_a_stage_ends_as_an_unbroken_one(config, tmp_path):
    runs = Workdir(tmp_path / "unbroken"), Workdir(tmp_path / "broken")
    config.train.update(r_drop=3.0, r_drop_from=2, both_directions_until=1, steps=4)
    train.train(config, runs[0])
    for steps in (3, 4):
        config.train.steps = steps
        train.train(config, runs[1])
    assert_same_checkpoint(runs[0].path, runs[1].path, step=4)
