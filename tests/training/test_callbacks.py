"""Callbacks count optimizer steps, report windows and survive validation and resuming."""

import csv
import logging
import os
import signal

import keras
import numpy as np
import pytest

from t2t_keras import keras_compat
from t2t_keras.errors import InputError
from t2t_keras.training import callbacks
from t2t_keras.training.callbacks import (
    CheckpointCallback,
    EvaluationCallback,
    PlateauMonitor,
    PreemptionHandler,
    ProgressLogger,
    StepCallback,
    StepCallbackList,
    StopOnDivergence,
    evaluate_on,
)
from t2t_keras.training.checkpoint_files import CheckpointReader
from t2t_keras.training.checkpoints import CheckpointManager
from t2t_keras.training.metrics_log import MetricsLog
from t2t_keras.training.optimizers import Adam
from t2t_keras.training.schedules import InverseSquareRoot, LinearDecayToZero
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


@pytest.mark.parametrize(
    ("together", "steps"), [(1, [1, 2, 3, 4, 5]), pytest.param(3, [3, 5], marks=pytest.mark.slow)]
)
def test_the_learning_rate_of_a_row_is_that_of_its_step(tmp_path, together, steps):
    schedule = LinearDecayToZero(InverseSquareRoot(8, 2), 5, 4)  # 0 after the last step
    model, log = tiny.compiled_model(optimizer=Adam(schedule)), MetricsLog(tmp_path)
    model.compile(model.optimizer, model.loss, steps_per_execution=together)
    model.fit(tiny.dataset(5), verbose=0, callbacks=[ProgressLogger(1, 5, log)])
    rates = log.values("learning_rate")
    assert [step for step, _ in rates] == steps
    decay = {1: 1, 2: 1, 3: 0.75, 4: 0.5, 5: 0.25}
    for step, rate in rates:
        expected = 8**-0.5 * min(step**-0.5, step * 2**-1.5) * decay[step]
        assert rate == pytest.approx(expected, rel=1e-5)


def test_validation_leaves_the_metrics_of_training_alone(tmp_path):
    rows = {}
    for name, every in [("without", None), ("with", 1)]:
        log = MetricsLog(tmp_path / name)
        evaluation = EvaluationCallback(
            every, evaluate_on(tiny.dataset(3, seed=9)), log, "validation_perplexity", "min"
        )
        tiny.fit(tiny.compiled_model(), tiny.dataset(6), 6, [ProgressLogger(3, 6, log), evaluation])
        rows[name] = [row for row in read(tmp_path / name) if row["loss"]]
        validated = [row["step"] for row in read(tmp_path / name) if row["validation_loss"]]
        assert validated == (list("123456") if every else ["6"])
    for column in ("step", "loss", "perplexity", "accuracy", "padding_share"):
        assert [r[column] for r in rows["with"]] == [r[column] for r in rows["without"]]


def test_the_best_validation_is_remembered_over_sessions(tmp_path):
    scores = iter([1.0, 3.0, 2.0])
    evaluation = EvaluationCallback(
        1, lambda model, step: {"bleu": next(scores)}, MetricsLog(tmp_path), "bleu"
    )
    tiny.fit(tiny.compiled_model(), tiny.dataset(3), 3, [evaluation])
    assert evaluation.best == (2, 3.0)
    assert EvaluationCallback(1, None, MetricsLog(tmp_path, step=3), "bleu").best == (2, 3.0)
    assert EvaluationCallback(1, None, MetricsLog(tmp_path, step=1), "bleu").best == (1, 1.0)


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

    evaluation = EvaluationCallback(every, function, MetricsLog(tmp_path, step), "bleu")
    evaluation.set_model(model)
    evaluation.evaluate_if_missing(ended)
    evaluation.evaluate_if_missing(ended)  # its row is there now
    assert seen == ([step] if due else [])


def test_a_resumed_run_continues_the_file(tmp_path):
    model = tiny.compiled_model()
    checkpoints = CheckpointManager(tmp_path / "checkpoints", model)
    log = MetricsLog(tmp_path)
    tiny.fit(
        model, tiny.dataset(2), 2, [ProgressLogger(1, 6, log), CheckpointCallback(checkpoints)]
    )
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


