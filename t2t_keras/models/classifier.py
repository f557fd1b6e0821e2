"""The encoder as a classifier: encoder, pooling, one linear layer."""

import dataclasses

import keras
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError, require_rate, require_whole_number
from t2t_keras.layers.attention import Sequences
from t2t_keras.layers.basic import Dropout, next_seed
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.pooling import POOLINGS
from t2t_keras.layers.value_checks import Limit, require_sequences
from t2t_keras.models import parts
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.trainable_model import TrainableModel
from t2t_keras.models.transformer import Encoder


@keras.saving.register_keras_serializable(package="t2t_keras")
class WordDropout(keras.layers.Layer):
    """Replaces some ids by padding in training (Iyyer et al. 2015); attention then skips them.

    The rate, a fraction of the ids, is at least 0 and less than 1. Ids are integers [batch,
    length], 0 on padding.
    """

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate = rate
        # No state without a rate: checkpoints without word dropout have none.
        self.seed_generator = keras.random.SeedGenerator() if rate else None
        self.built = True

    def call(self, ids, training=None):
        if not training or not self.rate:
            return ids
        draws = tf.random.stateless_uniform(tf.shape(ids), next_seed(self.seed_generator))
        return tf.where(draws < self.rate, tf.zeros_like(ids), ids)

    def compute_output_shape(self, input_shape):
        return input_shape

    def get_config(self):
        return super().get_config() | {"rate": self.rate}


@keras.saving.register_keras_serializable(package="t2t_keras")
class OutputLinear(keras.layers.Dense):
    """A `keras.layers.Dense` whose kernel is named `output_kernel`: `Muon` updates it by Adam."""

    def add_weight(self, *args, name=None, **kwargs):
        name = "output_kernel" if name == "kernel" else name
        return super().add_weight(*args, name=name, **kwargs)


@keras.saving.register_keras_serializable(package="t2t_keras")
class TransformerClassifier(TrainableModel):
    """Classifies sequences of ids: the encoder of the Transformer, pooling, one linear layer.

    The weights exist as soon as the model is made. Compile it with a loss that takes logits.
    `attention_window` of the config restricts self-attention for long documents: memory then grows
    with their length, not with its square.

    Args:
        config: its `num_decoder_layers` has no effect.
        classes: number of classes, at least 2.
        pooling: "mean" or "max" over all positions that are not padding, "first" for the first of
            them, or "attention" for a mean with learned weights.
        head_dropout: rate at which the pooled vector is dropped in training.
        word_dropout: rate at which ids are replaced by padding in training.

    Call arguments:
        inputs: int [batch, length], 0 on padding, at any position; or a dict that contains
            them as "source_ids".
        training: whether to apply dropout; `fit` passes True.

    Returns:
        Logits of the classes, float32 [batch, classes].

    Raises:
        InputError: if an argument is out of its range, a loss takes probabilities, or for inputs
            that a `Transformer` refuses.

    Example:
        >>> config = t2t.TransformerConfig.tiny(vocab_size=8000)
        >>> model = t2t.TransformerClassifier(config, classes=2)
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model.compile("adam", loss, metrics=["accuracy"])
        >>> ids, labels = np.array([[5, 8, 2, 0], [7, 9, 9, 4]]), np.array([0, 1])
        >>> history = model.fit(ids, labels, epochs=3, verbose=0)
    """

    def __init__(
        self,
        config: TransformerConfig | dict,
        classes: int,
        pooling: str = "mean",
        head_dropout: float = 0.1,
        word_dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.config = TransformerConfig.of(config)
        classes = require_whole_number("classes", classes, least=2)
        if pooling not in POOLINGS:
            raise InputError(f"pooling is {pooling!r}: give one of {', '.join(POOLINGS)}.")
        require_rate("head_dropout", head_dropout)
        require_rate("word_dropout", word_dropout)
        self.classes = classes
        self.pooling = pooling
        config, dtype = self.config, self.dtype_policy
        self.word_dropout = WordDropout(word_dropout, name="word_dropout")
        self.embedding = SharedEmbedding(
            config.vocab_size,
            config.model_dim,
            config.scale_embedding,
            dtype=dtype,
            name="embedding",
        )
        self.positions = parts.make_positions(config, dtype=dtype, name="positions")
        self.embedding_dropout = Dropout(config.dropout, dtype=dtype, name="embedding_dropout")
        self.encoder = Encoder(config, dtype=dtype, name="encoder")
        self.pool = POOLINGS[pooling](dtype=dtype, name="pool")
        self.head_dropout = Dropout(head_dropout, dtype=dtype, name="head_dropout")
        self.head = OutputLinear(classes, dtype="float32", name="head")
        for layer in (self.word_dropout, self.embedding):
            layer.build((None, None))
        for layer in (self.positions, self.embedding_dropout, self.encoder, self.pool):
            layer.build((None, None, config.model_dim))
        for layer in (self.head_dropout, self.head):
            layer.build((None, config.model_dim))
        self.built = True

    @property
    def max_length(self) -> int | None:
        """The maximum sequence length of the position embedding; None without a limit."""
        return self.positions.max_positions

    @property
    def limits(self):
        """The `Limit`s of ids and labels."""
        vocab_size = self.config.vocab_size
        return {"source_ids": Limit.of_ids(vocab_size), "labels": Limit.of_classes(self.classes)}

    @property
    def input_signature(self) -> tf.TensorSpec:
        """The inputs that a call needs, a `tf.TensorSpec`."""
        return tf.TensorSpec([None, None], tf.int32, "source_ids")

    def call(self, inputs: tf.Tensor | dict, training: bool | None = None) -> tf.Tensor:
        del training  # Keras hands it to the layers
        if isinstance(inputs, dict) and "source_ids" not in inputs:
            raise InputError(
                f"inputs are {list(inputs)}: give ids [batch, length], or a dict of source_ids."
            )
        ids = inputs["source_ids"] if isinstance(inputs, dict) else inputs
        require_sequences(ids)
        self.require_in_range(inputs)
        ids = self.word_dropout(ids)
        mask = ops.is_token(ids)
        x = self.embedding_dropout(self.positions(self.embedding(ids), mask=mask))
        x = self.encoder(x, Sequences(mask=mask))  # [batch, length, model_dim]
        pooled = self.pool(x, mask=mask)  # [batch, model_dim]
        return self.head(self.head_dropout(pooled))

    def get_config(self) -> dict:
        config = {"config": dataclasses.asdict(self.config)}
        return super().get_config() | config | self.head_settings

    @property
    def head_settings(self):
        """The arguments of the constructor except config, a dict."""
        return {
            "classes": self.classes,
            "pooling": self.pooling,
            "head_dropout": self.head_dropout.rate,
            "word_dropout": self.word_dropout.rate,
        }
