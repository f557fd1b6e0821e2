"""Plateau and overfitting are said after enough validations, and stop nothing."""

import logging

import pytest

from t2t_keras.training.metrics_log import MetricsLog
from t2t_keras.training.validation import Validate
from t2t_keras.training.watching import Watch
from tests.training import tiny


def messages(log, watch, rows):
    found = []
    for step, row in enumerate(rows, start=1):
        log.write(step, row)
        found.append(watch.message())
    return found


def test_a_plateau_is_said_each_time_the_patience_is_over(tmp_path):
    log = MetricsLog(tmp_path)
    scores = [20.0, 30.0, 29.0, 30.0, 28.0, 27.0, 29.5, 31.0, 30.5]
    found = messages(log, Watch(log, "bleu", "max", patience=2), [{"bleu": s} for s in scores])
    assert [step for step, message in enumerate(found, start=1) if message] == [4, 6]
    assert found[5] == (
        "Plateau: bleu has not been better for 4 validations than at step 2, 30; it is 27 now."
    )


@pytest.mark.parametrize(
    ("validation", "training", "kind"),
    [
        ([5.0, 5.5, 6.0], [4.0, 3.5, 3.0], "Overfitting"),
        ([5.0, 5.5, 6.0], [4.0, 3.5, 4.1], "Plateau"),  # both rise
        ([5.0, 5.5, 5.0], [4.0, 3.5, 3.0], "Plateau"),  # validation does not
        ([5.0, 5.5, 4.9], [4.0, 3.5, 3.0], "None"),
    ],
)
def test_overfitting_is_told_from_a_plateau(tmp_path, validation, training, kind):
    log = MetricsLog(tmp_path)
    watch = Watch(log, "validation_perplexity", "min", training="perplexity", patience=2)
    rows = [
        {"validation_perplexity": v, "perplexity": t}
        for v, t in zip(validation, training, strict=True)
    ]
    found = messages(log, watch, rows)
    assert found[:2] == [None, None]
    assert str(found[2]).startswith(kind)
    if kind == "Overfitting":
        assert "rose from 5 to 6 while perplexity in training fell from 4 to 3" in found[2]


def test_nothing_is_said_of_what_was_never_measured(tmp_path):
    assert Watch(MetricsLog(tmp_path), "validation_bleu", "max").message() is None


def test_the_run_goes_on(tmp_path, caplog):
    log = MetricsLog(tmp_path)
    scores = iter([2.0, 1.0, 1.0, 3.0])
    watch = Watch(log, "bleu", "max", patience=2)
    validate = Validate(1, lambda model, step: {"bleu": next(scores)}, log, "bleu", watches=[watch])
    with caplog.at_level(logging.WARNING, logger="absl"):
        model = tiny.fit(tiny.compiled_model(), tiny.dataset(4), 4, [validate])
    assert [record.message.split(":")[0] for record in caplog.records] == ["Plateau"]
    assert int(model.optimizer.iterations) == 4
