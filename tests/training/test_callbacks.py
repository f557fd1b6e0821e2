"""Callbacks count optimizer steps, report windows and survive validation and resuming."""

import csv
import dataclasses
import os
import signal
import types

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


def read(workdir, name="metrics.csv"):
    with (workdir / name).open() as file:
        return list(csv.DictReader(file))


class Recorder(StepCallback):
    """Remembers the steps that it is told of, and the types of what they report."""

    def on_train_begin(self, logs=None):
        self.steps, self.types = [], set()

    def on_step(self, step, logs):
        self.steps.append((step, int(self.model.optimizer.iterations)))
        self.types |= {type(value) for value in logs.values()}


def assert_same_state(whole, resumed):
    states = ([*model.variables, *model.optimizer.variables] for model in (whole, resumed))
    for a, b in zip(*states, strict=True):
        np.testing.assert_array_equal(a, b)


def scored(log, scores, every=1, seen=None, **options):
    """An evaluation that gives these scores, in their order, and notes its steps."""
    scores, seen = iter(scores), [] if seen is None else seen

    def evaluate(model, step):
        seen.append(step)
        return {"bleu": next(scores)}

    return EvaluationCallback(every, evaluate, log, "bleu", **options)


# Metrics ------------------------------------------------------------------------------------------


def test_each_line_is_a_window(tmp_path):
    """Of a model that no step changes, so that each window's numbers can be computed apart."""
    metrics = {"metrics": [], "weighted_metrics": [tiny.Perplexity()]}
    model = tiny.eager_model(optimizer=keras.optimizers.SGD(0.0), **metrics)
    log = MetricsLog(tmp_path)
    doubled = tiny.dataset(5).map(lambda ids, labels, weights: (ids, labels, 2 * weights))
    tiny.fit(model, doubled, 5, [ProgressLogger(2, 5, log)])
    rows, parts = read(tmp_path), list(tiny.batches(5))
    assert [row["step"] for row in rows] == ["2", "4", "5"]
    for row, window in zip(rows, [parts[:2], parts[2:4], parts[4:]], strict=True):
        model.reset_metrics()
        for ids, labels, weights in window:
            model.compute_metrics(ids, labels, model(ids), weights)
        expected = model.get_metrics_result()
        assert float(row["perplexity"]) == pytest.approx(float(expected["perplexity"]), rel=1e-4)
        padding = np.mean([labels == 0 for _, labels, _ in window])
        assert float(row["padding_share"]) == pytest.approx(padding, rel=1e-4)
        assert float(row["tokens_per_second"]) > 0
        assert float(row["learning_rate"]) == 0
    assert list((tmp_path / "logs").glob("events*"))


def test_a_report_covers_its_epoch_alone(tmp_path, monkeypatch):
    """Keras resets the metrics at its beginning: the time before it is not that of their tokens."""
    clock = [0.0]
    monkeypatch.setattr(callbacks, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    ticking = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: clock.__setitem__(0, clock[0] + 1)
    )
    validation = keras.callbacks.LambdaCallback(
        on_test_begin=lambda logs: clock.__setitem__(0, clock[0] + 100)
    )
    log = MetricsLog(tmp_path)
    tiny.eager_model().fit(
        tiny.dataset(3).filter(lambda *_: True),  # of which Keras looks for a fourth batch
        validation_data=tiny.dataset(1),
        epochs=2,
        verbose=0,
        callbacks=[ticking, validation, ProgressLogger(4, 6, log)],
    )
    tokens = [int(np.count_nonzero(labels)) for _, labels, _ in tiny.batches(3)]
    speeds = dict(log.values("tokens_per_second"))  # of one step, and of the two after it
    assert speeds == pytest.approx({4: tokens[0], 6: sum(tokens[1:]) / 2})


@pytest.mark.parametrize(("name", "best"), [("perplexity", 2.0), ("accuracy", 3.0)])
def test_callbacks_of_keras_know_which_values_are_better(name, best):
    model = tiny.fit(tiny.eager_model(), tiny.dataset(1), 1)
    stopping = keras.callbacks.EarlyStopping(monitor=name)
    stopping.set_model(model)
    stopping.on_train_begin()
    for epoch, value in enumerate((2.5, 2.0, 3.0)):
        stopping.on_epoch_end(epoch, {name: value})
    assert stopping.best == best


