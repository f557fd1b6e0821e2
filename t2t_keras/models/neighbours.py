"""What a model has read before helps it to predict: k nearest neighbours.

Khandelwal et al. 2021, "Nearest Neighbor Machine Translation". For every target token of some text,
as a rule the training text, a store keeps the vector that the decoder had before it and the token
that came. Where a new vector is near to stored ones, their tokens are likely:

    P(y | h) = (1 - λ) · P_model(y | h) + λ · Σ_i softmax_i(-|h - h_i|² / T) · [y_i = y],

the sum over the k nearest stored vectors h_i. As Deguchi et al. 2023 ("Subset Retrieval Nearest
Neighbor Machine Translation"), a sentence is compared only with the pairs whose sources are most
like its own.
"""

import math
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers.fixed_weight import add_fixed
from t2t_keras.layers.similar_texts import SimilarTexts
from t2t_keras.models.datastore import check_datastore, read_datastore
from t2t_keras.ops.top_k import top_k


def remembering(model, batches, **settings):
    """Returns a `NeighbourTransformer` that remembers some text.

    Args:
        model: `Transformer`, trained.
        batches: dataset or iterable of `(inputs, labels, ...)` as `fit` takes them, a pair in each
            row.
        **settings: `neighbours`, `temperature`, `share` and `entries` of `NeighbourTransformer`.

    Raises:
        InputError: if the batches hold no token, or a setting is out of its range.

    Example:
        >>> batches = t2t_keras.LengthBuckets(4096)(t2t_keras.encode_pairs(pairs, tokenizer))
        >>> model = remembering(model, batches, neighbours=16, temperature=20.0, share=0.25)
        >>> translator = t2t_keras.Translator(model, tokenizer)
    """
    check_settings(**settings)
    return NeighbourTransformer(model, read_datastore(model, batches), **settings)


class _Entries(NamedTuple):
    """What a sentence is compared with.

    Attributes:
        keys: float32 [batch, entries, model_dim].
        squares: float32 [batch, entries], the keys' squared lengths; inf where there is none.
        tokens: int32 [batch, entries].
    """

    keys: tf.Tensor
    squares: tf.Tensor
    tokens: tf.Tensor


class _Remembered(NamedTuple):
    """Something of the model's, and the `_Entries` beside it."""

    of_model: Any
    entries: _Entries


