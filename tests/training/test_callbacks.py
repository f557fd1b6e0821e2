"""Callbacks count optimizer steps, report windows and survive validation and resuming."""

import csv

import keras
import numpy as np
import pytest

from t2t_keras.errors import InputError
from t2t_keras.training.callbacks import CheckpointEvery, StopOnDivergence
from t2t_keras.training.checkpointing import Checkpoints
from t2t_keras.training.metrics_log import MetricsLog
from t2t_keras.training.progress import ProgressLogger
from t2t_keras.training.validation import Validate, evaluate_on
from tests.training import tiny


def read(workdir):
    with (workdir / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def frozen_model():
    """A model that no step changes, so that each window's numbers can be computed apart."""
    return tiny.compiled_model(optimizer=keras.optimizers.SGD(0.0))


def test_each_line_is_a_window(tmp_path):
    model, log = frozen_model(), MetricsLog(tmp_path)
    tiny.fit(model, tiny.dataset(5), 5, [ProgressLogger(2, 5, log)])
    rows, parts = read(tmp_path), list(tiny.batches(5))
    assert [row["step"] for row in rows] == ["2", "4", "5"]
    for row, window in zip(rows, [parts[:2], parts[2:4], parts[4:]], strict=True):
        model.reset_metrics()
        for ids, labels, _ in window:
            model.compute_metrics(ids, labels, model(ids))
        expected = model.get_metrics_result()
        assert float(row["perplexity"]) == pytest.approx(float(expected["perplexity"]), rel=1e-4)
        padding = np.mean([labels == 0 for _, labels, _ in window])
        assert float(row["padding_share"]) == pytest.approx(padding, rel=1e-4)
        assert float(row["tokens_per_second"]) > 0
        assert float(row["learning_rate"]) == 0
    assert list((tmp_path / "logs").glob("events*"))


def test_validation_leaves_the_metrics_of_training_alone(tmp_path):
    rows = {}
    for name, every in [("without", None), ("with", 1)]:
        log = MetricsLog(tmp_path / name)
        validate = Validate(
            every, evaluate_on(tiny.dataset(3, seed=9)), log, "validation_perplexity", "min"
        )
        tiny.fit(tiny.compiled_model(), tiny.dataset(6), 6, [ProgressLogger(3, 6, log), validate])
        rows[name] = [row for row in read(tmp_path / name) if row["loss"]]
        validated = [row["step"] for row in read(tmp_path / name) if row["validation_loss"]]
        assert validated == (list("123456") if every else ["6"])
    for column in ("step", "loss", "perplexity", "accuracy", "padding_share"):
        assert [r[column] for r in rows["with"]] == [r[column] for r in rows["without"]]


def test_the_best_validation_is_remembered_over_sessions(tmp_path):
    scores = iter([1.0, 3.0, 2.0])
    validate = Validate(1, lambda model, step: {"bleu": next(scores)}, MetricsLog(tmp_path), "bleu")
    tiny.fit(tiny.compiled_model(), tiny.dataset(3), 3, [validate])
    assert validate.best == (2, 3.0)
    assert Validate(1, None, MetricsLog(tmp_path, step=3), "bleu").best == (2, 3.0)
    assert Validate(1, None, MetricsLog(tmp_path, step=1), "bleu").best == (1, 1.0)


@pytest.mark.parametrize(
    ("every", "step", "ended", "due"),
    [(2, 4, False, True), (2, 5, False, False), (2, 5, True, True), (None, 4, False, False)],
)
def test_a_validation_that_a_kill_prevented_is_made_good(tmp_path, every, step, ended, due):
    model = tiny.compiled_model()
    tiny.fit(model, tiny.dataset(step), step, [])
    seen = []

    def function(model, step):
        seen.append(step)
        return {"bleu": 1.0}

    validate = Validate(every, function, MetricsLog(tmp_path, step), "bleu")
    validate.set_model(model)
    validate.catch_up(ended)
    validate.catch_up(ended)  # its row is there now
    assert seen == ([step] if due else [])


def test_a_resumed_run_continues_the_file(tmp_path):
    model = tiny.compiled_model()
    checkpoints = Checkpoints(tmp_path / "checkpoints", model)
    log = MetricsLog(tmp_path)
    tiny.fit(model, tiny.dataset(2), 2, [ProgressLogger(1, 6, log), CheckpointEvery(checkpoints)])
    tiny.fit(model, tiny.dataset(2), 2, [ProgressLogger(1, 6, log)])  # steps 3 and 4, then a kill
    assert [row["step"] for row in read(tmp_path)] == ["1", "2", "3", "4"]
    done = checkpoints.restore_latest()
    log = MetricsLog(tmp_path, step=done)
    tiny.fit(model, tiny.dataset(2), 2, [ProgressLogger(1, 6, log)])
    rows = read(tmp_path)
    assert [row["step"] for row in rows] == ["1", "2", "3", "4"]
    with (tmp_path / "metrics.superseded.csv").open() as file:
        superseded = list(csv.DictReader(file))
    assert [(row["step"], row["resumed_at"]) for row in superseded] == [("3", "2"), ("4", "2")]
    assert all(row["loss"] for row in superseded)
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds == sorted(seconds)


def test_no_row_is_lost_when_a_run_is_resumed_from_an_earlier_step(tmp_path):
    for step, name, resumed_at in [(1, "loss", 0), (2, "loss", 1), (2, "bleu", 1), (3, "loss", 0)]:
        MetricsLog(tmp_path, resumed_at).write(step, {name: 10.0 * step})
    with (tmp_path / "metrics.superseded.csv").open() as file:
        rows = [
            tuple(row[n] for n in ("resumed_at", "step", "loss", "bleu"))
            for row in csv.DictReader(file)
        ]
    assert rows == [("1", "2", "20", ""), ("0", "1", "10", ""), ("0", "2", "", "20")]
    assert [row["step"] for row in read(tmp_path)] == ["3"]


def test_new_columns_and_a_line_cut_off_keep_the_file_whole(tmp_path):
    log = MetricsLog(tmp_path)
    log.write(1, {"loss": 2.5})
    log.write(2, {"bleu": 10.0})
    assert (log.values("loss"), log.values("bleu")) == ([(1, 2.5)], [(2, 10.0)])
    with log.path.open("a") as file:
        file.write("3")
    MetricsLog(tmp_path, step=2)
    assert [row["step"] for row in read(tmp_path)] == ["1", "2"]


def test_a_loss_that_is_no_number_stops_with_the_last_checkpoint_named(tmp_path):
    model = tiny.compiled_model()
    checkpoints = Checkpoints(tmp_path, model)
    callbacks = [StopOnDivergence(checkpoints), CheckpointEvery(checkpoints, steps=1)]
    tiny.fit(model, tiny.dataset(2), 2, callbacks)
    model.optimizer.learning_rate = lambda: np.inf
    model.make_train_function(force=True)
    with pytest.raises(InputError, match=r"step 3.*step_00000002"):
        tiny.fit(model, tiny.dataset(3), 3, callbacks)
    assert checkpoints.steps() == [1, 2]


def test_steps_count_on_over_epochs_and_several_steps_at_once(tmp_path):
    model = tiny.compiled_model()
    model.compile(model.optimizer, model.loss, steps_per_execution=3)
    checkpoints = Checkpoints(tmp_path, model)
    model.fit(
        tiny.dataset(6), epochs=2, verbose=0, callbacks=[CheckpointEvery(checkpoints, steps=4)]
    )
    assert checkpoints.steps() == [6, 9, 12]
