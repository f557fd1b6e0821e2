"""Settings that cannot work are refused before anything is done."""

import pytest

from pipelines import experiment
from pipelines.configs import wsj_parsing_small
from pipelines.stages import make_stages
from tests.end_to_end.small_config import small_config


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.heads": 5}, "heads is 5"),
        ({"data.batching": "piles"}, "data.batching is 'piles'"),
        ({"data.tokenizer": "wordpiece", "data.bpe_dropout": 0.1}, "a wordpiece vocabulary"),
        ({"train.average_last": 3}, "train.keep_checkpoints is 2, fewer than"),
        ({"data.max_length": 61}, "data.max_length is 61, more than model.max_positions 60"),
        ({"train.warmup_steps": 0}, "warmup_steps is 0"),
        ({"train.label_smoothing": 1.5}, "smoothing is 1.5"),
        ({"train.ema_decay": 1.0}, "ema_decay is 1.0"),
        ({"train.optimizer": "sgd"}, "optimizer is .sgd.: give one of .adam., .muon."),
        ({"train.r_drop": -1.0}, "R-Drop is -1.0"),
        ({"train.r_drop": 1.0, "train.r_drop_from": 4}, "r_drop_from is 4: give a step before"),
        ({"train.r_drop_from": 2}, "r_drop_from is 2, but train.r_drop is 0"),
        ({"train.both_directions_until": -1}, "both_directions_until is -1: give a step"),
        ({"train.steps": 0}, "train.steps is 0"),
        ({"decode.beam_size": 0}, "beam_size is 0"),
    ],
)
def test_settings_that_cannot_work_are_refused_before_anything_is_done(changes, message):
    config = small_config("nowhere")
    for name, value in changes.items():
        part, field = name.split(".")
        config[part][field] = value
    with pytest.raises(ValueError, match=message):
        experiment.check(config)


def test_only_a_translation_has_two_directions():
    config = wsj_parsing_small.get_config()
    config.train.both_directions_until = 1
    with pytest.raises(ValueError, match="only translations have two directions"):
        make_stages(config)
