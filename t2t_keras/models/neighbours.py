"""What a model has read before helps it to predict: k nearest neighbours.

Khandelwal et al. 2021, "Nearest Neighbor Machine Translation". For every target token of some text,
as a rule the training text, a store keeps the vector that the decoder had before it and the token
that came. Where a new vector is near to stored ones, their tokens are likely:

    P(y | h) = (1 - λ) · P_model(y | h) + λ · Σ_i softmax_i(-|h - h_i|² / T) · [y_i = y],

the sum over the k nearest stored vectors h_i.
"""

import functools
import math

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers.nearest import in_blocks, nearest


def remembering(model, batches, **settings):
    """Returns a `NeighbourTransformer` that remembers some text.

    Args:
        model: `Transformer`, trained.
        batches: dataset or iterable of `(inputs, labels, ...)` as `fit` takes them, such as
            `t2t_keras.encode_pairs` makes; labels of 0 are padding.
        **settings: `neighbours`, `temperature` and `share` of `NeighbourTransformer`.

    Raises:
        InputError: if the batches hold no token, or a setting is out of its range.

    Example:
        >>> model = remembering(model, batches, neighbours=16, temperature=10.0, share=0.3)
        >>> translator = t2t_keras.Translator(model, tokenizer)
    """
    check_settings(**settings)
    read = tf.function(functools.partial(_met, model), reduce_retracing=True)
    keys, tokens = [], []
    for inputs, labels, *_ in batches:
        vectors, met = read(inputs, labels)
        keys.append(vectors.numpy())
        tokens.append(met.numpy())
    if not sum(map(len, tokens)):
        raise InputError("there is nothing to remember: give batches that hold a token at least.")
    keys, tokens = np.concatenate(keys), np.concatenate(tokens)
    logging.info("Remembered %s tokens", f"{len(tokens):,}")
    return NeighbourTransformer(model, keys, tokens, **settings)


def _met(model, inputs, labels):
    """Returns the vectors before labels, float32 [tokens, model_dim], and these, [tokens]."""
    real = labels != 0
    return tf.boolean_mask(tf.cast(model.hidden(inputs), tf.float32), real), labels[real]


class NeighbourTransformer(keras.Model):
    """A trained model whose predictions are mixed with what it remembers.

    It stands wherever searches, scores and exports take a `Transformer`; to train on, train that.
    A step of decoding compares each hypothesis with every stored vector, which takes several times
    as long as the step of a small model. Of a base model it is a smaller part.

    Args:
        model: `Transformer`.
        keys: float [tokens, model_dim], what its `hidden` gives before each token.
        tokens: int [tokens], the tokens that came.
        neighbours: k, how many stored vectors have a say, 16,384 at most.
        temperature: T, in the unit of squared distances; the lower, the less the farther ones say.
        share: λ, 0 up to less than 1: 0 leaves the model alone.

    Call arguments:
        inputs: as the model takes them.

    Returns:
        log P of the next token, float32 [batch, target, vocab_size].

    Raises:
        InputError: if a setting is out of its range, or the store does not fit the model.
    """

    def __init__(self, model, keys, tokens, neighbours=16, temperature=10.0, share=0.3):
        super().__init__(dtype=model.dtype_policy, name="neighbour_transformer")
        check_settings(neighbours, temperature, share)
        keys, tokens = np.asarray(keys, np.float32), np.asarray(tokens, np.int32)
        width = model.config.model_dim
        if not len(tokens) or keys.shape != (len(tokens), width):
            raise InputError(
                f"keys have shape {keys.shape} for {len(tokens)} tokens: give a vector of width "
                f"{width} for each token, and one token at least."
            )
        self.model = model
        self.temperature = temperature
        self.share = share
        blocks, self._block = in_blocks(len(tokens))
        self.neighbours = min(neighbours, self._block)
        missing = blocks * self._block - len(tokens)
        squares = np.square(keys, dtype=np.float64).sum(axis=1)
        self.keys = self._keep("keys", np.pad(keys, [(0, missing), (0, 0)]))
        self.squares = self._keep("squares", np.pad(squares, (0, missing), constant_values=np.inf))
        self.tokens = self._keep("tokens", np.pad(tokens, (0, missing)), "int32")
        self.built = True

    def _keep(self, name, value, dtype="float32"):
        weight = self.add_weight(
            name=name, shape=value.shape, dtype=dtype, initializer="zeros", trainable=False
        )
        weight.assign(value)
        return weight

    @property
    def config(self):
        """The model's `TransformerConfig`."""
        return self.model.config

    @property
    def max_length(self):
        """The longest sequence that the model can read; None without a limit."""
        return self.model.max_length

    def call(self, inputs):
        hidden = self.model.hidden(inputs)
        rows = tf.reshape(hidden, [-1, hidden.shape[-1]])
        mixed = self._mix(rows, self.model.embedding.logits(rows))
        return tf.reshape(mixed, [*tf.unstack(tf.shape(hidden)[:-1]), mixed.shape[-1]])

    def attention(self, inputs):
        """Returns the model's `AttentionWeights` of inputs."""
        return self.model.attention(inputs)

    def encode(self, source_ids):
        """Returns the model's `Memory` of source_ids, int32 [batch, source]."""
        return self.model.encode(source_ids)

    def initial_state(self, memory, beams):
        """Returns the model's `DecoderState` of hypotheses without a token."""
        return self.model.initial_state(memory, beams)

    def make_step(self):
        """Returns `step` for a whole search, function of (ids, state)."""
        multiply = self.model.embedding.columns()
        return lambda ids, state: self.model.step(
            ids, state, lambda hidden: self._mix(hidden, tf.cast(multiply(hidden), tf.float32))
        )

    def for_rows(self, rows, search):
        """Returns search(step); see `Transformer.for_rows`."""
        del rows
        return search(self.make_step())

    def step(self, ids, state):
        """Reads one more token of every hypothesis, see `Transformer.step`; log P for logits."""
        return self.make_step()(ids, state)

    def reorder(self, state, parents):
        """Lets each hypothesis go on from another one, see `Transformer.reorder`."""
        return self.model.reorder(state, parents)

    def _mix(self, hidden, logits):
        """Returns log P, float32 [rows, vocab], of hidden [rows, width] and logits."""
        width, vocab = hidden.shape[-1], self.config.vocab_size
        values, places = nearest(
            tf.cast(hidden, tf.float32),
            tf.reshape(tf.convert_to_tensor(self.keys), [-1, self._block, width]),
            tf.reshape(tf.convert_to_tensor(self.squares), [-1, self._block]),
            self.neighbours,
        )
        says = tf.nn.softmax(values / self.temperature)  # [rows, neighbours]
        rows = tf.shape(says)[0]
        tokens = tf.gather(tf.convert_to_tensor(self.tokens), places)  # [rows, neighbours]
        numbers = tf.broadcast_to(tf.range(rows)[:, tf.newaxis], tf.shape(tokens))
        remembered = tf.scatter_nd(tf.stack([numbers, tokens], axis=2), says, [rows, vocab])
        return tf.math.log((1 - self.share) * tf.nn.softmax(logits) + self.share * remembered)


def check_settings(neighbours=16, temperature=10.0, share=0.3):
    """Raises InputError for settings of `NeighbourTransformer` that are out of their range."""
    require_whole_number("neighbours", neighbours, 1)
    if not 0 < temperature < math.inf:
        raise InputError(f"temperature is {temperature}: give a number above 0.")
    if not 0 <= share < 1:
        raise InputError(f"share is {share}: give 0 up to less than 1.")
