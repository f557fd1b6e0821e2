"""Makes the kNN-MT model that `config.knn` describes, with the training text as its datastore."""

from pipelines.tasks import tokens_per_batch
from t2t_keras.data.batching import LengthBuckets
from t2t_keras.data.streams import evaluation_batches
from t2t_keras.errors import InputError
from t2t_keras.models.knn import KNNTransformer, build_datastore


def knn_settings(task):
    """Returns the settings of `KNNTransformer`, a dict; None if config.knn.k is 0.

    Raises:
        InputError: if the task is not translation of one corpus.
    """
    settings = dict(task.config.knn)
    if not settings["k"]:
        return None
    if task.metric != "bleu":
        raise InputError(f"knn.k is {settings['k']}: give 0, kNN-MT is for translation.")
    if task.config.data.get("corpora"):
        raise InputError(f"knn.k is {settings['k']}: give 0, kNN-MT is for one corpus.")
    return settings


def with_knn(task, model, tokens):
    """Returns the `KNNTransformer` of the training text; the model itself if config.knn.k is 0.

    Args:
        task: the experiment's task.
        model: its trained model.
        tokens: folder of token shards.

    Raises:
        InputError: if the shards of the training split are missing, or a field is out of its
            range.
    """
    settings = knn_settings(task)
    if settings is None:
        return model
    # Each pair in a row of its own, whatever the batching of the training.
    batcher = LengthBuckets(tokens_per_batch(task.config))
    try:
        batches = evaluation_batches(tokens, task.config.data.train_split, batcher)
    except InputError as error:
        raise InputError(f"kNN-MT: {error}, or give --knn_k=0") from error
    return KNNTransformer(model, build_datastore(model, batches), **settings)
