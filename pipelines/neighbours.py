"""From config.neighbours to a model that remembers its training text."""

from pipelines.tasks import make_task
from t2t_keras.data.batching import LengthBuckets
from t2t_keras.data.streams import evaluation_batches
from t2t_keras.errors import InputError
from t2t_keras.models.neighbours import check_settings, remembering


def neighbour_settings(config):
    """Returns the arguments of `remembering`; None where no neighbours are wanted.

    Raises:
        InputError: if a field is out of its range, or the task has no neighbours.
    """
    wanted = config.neighbours
    if wanted.count < 0:
        raise InputError(f"neighbours.count is {wanted.count}: give 0 for none, or how many.")
    if not wanted.count:
        return None
    if make_task(config).metric != "bleu":
        raise InputError(f"neighbours.count is {wanted.count}: give 0, they are for translation.")
    settings = {
        "neighbours": wanted.count,
        "temperature": wanted.temperature,
        "share": wanted.share,
        "entries": wanted.entries,
    }
    check_settings(**settings)
    return settings


def with_neighbours(config, model, tokens):
    """Returns what remembers the training text, if the config wants neighbours, else the model.

    Args:
        config: the experiment's config.
        model: the trained model of its task.
        tokens: folder of token shards.

    Raises:
        InputError: if the shards of the training split are missing, or the task has no neighbours.
    """
    settings = neighbour_settings(config)
    if settings is None:
        return model
    # Each pair in a row of its own, however the training had them.
    batcher = LengthBuckets(config.data.tokens_per_batch)
    try:
        batches = evaluation_batches(tokens, config.data.train_split, batcher)
    except InputError as error:
        raise InputError(f"neighbours: {error}, or give --neighbours=0") from error
    return remembering(model, batches, **settings)