class NeighbourTransformer(keras.Model):
    """A trained model whose predictions are mixed with what it remembers.

    It stands wherever searches, scores and exports take a `Transformer`; to train on, train that.

    Args:
        model: `Transformer`.
        pairs: `Datastore`.
        neighbours: k, how many stored vectors have a say.
        temperature: T, in the unit of squared distances; the lower, the less the farther ones say.
        share: λ, 0 up to less than 1: 0 leaves the model alone.
        entries: how many tokens of similar pairs a sentence is compared with at each step, some
            more or less where pairs are longer or shorter than others. They take 4 · model_dim
            bytes each for each sentence of a batch, and reading them most of the time.

    Call arguments:
        inputs: as the model takes them.

    Returns:
        log P of the next token, float32 [batch, target, vocab_size].

    Raises:
        InputError: if a setting is out of its range, or the store does not fit the model.
    """

    def __init__(
        self, model, pairs, neighbours=16, temperature=20.0, share=0.25, entries=8_192, **kwargs
    ):
        super().__init__(dtype=model.dtype_policy, **kwargs)
        check_settings(neighbours, temperature, share, entries)
        check_datastore(pairs, model.config.model_dim)
        self.model = model
        self.entries = min(entries, len(pairs.tokens))
        self.neighbours = min(neighbours, self.entries)
        self.temperature = temperature
        self.share = share
        self.similar = SimilarTexts(pairs.sources, model.config.vocab_size)
        pairs_wanted = math.ceil(self.entries * len(pairs.sources) / len(pairs.tokens))
        self._pairs_wanted = min(pairs_wanted, len(pairs.sources))
        self.begins = add_fixed(self, "begins", np.cumsum([0, *pairs.lengths]), "int32")
        self.keys = add_fixed(self, "keys", pairs.keys, "float32")
        squares = np.square(pairs.keys, dtype=np.float64).sum(axis=1)
        self.squares = add_fixed(self, "squares", squares, "float32")
        self.tokens = add_fixed(self, "tokens", pairs.tokens, "int32")
        self.built = True

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
        places = self._places(inputs["source_ids"])
        logits = self.model.embedding.logits(hidden)

        def mix_row(row):
            hidden, logits, places = (tensor[tf.newaxis] for tensor in row)
            return self._mix(hidden, logits, self._gather(places))[0]

        return tf.map_fn(
            mix_row,
            (hidden, logits, places),
            fn_output_signature=tf.float32,
            parallel_iterations=1,  # the entries of all would fill the memory
        )

    def attention(self, inputs):
        """Returns the model's `AttentionWeights` of inputs."""
        return self.model.attention(inputs)

    def encode(self, source_ids):
        """Returns what decoding needs of source_ids, int32 [batch, source]."""
        entries = self._gather(self._places(source_ids))
        return _Remembered(self.model.encode(source_ids), entries)

    def initial_state(self, memory, beams):
        """Returns the state of hypotheses without a token, see `Transformer.initial_state`."""
        return memory._replace(of_model=self.model.initial_state(memory.of_model, beams))

    def make_step(self):
        """Returns `step` for a whole search, function of (ids, state)."""
        multiply = self.model.embedding.columns()

        def step(ids, state):
            def log_probabilities(hidden):
                beams = [-1, ids.shape[1]]
                logits = tf.cast(multiply(hidden), tf.float32)
                return self._mix(
                    tf.reshape(hidden, [*beams, self.config.model_dim]),
                    tf.reshape(logits, [*beams, self.config.vocab_size]),
                    state.entries,
                )

            logits, of_model = self.model.step(ids, state.of_model, log_probabilities)
            return logits, state._replace(of_model=of_model)

        return step

    def for_rows(self, rows, search):
        """Returns search(step), as `Transformer.for_rows`, but always with the one `make_step`."""
        del rows
        return search(self.make_step())

    def reorder(self, state, parents):
        """Lets each hypothesis go on from another one, see `Transformer.reorder`."""
        return state._replace(of_model=self.model.reorder(state.of_model, parents))

    def _places(self, source_ids):
        """Returns which tokens of the store are for each source; -1: none; [batch, entries]."""
        pairs = self.similar.find(source_ids, self._pairs_wanted)  # [batch, pairs]
        begins = tf.convert_to_tensor(self.begins)
        places = tf.ragged.range(
            tf.gather(begins, tf.reshape(pairs, [-1])),
            tf.gather(begins[1:], tf.reshape(pairs, [-1])),
        )
        splits = places.row_splits[:: self._pairs_wanted]
        places = tf.RaggedTensor.from_row_splits(places.values, splits)
        return places.to_tensor(-1, shape=[None, self.entries])

    def _gather(self, places):
        """Returns the `_Entries` at places, int32 [batch, entries]."""
        real = tf.maximum(places, 0)
        squares = tf.gather(tf.convert_to_tensor(self.squares), real)
        return _Entries(
            tf.gather(tf.convert_to_tensor(self.keys), real),
            tf.where(places < 0, math.inf, squares),
            tf.gather(tf.convert_to_tensor(self.tokens), real),
        )

    def _mix(self, hidden, logits, entries):
        """Returns log P, float32 [batch, rows, vocab].

        Args:
            hidden: [batch, rows, model_dim].
            logits: float32 [batch, rows, vocab].
            entries: `_Entries`.
        """
        batch, rows = tf.unstack(tf.shape(logits)[:2])
        # Less |hidden|², which is the same for all: the softmax does not see it.
        nearness = 2 * tf.matmul(tf.cast(hidden, tf.float32), entries.keys, transpose_b=True)
        nearness -= entries.squares[:, tf.newaxis]  # [batch, rows, entries]
        nearness, places = top_k(tf.reshape(nearness, [-1, self.entries]), self.neighbours)
        says = tf.nn.softmax(nearness / self.temperature)  # [batch · rows, neighbours]
        places = tf.reshape(places, [batch, rows * self.neighbours])
        tokens = tf.gather(entries.tokens, places, batch_dims=1)
        tokens = tf.reshape(tokens, [-1, self.neighbours])
        numbers = tf.broadcast_to(tf.range(batch * rows)[:, tf.newaxis], tf.shape(tokens))
        remembered = tf.scatter_nd(
            tf.stack([numbers, tokens], axis=2), says, [batch * rows, self.config.vocab_size]
        )
        remembered = tf.reshape(remembered, tf.shape(logits))
        return tf.math.log((1 - self.share) * tf.nn.softmax(logits) + self.share * remembered)


def check_settings(neighbours=16, temperature=20.0, share=0.25, entries=8_192):
    """Raises InputError for settings of `NeighbourTransformer` that are out of their range."""
    require_whole_number("neighbours", neighbours, 1)
    require_whole_number("entries", entries, 1)
    if not 1e-6 <= temperature < math.inf:
        raise InputError(f"temperature is {temperature}: give a number above 0, at least 1e-6.")
    if not 0 <= share < 1:
        raise InputError(f"share is {share}: give 0 up to less than 1.")