def test_the_learning_rate_of_a_row_is_that_of_its_step(tmp_path):
    schedule = LinearDecayToZero(InverseSquareRoot(8, 2), 5, 4)  # 0 after the last step
    model = tiny.compiled_model(optimizer=Adam(schedule), steps_per_execution=3)
    log = MetricsLog(tmp_path)
    model.fit(tiny.dataset(5), verbose=0, callbacks=[ProgressLogger(1, 5, log)])
    expected = {step: 8**-0.5 * step**-0.5 * decay for step, decay in ((3, 0.75), (5, 0.25))}
    assert dict(log.values("learning_rate")) == pytest.approx(expected, rel=1e-5)


def test_validation_leaves_the_metrics_of_training_alone(tmp_path):
    rows = {}
    for name, every in [("without", None), ("with", 1)]:
        log = MetricsLog(tmp_path / name)
        function = evaluate_on(tiny.dataset(3, seed=9))
        evaluation = EvaluationCallback(every, function, log, "validation_perplexity", "min")
        tiny.fit(tiny.eager_model(), tiny.dataset(6), 6, [ProgressLogger(3, 6, log), evaluation])
        rows[name] = [row for row in read(tmp_path / name) if row["loss"]]
        validated = [row["step"] for row in read(tmp_path / name) if row["validation_loss"]]
        assert validated == (list("123456") if every else ["6"])
    for column in ("step", "loss", "perplexity", "accuracy", "padding_share"):
        assert [r[column] for r in rows["with"]] == [r[column] for r in rows["without"]]


def test_the_best_validation_is_remembered_over_sessions(tmp_path):
    evaluation = scored(MetricsLog(tmp_path), [1.0, 3.0, 2.0])
    tiny.fit(tiny.eager_model(), tiny.dataset(3), 3, [evaluation])
    assert evaluation.best == (2, 3.0)
    for step, best in ((3, (2, 3.0)), (1, (1, 1.0))):
        assert EvaluationCallback(1, None, MetricsLog(tmp_path, step), "bleu").best == best


@pytest.mark.parametrize(("every", "step", "together", "ended", "due"), [
    *((2, 4, 1, False, True), (2, 5, 1, False, False), (2, 5, 1, True, True)),
    *((None, 4, 1, False, False), (7, 12, 4, False, False)),  # 7 was crossed earlier
    *((11, 12, 4, False, True), (11, 12, 1, False, False)),
])  # fmt: skip
def test_a_validation_that_a_kill_prevented_is_made_good(
    tmp_path, every, step, together, ended, due
):
    model, seen = tiny.compiled_model(steps_per_execution=together), []
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(step)
    evaluation = scored(MetricsLog(tmp_path, step), [1.0], every, seen)
    evaluation.set_model(model)
    for _ in range(2):  # its row is there now
        evaluation.evaluate_if_missing(ended)
    assert seen == ([step] if due else [])


def test_a_resumed_run_continues_the_file_and_loses_no_row(tmp_path):
    log = MetricsLog(tmp_path)
    for step in (1, 2, 3, 4):
        log.write(step, {"loss": 10.0 * step})
    MetricsLog(tmp_path, step=2).write(3, {"loss": 1.0})  # after a kill
    MetricsLog(tmp_path, step=2).write(4, {"bleu": 2.0})
    rows = read(tmp_path)
    found = [(row["step"], row["loss"], row["bleu"]) for row in rows]
    assert found == [("1", "10", ""), ("2", "20", ""), ("4", "", "2")]
    seconds = [float(row["seconds"]) for row in rows]
    assert seconds == sorted(seconds)
    superseded = read(tmp_path, "metrics.superseded.csv")
    found = [(row["resumed_at"], row["step"], row["loss"]) for row in superseded]
    assert found == [("2", "3", "30"), ("2", "4", "40"), ("2", "3", "1")]


