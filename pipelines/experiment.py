"""From the fields of a config to the library's objects, and how a config departs from the paper."""

import math

import keras
import tensorflow as tf
from absl import logging
from tqdm import tqdm

from pipelines import old_fields
from pipelines.configs import wmt14_en_de_base
from pipelines.knn import knn_settings
from pipelines.tasks import make_task
from t2t_keras.data.shard_writing import BlockEncoder, write_examples
from t2t_keras.data.tokenizers import tokenizer_exists
from t2t_keras.errors import InputError
from t2t_keras.tasks.text_io import map_by_length
from t2t_keras.training.callbacks import PlateauMonitor, evaluate_on
from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.optimizers import Adam, Muon
from t2t_keras.training.schedules import InverseSquareRoot, LinearDecayToZero

# What fields must be where a task has them: at least so much, or from … to …, both included.
_AT_LEAST = {
    0: (
        "train.validation_sentences",
        "train.checkpoint_minutes",
        "train.average_checkpoints",
        "decode.max_extra_tokens",
    ),
    1: (
        "train.steps",
        "train.log_every",
        "train.validate_every",
        "train.checkpoint_every",
        "train.keep_checkpoints",
        "train.micro_batches",
        "train.parallel_micro_batches",
        "data.max_length",
        "data.subword_copies",
        "decode.beam_size",
        "decode.max_source_length",
    ),
}
_WITHIN = {
    "train.seed": (0, 2**32 - 1),
    "train.beta_1": (0, 0.99999),
    "train.beta_2": (0, 0.99999),
    "train.epsilon": (0, 1),
    "decode.length_penalty": (-100, 100),
}


def check(config):
    """Raises InputError for settings that can't work together, before anything is done."""
    old_fields.check_config(config)
    task, train = make_task(config), config.train
    task.check()
    try:
        model = task.model_config()
    except TypeError as error:
        raise InputError(
            f"config.model: {error}; the fields are those of TransformerConfig."
        ) from error
    task.make_batcher(replicas=1)
    make_optimizer(config)
    _check_limits(config)
    knn_settings(config)
    make_loss(config)
    if train.parallel_micro_batches > train.micro_batches:
        raise InputError(
            f"train.parallel_micro_batches is {train.parallel_micro_batches}, more than "
            f"train.micro_batches {train.micro_batches}: give at most as many."
        )
    if train.keep_checkpoints < train.average_checkpoints:
        raise InputError(
            f"train.keep_checkpoints is {train.keep_checkpoints}, fewer than "
            f"train.average_checkpoints {train.average_checkpoints}: keep at least as many as are "
            "averaged."
        )
    if model.position_embedding == "learned" and config.data.max_length > model.max_positions:
        raise InputError(
            f"data.max_length is {config.data.max_length}, more than model.max_positions "
            f"{model.max_positions}: learned positions hold no longer sequence."
        )


def _check_limits(config):
    for least, names in _AT_LEAST.items():
        for name in names:
            _require(config, name, least, math.inf, f"at least {least}")
    for name, (least, most) in _WITHIN.items():
        _require(config, name, least, most, f"{least} to {most}")


def _require(config, name, least, most, wanted):
    part, field = name.split(".")
    value = config[part].get(field, least)
    if not least <= value <= most:  # nan is nowhere
        raise InputError(f"{name} is {value}: give {wanted}.")


def set_numerics(config):
    """Sets seed, determinism and precision of this process."""
    keras.utils.set_random_seed(config.train.seed)
    if config.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    if config.train.mixed_precision:
        keras.mixed_precision.set_global_policy("mixed_bfloat16")


def prepare(config, workdir, write=None):
    """Brings the vocabulary and the token shards of a config into its workdir.

    Args:
        config: the experiment's config.
        workdir: `Workdir`; what is there already stays as it is.
        write: function of (config, workdir, split) that writes a split's shards; None: on this
            machine.
    """
    task, data = make_task(config), config.data
    if not tokenizer_exists(workdir.vocabulary):
        logging.info("Learning a vocabulary of %d", config.model.vocab_size)
        task.train_tokenizer(task.make_corpus()).save(workdir.vocabulary)
    for split in (data.train_split, data.validation_split):
        if not (workdir.tokens / split).exists():
            (write or _write_split)(config, workdir, split)


