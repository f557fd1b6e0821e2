"""The encoder as a classifier: encoder, pooling, one linear layer."""

import dataclasses

import keras

from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers.dropout import Dropout
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.pooling import POOLINGS
from t2t_keras.layers.word_dropout import WordDropout
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.encoder import Encoder
from t2t_keras.models.micro_batches import MicroBatchedModel
from t2t_keras.models.one_trace import OnceTracedModel
from t2t_keras.models.replicated import ReplicatedModel
from t2t_keras.models.two_passes import TwoPassModel

_OF_PROBABILITIES = {
    "sparse_categorical_crossentropy": keras.losses.SparseCategoricalCrossentropy,
    "categorical_crossentropy": keras.losses.CategoricalCrossentropy,
}


@keras.saving.register_keras_serializable(package="t2t_keras")
class TransformerClassifier(OnceTracedModel, ReplicatedModel, TwoPassModel, MicroBatchedModel):
    """Classifies sequences of ids with the encoder of the Transformer.

    Its weights exist as soon as it is made. It is an ordinary Keras model: compile it with a loss
    that takes logits. `window` of the config restricts self-attention, for long documents: the
    memory of a batch then grows with its length, not with the square.

    Args:
        config: `TransformerConfig`, or its fields as a dict; `decoder_layers`,
            `source_word_dropout` and `target_word_dropout` play no part.
        classes: number of classes, at least 2.
        pooling: "mean" or "max" over all positions that are not padding, "first" for the first of
            them, or "attention" for a mean with learned weights.
        head_dropout: share of the pooled vector that is dropped in training.
        word_dropout: share of the ids that are left out in training.

    Call arguments:
        inputs: int [batch, length], 0 on padding, wherever it stands; or a dict that has them
            as "source_ids".
        training: whether to drop out; `fit` says yes.

    Returns:
        Logits of the classes, float32 [batch, classes].

    Raises:
        InputError: if an argument is out of its range, sequences have length 0, or a loss takes
            probabilities.

    Example:
        >>> config = t2t_keras.TransformerConfig.tiny(vocab_size=8000)
        >>> model = t2t_keras.TransformerClassifier(config, classes=2)
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model.compile("adam", loss, metrics=["accuracy"])
        >>> model.fit(ids, labels, epochs=3)
    """

    def __init__(
        self, config, classes, pooling="mean", head_dropout=0.1, word_dropout=0.0, **kwargs
    ):
        super().__init__(**kwargs)
        self.config = TransformerConfig(**config) if isinstance(config, dict) else config
        require_whole_number("classes", classes, least=2)
        if pooling not in POOLINGS:
            raise InputError(f"pooling is {pooling!r}: give one of {', '.join(POOLINGS)}.")
        for name, rate in (("head_dropout", head_dropout), ("word_dropout", word_dropout)):
            if not 0.0 <= rate < 1.0:
                raise InputError(f"{name} is {rate}: give a share from 0 to below 1.")
        self.classes = classes
        self.pooling = pooling
        # Texts vary in length: compile(jit_compile="auto") would compile anew for every length.
        self.supports_jit = False
        config, dtype = self.config, self.dtype_policy
        self.word_dropout = WordDropout(word_dropout, name="word_dropout")
        self.embedding = SharedEmbedding(
            config.vocab_size, config.model_dim, dtype=dtype, name="embedding"
        )
        self.positions = config.make_positions(dtype=dtype, name="positions")
        self.embedding_dropout = Dropout(config.dropout, dtype=dtype, name="embedding_dropout")
        self.self_masks = config.make_self_masks()
        self.encoder = Encoder(config, dtype=dtype, name="encoder")
        self.pool = POOLINGS[pooling](dtype=dtype, name="pool")
        self.head_dropout = Dropout(head_dropout, dtype=dtype, name="head_dropout")
        self.head = keras.layers.Dense(classes, dtype="float32", name="head")
        for layer in (self.embedding, self.positions, self.pool):
            layer.build((None, None, config.model_dim))
        self.head.build((None, config.model_dim))
        self.built = True

    @property
    def max_length(self):
        """The longest sequence that the positions can tell apart; None without a limit."""
        return self.positions.max_positions

    def call(self, inputs, training=None):
        # `fit` tells only a model that takes `training`; from here Keras tells the layers.
        ids = inputs["source_ids"] if isinstance(inputs, dict) else inputs
        if ids.shape[1] == 0:
            raise InputError(
                f"A batch of ids has shape {tuple(ids.shape)}, sequences of length 0: give each "
                "sequence at least its end id."
            )
        ids = self.word_dropout(ids)
        x = self.embedding_dropout(self.positions(self.embedding(ids)))
        x = self.encoder(x, attention_mask=self.self_masks.whole(ids))  # [batch, length, model_dim]
        pooled = self.pool(x, real=ids != 0)  # [batch, model_dim]
        return self.head(self.head_dropout(pooled))

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        _require_logits(self.loss)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def get_config(self):
        return super().get_config() | {
            "config": dataclasses.asdict(self.config),
            "classes": self.classes,
            "pooling": self.pooling,
            "head_dropout": self.head_dropout.rate,
            "word_dropout": self.word_dropout.rate,
        }


def _require_logits(loss):
    """Refuses Keras's losses of probabilities: with logits they would train, and badly."""
    name = getattr(loss, "name", getattr(loss, "__name__", loss))  # of a loss, a function, a str
    takes_them = name in _OF_PROBABILITIES or isinstance(loss, tuple(_OF_PROBABILITIES.values()))
    config = getattr(loss, "get_config", dict)()
    if takes_them and not config.get("from_logits"):
        raise InputError(
            f"loss is {name!r}, which takes probabilities, and this model gives logits: give "
            "keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        )
