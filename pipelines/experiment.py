"""An experiment: from the fields of a config to the library's objects.

`check` validates a config and returns its task, `prepare` writes vocabulary and token shards, the
others build optimizer, loss and validation. The fields are in `fields.py`, the tasks in `tasks.py`,
and the folder of a run is in `workdir.py`.
"""

import functools

import keras
import tensorflow as tf
from absl import logging
from tqdm import tqdm

from pipelines.directions import (
    check_vocabulary,
    directions_of,
    encoders_of,
    languages_of,
    parts_of,
    split_of,
)
from pipelines.fields import check_fields
from pipelines.tasks import make_task
from pipelines.workdir import knn_settings
from t2t_keras.data.shard_writing import BlockEncoder, write_examples
from t2t_keras.data.tokenizers import tokenizer_exists
from t2t_keras.errors import InputError
from t2t_keras.tasks.text_io import map_by_length
from t2t_keras.training.callbacks import PlateauMonitor, evaluate_on
from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.optimizers import Adam, Muon
from t2t_keras.training.schedules import InverseSquareRoot, LinearDecayToZero


def check(config):
    """Returns the task of a config; InputError, before any work, for settings that can't work."""
    task, train = make_task(config), config.train
    check_fields(config)
    model = task.model_config()
    task.check()
    task.predictor.settings_type.checked(config.decode, "decode.")
    task.make_batcher(replicas=1)
    knn_settings(task)
    if train.parallel_micro_batches > train.micro_batches:
        raise InputError(
            f"train.parallel_micro_batches is {train.parallel_micro_batches}, more than "
            f"train.micro_batches {train.micro_batches}: give at most as many."
        )
    if train.keep_checkpoints < train.average_checkpoints:
        raise InputError(
            f"train.keep_checkpoints is {train.keep_checkpoints}, fewer than "
            f"train.average_checkpoints {train.average_checkpoints}: keep at least as many."
        )
    if model.position_embedding == "learned" and config.data.max_length > model.max_positions:
        raise InputError(
            f"data.max_length is {config.data.max_length}, more than model.max_positions "
            f"{model.max_positions}: raise max_positions or lower max_length."
        )
    return task


def set_numerics(config):
    """Sets seed, determinism and precision of this process.

    Training calls it after the preparation: generating or reading a corpus may draw from the global
    random state, from which Keras takes the seeds of weights and dropout.
    """
    keras.utils.set_random_seed(config.train.seed)
    if config.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(config.train.tf32)
    low = config.train.mixed_precision
    keras.mixed_precision.set_global_policy(f"mixed_{low}" if low else "float32")


def split_examples(task, workdir, part):
    """Returns a dataset of a part's text pairs, as training reads them; see `parts_of`."""
    corpus = task.training_corpus(task.make_corpus(), task.load_tokenizer(workdir.vocabulary))
    return corpus.examples(part)


def split_encoder(task, workdir, part):
    """Returns the `BlockEncoder` for the pairs of a part; see `parts_of`."""
    tokenizer = task.load_tokenizer(workdir.vocabulary)
    template = getattr(tokenizer, "languages", None)
    if split_of(part) == task.config.data.train_split:
        tokenizer = task.training_tokenizer(tokenizer)
    sides = tokenizer, task.target_tokenizer(tokenizer)
    sources, targets = encoders_of(task.config, template, *sides, part)
    return BlockEncoder(sources, task.make_filters(), targets)


def write_part(task, workdir, part):
    """Writes the token shards of a part of a split."""
    with tqdm(desc=f"tokens of {part}", unit=" pairs", disable=None) as bar:
        write_examples(
            split_examples(task, workdir, part),
            split_encoder(task, workdir, part),
            workdir.tokens,
            part,
            progress=lambda pairs: bar.update(pairs - bar.n),
        )


def prepare(task, workdir, write=write_part):
    """Learns the vocabulary and writes the token shards of a workdir, if they are missing.

    `write(task, workdir, part)` writes the shards of a part of a split, see `parts_of`.
    """
    data = task.config.data
    if not tokenizer_exists(workdir.vocabulary):
        logging.info("Learning a vocabulary of %d", task.config.model.vocab_size)
        task.train_tokenizer(task.make_corpus()).save(workdir.vocabulary)
    check_vocabulary(task.config, task.load_tokenizer(workdir.vocabulary))
    for split in (data.train_split, data.validation_split):
        for part in parts_of(task.config, split):
            if not (workdir.tokens / part).exists():
                write(task, workdir, part)


