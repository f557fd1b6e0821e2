"""The sweep of Table 3: the config of each row, and the workdirs in which the rows are trained."""

import json
import os

from shared import metrics_rows, trained
from absl import logging

from pipelines import experiment
from pipelines.configs import table3
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError

_WIDTHS = ("model_dim", "feed_forward_dim", "key_dim", "value_dim")
_LAYERS = ("num_encoder_layers", "num_decoder_layers")


def row_config(corpus, row, steps, size_factor=1.0, layer_factor=1.0):
    """Returns the config of a row of Table 3 on some corpus, scaled.

    The row replaces the model and the regularization in the config `corpus`. `steps` are those of
    the rows that the paper trains for 100,000. The factors are widths and numbers of layers over
    the paper's, at least one layer.
    """
    paper, config = table3.get_config(row), corpus.copy_and_resolve_references()
    config.model.update(paper.model)
    config.model.vocab_size = corpus.model.vocab_size
    for field in _WIDTHS:
        if config.model[field]:
            config.model[field] = max(1, round(size_factor * paper.model[field]))
    for field in _LAYERS:
        config.model[field] = max(1, round(layer_factor * paper.model[field]))
    if not config.model.key_dim and config.model.model_dim % config.model.num_heads:
        raise InputError(
            f"row {row} has {config.model.num_heads} heads, which do not divide its model_dim "
            f"{config.model.model_dim} at size_factor {size_factor}: give a multiple of 1/16."
        )
    base_steps = table3.get_config().train.steps
    config.train.steps = round(steps * paper.train.steps / base_steps)
    # The rate keeps its peak and its course when the training is shorter or longer.
    share = steps / corpus.train.steps
    warmup = max(1, round(share * corpus.train.warmup_steps))
    scale = corpus.train.learning_rate_scale * (warmup / corpus.train.warmup_steps) ** 0.5
    config.train.update(warmup_steps=warmup, learning_rate_scale=scale)
    config.train.validate_every = config.train.steps
    for field in ("label_smoothing", "average_checkpoints"):
        config.train[field] = paper.train[field]
    return config


def measured(path, config):
    """Returns (perplexity, BLEU) of a row's workdir, or None before the end of its training."""
    workdir = Workdir(path)
    if not workdir.path.exists():
        return None
    # As values: the fields of a loaded config stand in another order.
    held, wanted = (json.loads(c.to_json()) for c in (workdir.load_config(), config))
    if held != wanted:
        raise InputError(
            f"{workdir.path} belongs to a sweep with another scale or corpus: give another "
            "--output_dir, or the flags of that sweep."
        )
    for line in metrics_rows(workdir):
        if int(line["step"]) == config.train.steps and line.get("validation_perplexity"):
            return float(line["validation_perplexity"]), float(line["validation_bleu"])
    return None


def train_row(path, config):
    """Trains a row or resumes its training; rows side by side share one vocabulary and tokens."""
    logging.info("Training row %s", path)
    corpus, workdir = Workdir(os.path.join(os.path.dirname(path), "corpus")), Workdir(path)
    experiment.prepare(make_task(config), corpus)
    workdir.save_config(config)
    for part in (corpus.vocabulary, corpus.tokens):
        link = workdir.path / part.name
        if not link.is_symlink():
            link.symlink_to(os.path.relpath(part, workdir.path), target_is_directory=True)
    trained(config, path)
