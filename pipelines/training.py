"""The training of a run: `train` prepares the corpus, resumes, fits and averages."""

import contextlib

import numpy as np
from absl import logging

from pipelines import devices, experiment
from pipelines.base_tasks import takes_xla, tokens_per_batch
from pipelines.directions import directions_of, parts_of
from pipelines.fields import config_diff
from t2t_keras.analysis.plots import draw_curves
from t2t_keras.data.shards import open_shards
from t2t_keras.data.streams import (
    DataService,
    Mixture,
    evaluation_batches,
    padding_fraction,
    training_batches,
)
from t2t_keras.errors import InputError
from t2t_keras.tasks.bundles import Predictor, require_savable, write_description
from t2t_keras.training.callbacks import (
    CheckpointCallback,
    EvaluationCallback,
    PreemptionHandler,
    ProgressLogger,
    StepCallbackList,
    StopOnDivergence,
)
from t2t_keras.training.checkpoint_files import average_path, ema_path, initial_path
from t2t_keras.training.checkpoints import (
    CheckpointManager,
    average_checkpoints,
    restore_weights,
    write_ema,
)
from t2t_keras.training.distribution import (
    call_on_chief,
    default_strategy,
    gather_from_workers,
    is_chief,
    worker_count,
)
from t2t_keras.training.metrics_log import MetricsLog