def test_new_columns_a_line_cut_off_and_an_earlier_edition_keep_the_file_whole(tmp_path):
    (tmp_path / "metrics.csv").write_text("step,seconds,loss\n1,1.0,2.5\n")  # without checksums
    log = MetricsLog(tmp_path, step=1)
    log.write(2, {"bleu": 10.0})
    assert (log.values("loss"), log.values("bleu")) == ([(1, 2.5)], [(2, 10.0)])
    with log.path.open("a") as file:
        file.write("3")
    MetricsLog(tmp_path, step=2)
    assert [(row["step"], len(row["crc32"])) for row in read(tmp_path)] == [("1", 8), ("2", 8)]
    for content in ("step,seconds\nx,1.0\n", "step\n1\n", "step,seconds\n1\n"):
        log.path.write_text(content)
        with pytest.raises(InputError, match=r"metrics\.csv is damaged"):
            MetricsLog(tmp_path)


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


# Divergence and loss scaling ----------------------------------------------------------------------


def test_a_nan_loss_stops_training_and_names_the_last_checkpoint(tmp_path):
    model = tiny.eager_model()
    checkpoints = CheckpointManager(tmp_path, model)
    both = [StopOnDivergence(checkpoints), CheckpointCallback(checkpoints, steps=1)]
    tiny.fit(model, tiny.dataset(2), 2, both)
    model.optimizer.learning_rate = lambda: np.inf
    model.make_train_function(force=True)
    with pytest.raises(InputError, match=r"step 3.*step_00000002"):
        tiny.fit(model, tiny.dataset(3), 3, both)
    assert checkpoints.steps() == [1, 2]


def test_a_gradient_that_explodes_between_two_reports_stops_the_run_before_its_checkpoint(tmp_path):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model = tiny.eager_model(loss=loss)
    checkpoints = CheckpointManager(tmp_path, model)
    guard = StopOnDivergence(checkpoints, stop_above_grad_norm=50.0, every=100)
    saving = CheckpointCallback(checkpoints, steps=2, guard=guard)
    batches = list(tiny.batches(6))
    batches[2][2][:] *= 1e4  # weights of the tokens
    with pytest.raises(InputError, match=r"norm became .* at step 3.*step_00000002"):
        tiny.fit(model, tiny.dataset_of(batches), 6, [guard, saving])
    assert checkpoints.steps() == [2]