def make_optimizer(train, model):
    """Returns the optimizer of config.train for a `TransformerConfig`.

    Its schedule is the paper's, followed by a linear decay if configured.
    """
    schedule = InverseSquareRoot(model.model_dim, train.warmup_steps, train.learning_rate_scale)
    decay_steps = round(train.decay_fraction * train.steps)
    if decay_steps:
        schedule = LinearDecayToZero(schedule, train.steps, decay_steps)
    settings = {
        "epsilon": train.epsilon,
        "weight_decay": train.weight_decay or None,
        "global_clipnorm": train.global_clipnorm or None,
        "ema_decay": train.ema_decay or None,
    }
    if train.optimizer == "adam":
        return Adam(schedule, beta_1=train.beta_1, beta_2=train.beta_2, **settings)
    return Muon(
        schedule,
        adam_beta_1=train.beta_1,
        adam_beta_2=train.beta_2,
        split_kernels=_split_kernels(model),
        **settings,
    )


def _split_kernels(model):
    """Returns the widths of the matrices that the model's attention fuses, as `Muon` takes them."""
    if not model.fused_qkv:
        return {}
    key, value = model.num_heads * model.key_dim, model.num_heads * model.value_dim
    return {"qkv_projection": [key, key, value], "kv_projection": [key, value]}


def compile_model(task, model):
    """Gives the model of a task its optimizer, its loss and the metrics of training."""
    train = task.config.train
    model.micro_batches = train.micro_batches
    model.parallel_micro_batches = train.parallel_micro_batches
    model.compile(
        make_optimizer(train, task.model_config()),
        LabelSmoothedCrossEntropy(train.label_smoothing),
        weighted_metrics=task.make_metrics(),  # rows of padding have no weight
        steps_per_execution=train.steps_per_execution,
        jit_compile=train.xla,
    )


def make_validation(task, model, tokenizer, batches):
    """Returns the function that a validation calls: (model, step) → {name: float}.

    For several directions it gives the means, and each direction's values under names such as
    `validation_bleu_en-de`. The batches are {part of the validation split: its dataset}.
    """
    predict = task.make_predictor(model, tokenizer)
    directions = directions_of(task.config) or [None]
    measures = {
        direction and direction.name: _validation_of(task, model, predict, part, direction, rows)
        for direction, (part, rows) in zip(directions, batches.items(), strict=True)
    }

    def measure(_, step):
        measured = {name: measure(step) for name, measure in measures.items()}
        if None in measured:
            return measured[None]
        named = {f"{key}_{n}": value for n, row in measured.items() for key, value in row.items()}
        rows = list(measured.values())
        return {key: sum(row[key] for row in rows) / len(rows) for key in rows[0]} | named

    return measure


def _validation_of(task, model, predict, part, direction, batches):
    """Returns the function from a step to the scalars of one part of the validation split."""
    evaluate = evaluate_on(batches)
    # A task that needs no predictions, since its metrics suffice, has no such field.
    sentences = task.config.train.get("validation_sentences", 0)
    inputs, references = task.evaluation_examples(part, sentences)
    languages = languages_of(task.config, direction, predict)
    tokenization = {"tokenize": task.bleu_tokenizer(direction.target)} if direction else {}

    def measure(step):
        scalars = evaluate(model, step)
        if inputs:
            outputs = list(map_by_length(functools.partial(predict, **languages), inputs))
            score = task.score(outputs, references, **tokenization)
            scalars[f"validation_{task.metric}"] = score[task.metric]
        return scalars

    return measure


def make_plateau_monitors(task, log):
    """Returns the `PlateauMonitor`s of the validations in a `MetricsLog`."""
    name = f"validation_{task.likelihood}"
    monitors = [PlateauMonitor(log, name, "min", training=task.likelihood)]
    if task.metric != task.likelihood:
        monitors.append(PlateauMonitor(log, f"validation_{task.metric}", "max"))
    return monitors


def choose_split(task, split):
    """Returns the name that the corpus gives to "train", "validation" or "test"; else split.

    Raises:
        InputError: if the corpus also has a split of this name, or unreadable files of it.
    """
    field = f"{split}_split"
    named = task.config.data.get(field, split)
    if named != split and task.has_split(split):
        raise InputError(
            f"--split={split} may be the corpus's own split {split!r} or {named!r}, which "
            f"data.{field} names: give --config.data.{field}={split} for the first, or "
            f"--split={named} for the other."
        )
    return named