def test_a_flipped_bit_of_the_metrics_is_an_error_or_changes_no_value(tmp_path):
    log = MetricsLog(tmp_path)
    log.write(10, {"loss": 2.5})
    log.write(20, {"bleu": 10.0})
    content, damaged = log.path.read_bytes(), 0
    for place in range(len(content) - 1):  # without the last one, a row is incomplete
        flipped = bytearray(content)
        flipped[place] ^= 1 << place % 8
        log.path.write_bytes(flipped)
        try:
            assert (log.values("loss"), log.values("bleu")) == ([(10, 2.5)], [(20, 10.0)])
        except InputError:
            damaged += 1
    assert damaged > len(content) / 2


def test_the_metrics_of_an_earlier_edition_get_checksums(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,seconds,loss\n1,1.0,2.5\n")
    log = MetricsLog(tmp_path, step=1)
    log.write(2, {"loss": 2.0})
    assert log.values("loss") == [(1, 2.5), (2, 2.0)]
    assert all(len(row["crc32"]) == 8 for row in read(tmp_path))


@pytest.mark.parametrize("content", ["step,seconds\nx,1.0\n", "step\n1\n", "step,seconds\n1\n"])
def test_a_damaged_file_is_named(tmp_path, content):
    (tmp_path / "metrics.csv").write_text(content)
    with pytest.raises(InputError, match=r"metrics\.csv is damaged"):
        MetricsLog(tmp_path)


def test_a_nan_loss_stops_training_and_names_the_last_checkpoint(tmp_path):
    model = tiny.compiled_model()
    checkpoints = CheckpointManager(tmp_path, model)
    both = [StopOnDivergence(checkpoints), CheckpointCallback(checkpoints, steps=1)]
    tiny.fit(model, tiny.dataset(2), 2, both)
    model.optimizer.learning_rate = lambda: np.inf
    model.make_train_function(force=True)
    with pytest.raises(InputError, match=r"step 3.*step_00000002"):
        tiny.fit(model, tiny.dataset(3), 3, both)
    assert checkpoints.steps() == [1, 2]


def test_skipped_updates_of_loss_scaling_are_no_steps():
    model = tiny.compiled_model(optimizer=keras.optimizers.LossScaleOptimizer(Adam(0.01)))
    batches = list(tiny.batches(6))
    batches[1][2][0, 0] = np.nan  # a weight, with which gradients are not finite
    steps = []

    class Seen(StepCallback):
        def on_step(self, step, logs):
            steps.append((step, int(self.model.optimizer.iterations)))

    tiny.fit(model, tiny.dataset_of(batches), 6, [Seen()])
    assert steps == [(step, step) for step in (1, 2, 3, 4, 5)]


def test_with_our_loss_scaling_every_batch_is_a_step_and_a_run_resumes_exactly(tmp_path):
    batches = list(tiny.batches(6))
    batches[1][2][0, 0] = np.nan  # a weight, with which gradients are not finite

    def run(path, parts, done=0):
        adam = Adam(0.01, ema_decay=0.5)
        model = tiny.compiled_model(optimizer=keras_compat.LossScaleOptimizer(adam), dropout=0.3)
        checkpoints, seen = CheckpointManager(tmp_path / path, model), Recorder()
        assert checkpoints.restore_latest() == done
        tiny.fit(
            model,
            tiny.dataset_of(parts),
            len(parts),
            [CheckpointCallback(checkpoints, steps=1), seen],
        )
        return model, checkpoints, [step for step, _ in seen.steps]

    whole, checkpoints, steps = run("whole", batches)
    assert steps == checkpoints.steps() == [1, 2, 3, 4, 5, 6]
    before, skipped = (CheckpointReader(path) for path in checkpoints.paths()[:2])
    weights = [name for name in before.shapes if name.startswith("model/")]
    assert all(np.array_equal(before.read(name), skipped.read(name)) for name in weights)
    run("cut", batches[:3])
    resumed, _, steps = run("cut", batches[3:], done=3)
    assert steps == [4, 5, 6]
    for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(whole.optimizer.variables, resumed.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a, b)


def test_steps_count_on_over_epochs_and_several_steps_at_once(tmp_path):
    model = tiny.compiled_model()
    model.compile(model.optimizer, model.loss, steps_per_execution=3)
    checkpoints = CheckpointManager(tmp_path, model)
    model.fit(
        tiny.dataset(6), epochs=2, verbose=0, callbacks=[CheckpointCallback(checkpoints, steps=4)]
    )
    assert checkpoints.steps() == [6, 9, 12]


def accumulating_model(steps_per_execution=1):
    model = tiny.compiled_model(optimizer=Adam(0.01, gradient_accumulation_steps=4, ema_decay=0.5))
    model.compile(
        model.optimizer,
        model.loss,
        weighted_metrics=[tiny.Perplexity()],
        steps_per_execution=steps_per_execution,
    )
    return model


def test_keras_counts_updates_of_accumulated_gradients():
    model = accumulating_model()
    tiny.fit(model, tiny.dataset(6), 6)
    assert (int(model.optimizer.iterations), model.optimizer.variables[0].numpy()) == (1, 6)


@pytest.mark.parametrize(
    ("together", "steps", "saved"),
    [(1, [1, 2, 3, 4], [2, 4]), (3, [1, 2, 3, 4], [2, 4]), (8, [2, 4], [2, 4])],
)
def test_accumulated_gradients_make_a_step_when_they_are_applied(tmp_path, together, steps, saved):
    """16 batches, in two epochs, are 4 updates, and whatever counts steps counts these."""
    model, recorder, log = accumulating_model(together), Recorder(), MetricsLog(tmp_path)
    checkpoints, evaluated = CheckpointManager(tmp_path / "checkpoints", model), []
    callbacks = [
        StopOnDivergence(checkpoints, 100.0),
        ProgressLogger(1, 4, log),
        CheckpointCallback(checkpoints, steps=2),
        EvaluationCallback(2, lambda _, step: evaluated.append(step) or {"bleu": 1.0}, log, "bleu"),
        recorder,
    ]
    model.fit(tiny.dataset(8), epochs=2, verbose=0, callbacks=callbacks)
    assert recorder.steps == [(step, step) for step in steps]
    assert checkpoints.steps() == evaluated == saved
    assert [step for step, _ in log.values("loss")] == steps
    assert all(rate > 0 for _, rate in log.values("tokens_per_second"))


def test_a_run_that_accumulates_gradients_resumes_exactly_between_two_updates(tmp_path):
    def run(path, end):
        model = accumulating_model()
        checkpoints = CheckpointManager(tmp_path / path, model)
        checkpoints.restore_latest()
        begin = checkpoints.batches_taken()
        rest = tiny.dataset(16).skip(begin)
        tiny.fit(model, rest, end - begin, [CheckpointCallback(checkpoints, steps=100)])
        return model, checkpoints.steps()

    whole, _ = run("whole", 16)
    assert run("cut", 10)[1] == [2]
    resumed, steps = run("cut", 16)
    assert steps == [2, 4]
    for a, b in zip(whole.optimizer.variables, resumed.optimizer.variables, strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_accumulated_gradients_leave_out_batches_that_loss_scaling_skips():
    inner = Adam(0.01, gradient_accumulation_steps=2, ema_decay=0.5)
    model = tiny.compiled_model(optimizer=keras_compat.LossScaleOptimizer(inner))
    batches, recorder = list(tiny.batches(5)), Recorder()
    batches[1][2][0, 0] = np.nan  # a weight, with which gradients are not finite
    tiny.fit(model, tiny.dataset_of(batches), 5, [recorder])
    other = tiny.compiled_model(optimizer=Adam(0.01, gradient_accumulation_steps=2))
    del batches[1]
    tiny.fit(other, tiny.dataset_of(batches), 4)
    assert recorder.steps == [(1, 1), (2, 2)]
    for a, b in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)


class Recorder(StepCallback):
    """Remembers the steps that it is told of, and the types of what they report."""

    def on_train_begin(self, logs=None):
        self.steps, self.types = [], set()

    def on_step(self, step, logs):
        self.steps.append((step, int(self.model.optimizer.iterations)))
        self.types |= {type(value) for value in logs.values()}


def run_of_steps(path, together, steps=10, resumed=False):
    """Returns the model of a run whose steps are made `together` at a time, and its step counts."""
    model = tiny.compiled_model(dropout=0.3)
    model.compile(
        tiny.adam(model_dim=8, warmup_steps=20),
        model.loss,
        weighted_metrics=[tiny.Perplexity()],
        steps_per_execution=together,
    )
    checkpoints, log = CheckpointManager(path / "checkpoints", model), MetricsLog(path)
    done = checkpoints.restore_latest() if resumed else 0
    evaluation = EvaluationCallback(
        5, evaluate_on(tiny.dataset(3, seed=9)), log, "validation_perplexity", "min"
    )
    recorder, guard = Recorder(), StopOnDivergence(checkpoints, 100.0, every=4)
    saving = CheckpointCallback(checkpoints, steps=3, guard=guard)
    callbacks = [guard, ProgressLogger(4, steps, log), saving, evaluation, recorder]
    rest = steps - done
    model.fit(
        tiny.dataset(steps).skip(done).take(rest),
        steps_per_epoch=rest,
        callbacks=StepCallbackList(callbacks, model, rest),
        verbose=0,
        shuffle=False,
    )
    return model, checkpoints, recorder


def test_several_steps_together_are_the_steps_one_by_one(tmp_path):
    results = {k: run_of_steps(tmp_path / str(k), k) for k in (1, 4)}
    for model, _, recorder in results.values():
        assert int(model.optimizer.iterations) == 10
        assert all(step == updates for step, updates in recorder.steps)
        assert float not in recorder.types  # nothing was converted
    assert [step for step, _ in results[4][2].steps] == [4, 8, 10]
    assert results[1][1].steps() == [3, 6, 9, 10]
    assert results[4][1].steps() == [4, 8, 10]  # those that crossed 3, 6 and 9
    for a, b in zip(*(model.get_weights() for model, *_ in results.values()), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    rows = {k: read(tmp_path / str(k)) for k in results}
    assert [r["step"] for r in rows[1] if r["loss"]] == ["4", "8", "10"]
    losses = [[float(r["loss"]) for r in rows[k] if r["loss"]] for k in (1, 4)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert [r["step"] for r in rows[4] if r["validation_loss"]] == ["8", "10"]


def test_a_run_of_several_steps_together_resumes_exactly(tmp_path):
    whole, *_ = run_of_steps(tmp_path / "whole", 4)
    _, checkpoints, _ = run_of_steps(tmp_path / "cut", 4, steps=8)
    assert checkpoints.steps() == [4, 8]
    resumed, *_ = run_of_steps(tmp_path / "cut", 4, resumed=True)
    for a, b in zip(whole.get_weights(), resumed.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_a_gradient_that_explodes_between_two_reports_stops_the_run_before_its_checkpoint(tmp_path):
    model = tiny.compiled_model()
    checkpoints = CheckpointManager(tmp_path, model)
    guard = StopOnDivergence(checkpoints, stop_above_grad_norm=50.0, every=100)
    saving = CheckpointCallback(checkpoints, steps=2, guard=guard)
    batches = list(tiny.batches(6))
    batches[2][2][:] *= 1e4  # weights of the tokens
    model.compile(model.optimizer, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    with pytest.raises(InputError, match=r"norm became .* at step 3.*step_00000002"):
        tiny.fit(model, tiny.dataset_of(batches), 6, [guard, saving])
    assert checkpoints.steps() == [2]


@pytest.mark.parametrize(("step", "together", "due"), [(12, 4, True), (12, 1, False)])
def test_a_missing_validation_of_several_steps_together_is_made_good(tmp_path, step, together, due):
    model = tiny.compiled_model()
    tiny.fit(model, tiny.dataset(step), step, [])
    model.compile(model.optimizer, model.loss, steps_per_execution=together)
    log, seen = MetricsLog(tmp_path, step), []
    evaluation = EvaluationCallback(
        7, lambda model, step: seen.append(step) or {"bleu": 1.0}, log, "bleu"
    )
    evaluation.set_model(model)
    evaluation.evaluate_if_missing()
    assert seen == []  # 7 was crossed earlier
    evaluation = EvaluationCallback(
        11, lambda model, step: seen.append(step) or {"bleu": 1.0}, log, "bleu"
    )
    evaluation.set_model(model)
    evaluation.evaluate_if_missing()
    assert seen == ([step] if due else [])


# Plateaus ---------------------------------------------------------------------------------------


def messages(log, monitor, rows):
    found = []
    for step, row in enumerate(rows, start=1):
        log.write(step, row)
        found.append(monitor.message())
    return found


def test_a_message_is_due_each_time_the_patience_is_over(tmp_path):
    log = MetricsLog(tmp_path)
    scores = [20.0, 30.0, 29.0, 30.0, 28.0, 27.0, 29.5, 31.0, 30.5]
    found = messages(
        log, PlateauMonitor(log, "bleu", "max", patience=2), [{"bleu": s} for s in scores]
    )
    assert [step for step, message in enumerate(found, start=1) if message] == [4, 6]
    assert found[5] == (
        "Plateau: bleu has not been better for 4 evaluations than at step 2, 30; it is 27 now."
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
    monitor = PlateauMonitor(log, "validation_perplexity", "min", training="perplexity", patience=2)
    rows = [
        {"validation_perplexity": v, "perplexity": t}
        for v, t in zip(validation, training, strict=True)
    ]
    found = messages(log, monitor, rows)
    assert found[:2] == [None, None]
    assert str(found[2]).startswith(kind)
    if kind == "Overfitting":
        assert "rose from 5 to 6 while perplexity in training fell from 4 to 3" in found[2]


def test_no_message_is_due_before_an_evaluation(tmp_path):
    assert PlateauMonitor(MetricsLog(tmp_path), "validation_bleu", "max").message() is None


def test_a_plateau_is_a_warning_and_stops_nothing(tmp_path, caplog):
    log = MetricsLog(tmp_path)
    scores = iter([2.0, 1.0, 1.0, 3.0])
    monitor = PlateauMonitor(log, "bleu", "max", patience=2)
    evaluation = EvaluationCallback(
        1, lambda model, step: {"bleu": next(scores)}, log, "bleu", plateau_monitors=[monitor]
    )
    with caplog.at_level(logging.WARNING, logger="absl"):
        model = tiny.fit(tiny.compiled_model(), tiny.dataset(4), 4, [evaluation])
    assert [record.message.split(":")[0] for record in caplog.records] == ["Plateau"]
    assert int(model.optimizer.iterations) == 4


# Preemption -------------------------------------------------------------------------------------


class SignalAt(StepCallback):
    """Sends SIGTERM to this process when a step is reached."""

    def __init__(self, signal_step):
        super().__init__()
        self.signal_step = signal_step

    def on_step(self, step, logs):
        if step >= self.signal_step:
            os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_saves_after_the_step_and_exits_with_75(tmp_path):
    model = tiny.compiled_model()
    checkpoints = CheckpointManager(tmp_path, model)
    earlier = signal.getsignal(signal.SIGTERM)
    try:
        with pytest.raises(SystemExit) as end, PreemptionHandler(checkpoints) as handler:
            later = CheckpointCallback(checkpoints, steps=100)
            tiny.fit(model, tiny.dataset(6), 6, [SignalAt(3), handler, later])
        os.kill(os.getpid(), signal.SIGTERM)  # a second one, on the way out
    finally:
        signal.signal(signal.SIGTERM, earlier)
    assert end.value.code == 75
    assert checkpoints.steps() == [3]


def test_several_workers_see_the_signal_whatever_steps_keras_reports(tmp_path, monkeypatch):
    monkeypatch.setattr(callbacks, "worker_count", lambda: 2)
    model = tiny.compiled_model()
    tiny.fit(model, tiny.dataset(5), 5)
    model.compile(model.optimizer, model.loss, steps_per_execution=10)
    checkpoints = CheckpointManager(tmp_path, model)
    handler = PreemptionHandler(checkpoints, sync_every_steps=10)
    with handler, pytest.raises(SystemExit):
        tiny.fit(model, tiny.dataset(60), 60, [SignalAt(25), handler])
    assert checkpoints.steps() == [25]  # reported are 15, 25, 35 …


class Failure(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        raise RuntimeError("a failure in training")


def test_the_earlier_handler_comes_back_even_when_training_fails(tmp_path):
    model = tiny.compiled_model()
    earlier = signal.getsignal(signal.SIGTERM)
    with PreemptionHandler(CheckpointManager(tmp_path, model)) as handler:
        tiny.fit(model, tiny.dataset(2), 2, [handler])
    assert signal.getsignal(signal.SIGTERM) is earlier
    with (
        pytest.raises(RuntimeError),
        PreemptionHandler(CheckpointManager(tmp_path, model)) as handler,
    ):
        tiny.fit(model, tiny.dataset(2), 2, [handler, Failure()])
    assert signal.getsignal(signal.SIGTERM) is earlier


def test_a_handler_that_is_not_active_is_refused(tmp_path):
    model = tiny.compiled_model()
    with pytest.raises(InputError, match="PreemptionHandler is not active"):
        tiny.fit(model, tiny.dataset(1), 1, [PreemptionHandler(CheckpointManager(tmp_path, model))])