def test_the_time_left_is_that_of_the_steps_to_come_at_the_pace_since_the_first_report(
    tmp_path, monkeypatch, caplog
):
    clock = [0.0]
    monkeypatch.setattr(callbacks, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    pace = {0: 500.0, 1: 600.0, 2: 630.0, 3: 660.0}  # the graph is made in the first step
    ticking = keras.callbacks.LambdaCallback(
        on_train_batch_end=lambda batch, logs: clock.__setitem__(0, pace[batch])
    )
    logger = ProgressLogger(2, 10, MetricsLog(tmp_path))
    with caplog.at_level("INFO", logger="absl"):
        tiny.fit(tiny.eager_model(), tiny.dataset(4), 4, [ticking, logger])
    first, second = [text for text in caplog.messages if text.startswith("step ")]
    assert "left" not in first and second.endswith("  left 0:03:00")  # 6 steps of 30 seconds


def batches_with_nan(count=6):
    """Batches whose second one has a weight with which gradients are not finite."""
    batches = list(tiny.batches(count))
    batches[1][2][0, 0] = np.nan
    return batches


def test_skipped_updates_of_loss_scaling_are_no_steps():
    model = tiny.eager_model(optimizer=keras.optimizers.LossScaleOptimizer(Adam(0.01)))
    recorder = Recorder()
    tiny.fit(model, tiny.dataset_of(batches_with_nan()), 6, [recorder])
    assert recorder.steps == [(step, step) for step in (1, 2, 3, 4, 5)]


def test_with_our_loss_scaling_every_batch_is_a_step_and_a_run_resumes_exactly(tmp_path):
    def run(path, first, last):
        adam = Adam(0.01, ema_decay=0.5)
        model = tiny.eager_model(optimizer=keras_compat.LossScaleOptimizer(adam), dropout=0.3)
        checkpoints, seen = CheckpointManager(tmp_path / path, model), Recorder()
        assert checkpoints.restore_latest() == first
        parts, saving = batches_with_nan()[first:last], CheckpointCallback(checkpoints, steps=1)
        tiny.fit(model, tiny.dataset_of(parts), len(parts), [saving, seen])
        assert [step for step, _ in seen.steps] == list(range(first + 1, last + 1))
        return model, checkpoints

    whole, checkpoints = run("whole", 0, 6)
    before, skipped = (CheckpointReader(path) for path in checkpoints.paths()[:2])
    weights = [name for name in before.shapes if name.startswith("model/")]
    assert all(np.array_equal(before.read(name), skipped.read(name)) for name in weights)
    run("cut", 0, 3)
    assert_same_state(whole, run("cut", 3, 6)[0])


# Several batches to a step, several steps to a call -----------------------------------------------


def accumulating_model(**settings):
    optimizer = Adam(0.01, gradient_accumulation_steps=4, ema_decay=0.5)
    return tiny.compiled_model(optimizer=optimizer, **settings)


def test_accumulated_gradients_are_a_step_when_applied(tmp_path):
    """16 batches, in two epochs, are 4 updates, and whatever counts steps counts these."""
    model, recorder, log = (
        accumulating_model(steps_per_execution=3),
        Recorder(),
        MetricsLog(tmp_path),
    )
    steps = [1, 2, 3, 4]
    checkpoints, evaluated = CheckpointManager(tmp_path / "checkpoints", model), []
    callbacks = [
        StopOnDivergence(checkpoints, 100.0),
        ProgressLogger(1, 4, log),
        CheckpointCallback(checkpoints, steps=2),
        scored(log, [1.0, 1.0], every=2, seen=evaluated),
        recorder,
    ]
    model.fit(tiny.dataset(8), epochs=2, verbose=0, callbacks=callbacks)
    assert recorder.steps == [(step, step) for step in steps]
    assert checkpoints.steps() == evaluated == [2, 4]
    assert [step for step, _ in log.values("loss")] == steps
    assert all(rate > 0 for _, rate in log.values("tokens_per_second"))


def test_a_run_that_accumulates_gradients_resumes_exactly_between_two_updates(tmp_path):
    def run(path, end):
        model = accumulating_model(run_eagerly=True)
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
    assert_same_state(whole, resumed)


def run_of_steps(path, together, steps=10):
    """Resumes a run whose steps are made `together` at a time; returns its parts."""
    model = tiny.compiled_model(dropout=0.3, steps_per_execution=together)
    checkpoints, log = CheckpointManager(path / "checkpoints", model), MetricsLog(path)
    done = checkpoints.restore_latest()
    function = evaluate_on(tiny.dataset(3, seed=9))
    evaluation = EvaluationCallback(5, function, log, "validation_perplexity", "min")
    recorder, guard = Recorder(), StopOnDivergence(checkpoints, 100.0, every=4)
    saving = CheckpointCallback(checkpoints, steps=3, guard=guard)
    callbacks = [guard, ProgressLogger(4, steps, log), saving, evaluation, recorder]
    rest = tiny.dataset(steps).skip(done)
    both = StepCallbackList(callbacks, model, steps - done)
    model.fit(rest, steps_per_epoch=steps - done, callbacks=both, verbose=0)
    return model, checkpoints, recorder


def test_several_steps_together_are_the_steps_one_by_one_and_resume_exactly(tmp_path):
    results = {k: run_of_steps(tmp_path / str(k), k) for k in (1, 4)}
    for model, _, recorder in results.values():
        assert int(model.optimizer.iterations) == 10
        assert all(step == updates for step, updates in recorder.steps)
        assert float not in recorder.types  # nothing was converted
    assert [step for step, _ in results[4][2].steps] == [4, 8, 10]
    assert results[1][1].steps() == [3, 6, 9, 10]
    assert results[4][1].steps() == [4, 8, 10]  # those that crossed 3, 6 and 9
    for a, b in zip(*(model.get_weights() for model, *_ in results.values()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
    rows = {k: read(tmp_path / str(k)) for k in results}
    assert [r["step"] for r in rows[1] if r["loss"]] == ["4", "8", "10"]
    losses = [[float(r["loss"]) for r in rows[k] if r["loss"]] for k in (1, 4)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert [r["step"] for r in rows[4] if r["validation_loss"]] == ["8", "10"]
    for steps in (8, 10):
        resumed, *_ = run_of_steps(tmp_path / "cut", 4, steps)
    assert_same_state(results[4][0], resumed)


def test_steps_of_a_dataset_of_unknown_length_are_those_that_were_made():
    model, recorder = tiny.compiled_model(steps_per_execution=3), Recorder()
    dataset = tiny.dataset(7).filter(lambda *_: True)
    model.fit(dataset, epochs=2, verbose=0, callbacks=[recorder])
    assert recorder.steps == [(step, step) for step in (3, 6, 7, 10, 13, 14)]


# Plateaus -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("validation", "training", "kinds"), [
    ([20, 30, 29, 30, 28, 27, 29.5, 31, 30.5], None, {4: "Plateau", 6: "Plateau"}),
    ([-5.0, -5.5, -6.0], [4.0, 3.5, 3.0], {3: "Overfitting"}),
    ([-5.0, -5.5, -6.0], [4.0, 3.5, 4.1], {3: "Plateau"}),  # both rise
    ([-5.0, -5.5, -5.0], [4.0, 3.5, 3.0], {3: "Plateau"}),  # validation does not
    ([-5.0, -5.5, -4.9], [4.0, 3.5, 3.0], {}),
])  # fmt: skip
def test_a_message_is_due_each_time_the_patience_is_over(tmp_path, validation, training, kinds):
    log, is_bleu = MetricsLog(tmp_path), training is None
    names = ("bleu", "max") if is_bleu else ("validation_perplexity", "min", "perplexity")
    monitor = PlateauMonitor(log, *names, patience=2)
    assert monitor.message() is None  # before an evaluation
    found = {}
    for step, score in enumerate(validation, start=1):
        values = {"bleu": score} if is_bleu else {"validation_perplexity": -score}
        log.write(step, values if is_bleu else values | {"perplexity": training[step - 1]})
        if message := monitor.message():
            found[step] = message
    assert {step: message.split(":")[0] for step, message in found.items()} == kinds
    if is_bleu:
        assert found[6] == (
            "Plateau: bleu has not been better for 4 evaluations than at step 2, 30; it is 27 now."
        )
    elif "Overfitting" in kinds.values():
        assert "rose from 5 to 6 while perplexity in training fell from 4 to 3" in found[3]


# Preemption ---------------------------------------------------------------------------------------


@dataclasses.dataclass(eq=False)
class SignalAt(StepCallback):
    """Sends SIGTERM to this process when a step is reached."""

    signal_step: int

    def on_step(self, step, logs):
        if step >= self.signal_step:
            os.kill(os.getpid(), signal.SIGTERM)


def test_sigterm_saves_after_the_step_and_exits_with_75(tmp_path):
    model = tiny.eager_model()
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
    model = tiny.compiled_model(steps_per_execution=10)
    model.optimizer.build(model.trainable_variables)
    model.optimizer.iterations.assign(5)
    checkpoints = CheckpointManager(tmp_path, model)
    handler = PreemptionHandler(checkpoints, sync_every_steps=10)
    with handler, pytest.raises(SystemExit):
        tiny.fit(model, tiny.dataset(60), 60, [SignalAt(25), handler])
    assert checkpoints.steps() == [25]  # reported are 15, 25, 35 …


def test_the_earlier_handler_comes_back_even_when_training_fails(tmp_path):
    model, earlier = tiny.eager_model(), signal.getsignal(signal.SIGTERM)
    with PreemptionHandler(CheckpointManager(tmp_path, model)) as handler:
        tiny.fit(model, tiny.dataset(2), 2, [handler])
    assert signal.getsignal(signal.SIGTERM) is earlier
    with pytest.raises(InputError, match="PreemptionHandler is not active"):
        tiny.fit(model, tiny.dataset(1), 1, [handler])
    failure = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: 1 / 0)
    with pytest.raises(ZeroDivisionError), handler:
        tiny.fit(model, tiny.dataset(2), 2, [handler, failure])
    assert signal.getsignal(signal.SIGTERM) is earlier
