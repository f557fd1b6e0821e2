"""What tasks share that write a sequence of tokens: the Transformer and how it is trained."""

from t2t_keras.data.batching import LengthBuckets, Packing
from t2t_keras.data.shard_writing import Filters
from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.training.metrics import Perplexity, TokenAccuracy


class SequenceTask:
    """A task whose targets are sequences of the vocabulary that the sources have.

    Args:
        config: the experiment's config.

    Attributes:
        likelihood: name of the metric that says how likely the targets are; less is better.
        monitor: (name, "min" or "max"), the scalar by which a validation is the best one.
    """

    likelihood = "perplexity"
    monitor = ("validation_perplexity", "min")

    def __init__(self, config):
        self._config = config

    def model_config(self):
        """Returns the `TransformerConfig` of config.model."""
        return TransformerConfig(**self._config.model)

    def make_model(self):
        """Returns the model with new weights."""
        return Transformer(self.model_config())

    def make_metrics(self):
        """Returns what is watched in training, a list of metrics."""
        return [Perplexity(), TokenAccuracy()]

    def make_filters(self):
        """Returns the `Filters` of the training text."""
        data = self._config.data
        return Filters(data.max_length, data.max_length_ratio)

    def target_tokenizer(self, tokenizer):
        """Returns what makes targets ids: the `tokenizer` of the sources, if they are text."""
        return tokenizer

    def make_batcher(self, replicas):
        """Returns the `Batcher` that config.data.batching names, for so many replicas."""
        data = self._config.data
        if data.batching == "buckets":
            return LengthBuckets(data.tokens_per_batch, batch_multiple=replicas)
        if data.batching == "packed":
            return Packing(data.tokens_per_batch, row_length=data.max_length)
        raise InputError(f"data.batching is {data.batching!r}: give 'buckets' or 'packed'.")