def split_examples(config, workdir, split):
    """Returns the pairs of text of a split as training reads them, a dataset."""
    task = make_task(config)
    corpus = task.training_corpus(task.make_corpus(), task.load_tokenizer(workdir.vocabulary))
    return corpus.examples(split)


def split_encoder(config, workdir, split):
    """Returns the `BlockEncoder` of a split's pairs."""
    task = make_task(config)
    tokenizer = task.load_tokenizer(workdir.vocabulary)
    if split == config.data.train_split:
        tokenizer = task.training_tokenizer(tokenizer)
    return BlockEncoder(tokenizer, task.make_filters(), task.target_tokenizer(tokenizer))


def _write_split(config, workdir, split):
    with tqdm(desc=f"tokens of {split}", unit=" pairs", disable=None) as bar:
        write_examples(
            split_examples(config, workdir, split),
            split_encoder(config, workdir, split),
            workdir.tokens,
            split,
            progress=lambda pairs: bar.update(pairs - bar.n),
        )


def make_batcher(config, replicas=1):
    """Returns the `Batcher` of the config's task."""
    return make_task(config).make_batcher(replicas)


def make_model(config):
    """Returns the model of the config's task with new weights."""
    return make_task(config).make_model()


def make_optimizer(config):
    """Returns the optimizer with the paper's schedule, and with a linear decay if there is one."""
    train = config.train
    schedule = InverseSquareRoot(
        config.model.model_dim, train.warmup_steps, train.learning_rate_scale
    )
    if not 0 <= train.decay_fraction <= 1:
        raise InputError(f"train.decay_fraction is {train.decay_fraction}: give 0 to 1.")
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
    if train.optimizer == "muon":
        return Muon(
            schedule,
            adam_beta_1=train.beta_1,
            adam_beta_2=train.beta_2,
            split_kernels=_split_kernels(config.model),
            **settings,
        )
    raise InputError(f"train.optimizer is {train.optimizer!r}: give 'adam' or 'muon'.")


def _split_kernels(model):
    """Returns the widths of the matrices that the model's attention fuses, as `Muon` takes them."""
    if not model.fused_qkv:
        return {}
    key_dim = model.get("key_dim") or model.model_dim // model.num_heads
    key, value = model.num_heads * key_dim, model.num_heads * (model.get("value_dim") or key_dim)
    return {"qkv_projection": [key, key, value], "kv_projection": [key, value]}


def make_loss(config):
    """Returns the loss, label-smoothed cross-entropy."""
    return LabelSmoothedCrossEntropy(config.train.label_smoothing)


def compile_model(config, model):
    """Gives the model its optimizer, its loss and the metrics of training.

    Args:
        config: the experiment's config.
        model: the model of its task.
    """
    model.micro_batches = config.train.micro_batches
    model.parallel_micro_batches = config.train.parallel_micro_batches
    model.compile(
        make_optimizer(config), make_loss(config), metrics=make_task(config).make_metrics()
    )


def make_validation(config, model, tokenizer, batches):
    """Returns what to measure at a validation: (model, step) → {name: float}.

    Args:
        config: the experiment's config.
        model: the compiled model.
        tokenizer: `Tokenizer`.
        batches: dataset of the validation split, as `fit` takes it.
    """
    evaluate = evaluate_on(batches)
    task, split = make_task(config), config.data.validation_split
    predict = task.make_predictor(model, tokenizer)
    # A task whose metrics in training say it all has no such field.
    inputs, references = task.questions(split, config.train.get("validation_sentences", 0))

    def measure(model, step):
        scalars = evaluate(model, step)
        if inputs:
            score = task.score(list(map_by_length(predict, inputs)), references)
            scalars[f"validation_{task.metric}"] = score[task.metric]
        return scalars

    return measure


def make_plateau_monitors(config, log):
    """Returns the `PlateauMonitor`s of the validations in a `MetricsLog`."""
    task = make_task(config)
    return [
        PlateauMonitor(log, f"validation_{task.likelihood}", "min", training=task.likelihood),
        PlateauMonitor(log, f"validation_{task.metric}", "max"),
    ]


def departures(config):
    """Returns one line for each field whose value is not that of the paper's base model."""
    paper = wmt14_en_de_base.get_config()
    return [
        f"{part}.{field} = {value!r} (the paper's base model: {paper[part].get(field)!r})"
        for part in paper
        if part != "task"
        for field, value in config[part].items()
        if value != paper[part].get(field)
    ]