def train(config, workdir, data_service="", start_over=False, accept_corpus_changes=False):
    """Trains a model, or resumes from the last checkpoint of the workdir.

    A tf.data service at the address `data_service` makes the batches; empty: this process. If all
    checkpoints are damaged, start_over trains from step 0. See `Workdir.save_run` for the last one.
    """
    devices.limit_threads(config.train.parallel_micro_batches)
    strategy = default_strategy()  # before TensorFlow's first operation
    task, replicas = experiment.check(config), strategy.num_replicas_in_sync
    _require_known_model(task)
    with contextlib.ExitStack() as stack:
        call_on_chief(lambda: stack.enter_context(workdir.lock()))
        _prepare(task, workdir, replicas, accept_corpus_changes)
        batcher = task.make_batcher(replicas)
        tokens = tokens_per_batch(config, replicas)
        logging.info("Batches of %d tokens a side, %d on each replica", tokens, tokens // replicas)
        validation = {}
        for part in parts_of(config, config.data.validation_split):
            validation[part] = evaluation_batches(workdir.tokens, part, batcher)
            logging.info("Batches of %s: %s", part, padding_fraction(validation[part]))

        with strategy.scope():
            model = task.make_model()
            experiment.compile_model(task, model)
        logging.info("%s weights, %d replicas", f"{model.count_params():,}", replicas)
        if takes_xla(config, replicas):
            logging.info(
                "XLA compiles each shape of a batch when it first comes: a minute or more."
            )
        checkpoints = CheckpointManager(workdir.checkpoints, model, config.train.keep_checkpoints)
        start_step = _restore(model, workdir, checkpoints, start_over)
        tokenizer = task.load_tokenizer(workdir.vocabulary)
        predictor = task.make_predictor(model, tokenizer)
        if isinstance(predictor, Predictor):  # for `t2t_keras.load`
            call_on_chief(lambda: write_description(workdir.path, predictor))
        if worker_count() > 1 and start_step < config.train.steps:
            call_on_chief(lambda: workdir.count_start(start_step))

        log = MetricsLog(workdir.path, start_step)
        evaluation = EvaluationCallback(
            config.train.validate_every,
            experiment.make_validation(task, model, tokenizer, validation),
            log,
            *task.monitor,
            plateau_monitors=experiment.make_plateau_monitors(task, log),
        )
        evaluation.set_model(model)
        evaluation.evaluate_if_missing(ended=start_step >= config.train.steps)
        if start_step < config.train.steps:
            service = _service(data_service, workdir, start_step)
            _fit(config, workdir, batcher, model, checkpoints, evaluation, start_step, service)
        elif start_step > config.train.steps:
            logging.warning("Step %d is beyond train.steps = %d", start_step, config.train.steps)
        if is_chief():
            _write_averages(config, workdir, model, checkpoints)
            if draw_curves(log.path, workdir.path / "curves.png"):
                logging.info("Drew %s", workdir.path / "curves.png")
            logging.info("Trained %d steps: %s", checkpoints.steps()[-1], workdir.path)


def _prepare(task, workdir, replicas, accept_corpus_changes):
    """Saves the config, writes vocabulary and token shards if missing, sets seed and precision.

    All workers must have the same config and text. For XLA the task gets its `lengths`.
    """
    config = task.config
    call_on_chief(lambda: workdir.save_run(task, accept_corpus_changes))
    _check_workers(task, workdir)
    logging.info("Config:\n%s", config)
    logging.info("Differences from the paper:\n%s", "\n".join(config_diff(config)))
    call_on_chief(lambda: experiment.prepare(task, workdir))
    experiment.set_numerics(config)  # not before: preparation draws random numbers
    if takes_xla(config, replicas):
        shards = (
            open_shards(workdir.tokens, part) for part in parts_of(config, config.data.train_split)
        )
        task.lengths = np.concatenate([each.read_lengths(0) for each in shards])  # even samples


def _check_workers(task, workdir):
    """Raises InputError, in all workers, if one was started with another config or text."""
    difference = None if is_chief() else workdir.difference_from_chief(task)
    different = np.flatnonzero(gather_from_workers(int(difference is not None)))
    if difference:
        raise InputError(f"{difference}: start all workers with the same command and text.")
    if len(different):
        raise InputError(
            f"worker {different[0]} differs from the chief in its config or corpus, and "
            "its own message says where: start all workers with the same command and text."
        )


def _require_known_model(task):
    """Raises InputError, before any work, if a user's task makes a model that can't be saved."""
    is_ours = type(task).make_model.__module__.startswith("pipelines.")  # need not be made twice
    if not is_ours and issubclass(task.predictor, Predictor):
        require_savable(task.predictor, task.make_model())


def _restore(model, workdir, checkpoints, start_over):
    """Restores the last checkpoint, or the weights of a pretrained model; returns the step."""
    start_step = checkpoints.restore_latest(start_over)
    initial = initial_path(workdir.checkpoints)
    if start_step:
        logging.info("Resuming from step %d", start_step)
    elif initial.exists():
        restore_weights(model, initial)
        logging.info("Starting from the weights of %s", initial)
    return start_step


def _fit(config, workdir, batcher, model, checkpoints, evaluation, start_step, service):
    """Fits a model to the training batches, from a step to the last one."""
    train, split, tokens = config.train, config.data.train_split, workdir.tokens.absolute()
    if directions_of(config):
        mixture = _mixture(config, tokens, batcher)
        batches, composition = mixture.training_batches(start_step, service), mixture.composition
    else:
        batches = training_batches(tokens, split, batcher, train.seed, start_step, service)
        composition = None
    steps = train.steps - start_step
    guard = StopOnDivergence(checkpoints, train.stop_above_grad_norm, train.log_every)
    with PreemptionHandler(checkpoints, guard=guard) as preemption:
        callbacks = [  # a step's row of metrics is written before its checkpoint
            guard,
            ProgressLogger(train.log_every, train.steps, evaluation.log, composition),
            preemption,
            CheckpointCallback(
                checkpoints, train.checkpoint_every, train.checkpoint_minutes, guard=guard
            ),
            evaluation,
        ]
        model.fit(
            # The last execution ends with the data, where it has fewer steps than the others.
            batches.take(steps) if steps % train.steps_per_execution else batches,
            steps_per_epoch=steps,
            callbacks=StepCallbackList(callbacks, model, steps),
            shuffle=False,  # the batches are shuffled, and Keras warns otherwise
            verbose=0,
        )


def _mixture(config, tokens, batcher):
    """Returns the `Mixture` of a run's directions."""
    names = [direction.name for direction in directions_of(config)]
    parts = dict(zip(names, parts_of(config, config.data.train_split), strict=True))
    mixture = Mixture(tokens, parts, batcher, config.train.seed, config.data.sampling_temperature)
    shares = (f"{name} {share:.1%}" for name, share in mixture.probabilities.items())
    logging.info("A batch is of %s", ", ".join(shares))
    return mixture


def _write_averages(config, workdir, model, checkpoints):
    step = checkpoints.steps()[-1]
    if wanted := config.train.average_checkpoints:
        path = average_path(workdir.checkpoints, step)
        last = checkpoints.paths()[-wanted:]
        if len(last) < wanted:
            logging.warning(
                "There are only %d checkpoints of train.average_checkpoints = %d", len(last), wanted
            )
        average_checkpoints(last, path)
        logging.info("Averaged the last %d checkpoints: %s", len(last), path)
    if config.train.ema_decay:
        path = write_ema(model, ema_path(workdir.checkpoints, step))
        logging.info("Exponential moving average of the weights: %s", path)


def _service(address, workdir, start_step):
    if not address:
        return None
    job = f"{workdir.path.absolute()} from step {start_step}" if worker_count() > 1 else None
    service = DataService(address, job)
    service.check()
    return service
