"""Trains a Transformer; started again with the same flags, it goes on from the last checkpoint.

python -m pipelines.train --config=pipelines/configs/grammar_en_de.py --workdir=runs/grammar
"""

from absl import flags, logging

from pipelines import app, cores, experiment
from pipelines.stages import make_stages
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.analysis.curves import draw_curves
from t2t_keras.data.service import DataService
from t2t_keras.data.streams import evaluation_batches, padding_share, training_batches
from t2t_keras.errors import InputError
from t2t_keras.training.averaging import average_checkpoints, write_moving_average
from t2t_keras.training.callbacks import CheckpointEvery, StopOnDivergence
from t2t_keras.training.checkpoint_files import average_path, ema_path
from t2t_keras.training.checkpointing import Checkpoints
from t2t_keras.training.distribution import (
    call_on_chief,
    default_strategy,
    is_chief,
    worker_count,
)
from t2t_keras.training.metrics_log import MetricsLog
from t2t_keras.training.preemption import PreemptionHandler
from t2t_keras.training.progress import ProgressLogger
from t2t_keras.training.validation import Validate

CONFIG = app.define_config()
WORKDIR = app.define_workdir()
EXPLAIN_CONFIG = flags.DEFINE_bool(
    "explain_config", False, "Print where the config departs from the paper's base model, and end."
)
DATA_SERVICE = flags.DEFINE_string(
    "data_service",
    "",
    "Address grpc://host:port of a tf.data service that makes the batches (see "
    "pipelines.data_service); empty: this process does.",
)


START_OVER = flags.DEFINE_bool(
    "start_over",
    False,
    "Train from step 0 if all checkpoints of the workdir are damaged, which is an error otherwise; "
    "a checkpoint that is not damaged is resumed all the same.",
)


def train(config, workdir, data_service="", start_over=False):
    """Trains as the config says, from where the workdir stands.

    Args:
        config: the experiment's config.
        workdir: `Workdir`.
        data_service: address of what makes the batches; empty: this process.
        start_over: whether to train from step 0 if all checkpoints are damaged.
    """
    cores.share(config.train.parts_at_once)
    strategy = default_strategy()  # before all else of TensorFlow
    experiment.check(config)
    call_on_chief(lambda: workdir.save_config(config))
    logging.info("Config:\n%s", config)
    logging.info("Otherwise than the paper:\n%s", "\n".join(experiment.departures(config)))

    experiment.set_numerics(config)
    call_on_chief(lambda: experiment.prepare(config, workdir))
    tokenizer = make_task(config).load_tokenizer(workdir.vocabulary)
    replicas = strategy.num_replicas_in_sync
    batcher = experiment.make_batcher(config, replicas)
    validation = evaluation_batches(workdir.tokens, config.data.validation_split, batcher)
    logging.info("Validation batches: %s", padding_share(validation))

    with strategy.scope():
        model = experiment.make_model(config)
        experiment.compile_model(config, model)
    logging.info("%s weights, %d replicas", f"{model.count_params():,}", replicas)
    checkpoints = Checkpoints(workdir.checkpoints, model, config.train.keep_checkpoints)
    done = checkpoints.restore_latest(start_over)
    if done:
        logging.info("Resuming from step %d", done)
    if worker_count() > 1 and done < config.train.steps:
        call_on_chief(lambda: workdir.count_start(done))
    if done > config.train.steps:
        logging.warning(
            "Step %d is beyond train.steps = %d: nothing is left to train", done, config.train.steps
        )

    log = MetricsLog(workdir.path, done)
    measure = experiment.make_validation(config, model, tokenizer, validation)
    validate = Validate(
        config.train.validate_every,
        measure,
        log,
        *make_task(config).monitor,
        watches=experiment.make_watches(config, log),
    )
    preemption = PreemptionHandler(checkpoints)
    callbacks = [  # a step's row is written before its checkpoint, which may be the last act
        StopOnDivergence(checkpoints, config.train.largest_gradient_norm),
        ProgressLogger(config.train.log_every, config.train.steps, log),
        preemption,
        CheckpointEvery(
            checkpoints, config.train.checkpoint_every, config.train.checkpoint_minutes
        ),
        validate,
    ]
    validate.set_model(model)
    validate.catch_up(ended=done >= config.train.steps)
    for stage in make_stages(config):
        if done >= stage.end:
            continue
        with strategy.scope():
            experiment.compile_model(config, model, stage.loss)
        batches = training_batches(
            workdir.tokens.absolute(),
            config.data.train_split,
            batcher,
            config.train.seed,
            skip=done,
            service=_service(data_service, workdir, done),
            both_directions=stage.both_directions,
        )
        with preemption:
            model.fit(
                batches,
                steps_per_epoch=stage.end - done,
                callbacks=callbacks,
                shuffle=False,  # it is shuffled, and Keras warns otherwise
                verbose=0,
            )
        done = stage.end
    if not is_chief():
        return
    _write_averages(config, workdir, model, checkpoints)
    if draw_curves(log.path, workdir.path / "curves.png"):
        logging.info("Drew %s", workdir.path / "curves.png")
    logging.info("Trained %d steps: %s", done, workdir.path)


def _write_averages(config, workdir, model, checkpoints):
    step = checkpoints.steps()[-1]
    if config.train.average_last:
        path = average_path(workdir.checkpoints, step)
        last = checkpoints.paths()[-config.train.average_last :]
        if len(last) < config.train.average_last:
            logging.warning(
                "There are only %d checkpoints of train.average_last = %d",
                len(last),
                config.train.average_last,
            )
        average_checkpoints(last, path)
        logging.info("Averaged the last %d checkpoints: %s", len(last), path)
    if config.train.ema_decay:
        path = write_moving_average(model, ema_path(workdir.checkpoints, step))
        logging.info("Moving average of all updates: %s", path)


def _service(address, workdir, done):
    if not address:
        return None
    job = f"{workdir.path.absolute()} from step {done}" if worker_count() > 1 else None
    service = DataService(address, job)
    service.check()
    return service


def main():
    if EXPLAIN_CONFIG.value:
        print(*experiment.departures(CONFIG.value), sep="\n")
    elif WORKDIR.value is None:
        raise InputError("give --workdir, the folder of the run.")
    else:
        train(CONFIG.value, Workdir(WORKDIR.value), DATA_SERVICE.value, START_OVER.value)


if __name__ == "__main__":
    app.require("config")
    app.run(main)
