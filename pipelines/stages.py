"""What a run does one after the other: stages between which loss or data change."""

from typing import NamedTuple

import keras

from pipelines.tasks import make_task
from pipelines.tasks.loss import make_loss
from t2t_keras.errors import InputError


class Stage(NamedTuple):
    """One stage of a run.

    Attributes:
        end: the step at which it is over.
        loss: what is minimized.
        both_directions: whether pairs are read in both directions.
    """

    end: int
    loss: keras.losses.Loss
    both_directions: bool


def make_stages(config):
    """Returns the stages of a config's run, in their order; there is one at least.

    Raises:
        InputError: if a stage does not begin within the run, or what it changes is not there.
    """
    train = config.train
    _check(make_task(config), train)
    ends = {train.steps} | {end for end in (train.r_drop_from, train.both_directions_until) if end}
    stages, begin = [], 0
    for end in sorted(ends):
        r_drop = train.r_drop if begin >= train.r_drop_from else 0.0
        loss = make_loss(train.label_smoothing, r_drop)
        stages.append(Stage(end, loss, both_directions=begin < train.both_directions_until))
        begin = end
    return stages


def _check(task, train):
    for field in ("r_drop_from", "both_directions_until"):
        if not 0 <= train[field] < train.steps:
            raise InputError(
                f"train.{field} is {train[field]}: give a step before train.steps, {train.steps}."
            )
    if train.r_drop_from and not train.r_drop:
        raise InputError(
            f"train.r_drop_from is {train.r_drop_from}, but train.r_drop is 0: give R-Drop a "
            "weight, or leave the step at 0."
        )
    if train.both_directions_until and not task.reversible:
        raise InputError(
            f"train.both_directions_until is {train.both_directions_until}, but only translations "
            "have two directions: leave it at 0."
        )
