"""kNN-MT: a trained Transformer whose predictions are interpolated with similar training text.

Khandelwal et al. 2021, "Nearest Neighbor Machine Translation". For every target token of a text a
datastore keeps a key, the decoder's output h_i before the token, and a value, the token y_i itself.
The nearer a key is to a new output h, the more probable its value:

    P(y | h) = (1 - λ) · P_model(y | h) + λ · Σ_i softmax_i(-|h - h_i|² / T) · [y_i = y],

where the sum is over the k nearest keys. As in Deguchi et al. 2023 ("Subset Retrieval Nearest
Neighbor Machine Translation"), a sentence is compared only with the pairs whose sources are most
similar to its own by TF-IDF.
"""

import functools
import math
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.models.lora import merge_lora
from t2t_keras.models.search_steps import CombinedModel, require_hidden_step, require_own_steps
from t2t_keras.models.transformer import Transformer
from t2t_keras.ops.top_k import top_k
from t2t_keras.settings import KNNSettings


class KNNTransformer(CombinedModel):
    """A trained model whose predictions are interpolated with a datastore's.

    It replaces a `Transformer` in searches, scores and exports. It cannot be trained: train
    the model, and build the datastore again.

    Args:
        model: trained. LoRA is merged into a copy of it.
        datastore: that of the model, from `build_datastore`.
        k: nearest keys that predict.
        temperature: T, in the unit of squared distances; lower values favor the nearest keys.
        interpolation: λ, the weight of the datastore, at least 0 and less than 1; 0: only the
            model.
        subset_size: tokens of similar pairs that each sentence is compared with. Each takes 4 ·
            model_dim bytes for each sentence of a batch. Reading them takes most of the additional
            time of kNN-MT.

    Call arguments are inputs and return_attention_weights, as for the model. It returns log P of
    the next token, float32 [batch, target, vocab_size]; with it, if asked for, the model's
    `AttentionWeights`.

    Raises:
        InputError: if a setting is out of its range or replaced, or the datastore does not fit the
            model.

    Example:
        >>> batches = t2t_keras.LengthBuckets(4096)(t2t_keras.encode_pairs(pairs, tokenizer))
        >>> model = KNNTransformer(model, build_datastore(model, batches), k=16)
        >>> translator = t2t_keras.Translator(model, tokenizer)
    """

    fixed = ("model", "k", "temperature", "interpolation", "subset_size")

    def __init__(
        self,
        model: Transformer,
        datastore: "Datastore",
        k: int = 16,
        temperature: float = 20.0,
        interpolation: float = 0.25,
        subset_size: int = 8_192,
        **kwargs,
    ):
        super().__init__(dtype=model.dtype_policy, **kwargs)
        settings = KNNSettings(k, temperature, interpolation, subset_size)
        self.temperature, self.interpolation = settings.temperature, settings.interpolation
        require_own_steps(model)
        require_hidden_step(model, "kNN-MT")
        _check_datastore(datastore, model.config.model_dim)
        self.model = merge_lora(model)
        self.subset_size = min(settings.subset_size, len(datastore.values))
        self.k = min(settings.k, self.subset_size)
        self.retriever = TfIdfRetriever(datastore.sources, model.config.encoder_vocab_size)
        num_pairs = len(datastore.sources)
        wanted = math.ceil(self.subset_size * num_pairs / len(datastore.values))
        self._num_pairs = min(wanted, num_pairs)  # that hold subset_size tokens on average
        squared_norms = np.square(datastore.keys, dtype=np.float64).sum(axis=1)
        row_splits = np.cumsum([0, *datastore.lengths])
        self.row_splits = add_buffer(self, "row_splits", row_splits, "int32")  # [pairs + 1]
        self.keys = add_buffer(self, "keys", datastore.keys, "float32")
        self.squared_norms = add_buffer(self, "squared_norms", squared_norms, "float32")
        self.values = add_buffer(self, "values", datastore.values, "int32")
        self.built = True

    # What a `Transformer` has: the model's own results, with a `_Subset` of the datastore.

    @property
    def members(self):
        return [self.model]

    def call(self, inputs, return_attention_weights=False):
        hidden, weights = self.model(inputs, return_hidden=True, return_attention_weights=True)
        logits = self.model.output_projection.logits(hidden)
        indices = self._retrieve(inputs["source_ids"])

        def interpolate(row):
            hidden, logits, indices = (tensor[tf.newaxis] for tensor in row)
            return self._interpolate(hidden, logits, self._subset(indices))[0]

        log_probabilities = tf.map_fn(
            interpolate,
            (hidden, logits, indices),
            fn_output_signature=tf.float32,
            parallel_iterations=1,  # the subsets of a whole batch would fill the memory
        )
        return (log_probabilities, weights) if return_attention_weights else log_probabilities

    def encode(self, source_ids):
        """Returns the memory of source_ids, int32 [batch, source]."""
        subset = self._subset(self._retrieve(source_ids))
        return _WithSubset(self.model.encode(source_ids), subset)

    def initial_state(self, memory, beams):
        """Returns the state of empty hypotheses, see `Transformer.initial_state`."""
        return memory._replace(inner=self.model.initial_state(memory.inner, beams))

    def step(self, ids, state, return_attention_weights=False):
        """Reads one more token of every hypothesis, see `Transformer.step`; returns log P."""
        hidden, inner, weights = self.model.hidden_step(ids, state.inner)
        logits = self.model.output_projection.logits(hidden)
        outputs = self._interpolate(hidden, logits, state.subset), state._replace(inner=inner)
        return (*outputs, weights) if return_attention_weights else outputs

    def reorder(self, state, parents):
        """Returns the state whose hypotheses continue from parents, int32 [batch, beams]."""
        return state._replace(inner=self.model.reorder(state.inner, parents))

    # The datastore.

    def _retrieve(self, source_ids):
        """Returns the tokens of pairs most similar to source_ids, indices of keys and values.

        They are int32 [batch, subset_size], -1 if there are no more, of int32 [batch, source].
        """
        pairs = self.retriever.retrieve(source_ids, self._num_pairs)  # [batch, pairs]
        pairs = tf.reshape(pairs, [-1])
        row_splits = tf.convert_to_tensor(self.row_splits)
        indices = tf.ragged.range(tf.gather(row_splits, pairs), tf.gather(row_splits[1:], pairs))
        splits = indices.row_splits[:: self._num_pairs]
        indices = tf.RaggedTensor.from_row_splits(indices.values, splits)
        return indices.to_tensor(-1, shape=[None, self.subset_size])

    def _subset(self, indices):
        """Returns the `_Subset` of indices, int32 [batch, subset_size]."""
        real = tf.maximum(indices, 0)
        squared_norms = tf.gather(tf.convert_to_tensor(self.squared_norms), real)
        return _Subset(
            tf.gather(tf.convert_to_tensor(self.keys), real),
            tf.where(indices < 0, math.inf, squared_norms),
            tf.gather(tf.convert_to_tensor(self.values), real),
        )

    def _interpolate(self, hidden, logits, subset):
        """Returns log P(y | h), float32 [batch, rows, vocab] as the model's logits.

        `hidden` is h, [batch, rows, model_dim].
        """
        batch, rows = tf.unstack(tf.shape(logits)[:2])
        # -|h - h_i|² but for |h|², which is the same for all keys: the softmax does not depend on
        # it.
        nearness = 2 * tf.matmul(tf.cast(hidden, tf.float32), subset.keys, transpose_b=True)
        nearness -= subset.squared_norms[:, tf.newaxis]  # [batch, rows, subset_size]
        nearness, indices = top_k(tf.reshape(nearness, [-1, self.subset_size]), self.k)
        weights = tf.nn.softmax(nearness / self.temperature)  # [batch · rows, k]
        indices = tf.reshape(indices, [batch, rows * self.k])
        tokens = tf.reshape(tf.gather(subset.values, indices, batch_dims=1), [-1, self.k])
        row = tf.broadcast_to(tf.range(batch * rows)[:, tf.newaxis], tf.shape(tokens))
        retrieved = tf.scatter_nd(  # keys of the same token add up
            tf.stack([row, tokens], axis=2), weights, [batch * rows, self.config.vocab_size]
        )
        retrieved = tf.reshape(retrieved, tf.shape(logits))
        predicted = tf.nn.softmax(logits)
        weight = self.interpolation  # λ
        return tf.math.log((1 - weight) * predicted + weight * retrieved)


class _Subset(NamedTuple):
    """The part of a datastore that a sentence is compared with."""

    keys: tf.Tensor  # float32 [batch, subset_size, model_dim]
    squared_norms: tf.Tensor  # float32 [batch, subset_size], of the keys; inf if there is no key
    values: tf.Tensor  # int32 [batch, subset_size]


class _WithSubset(NamedTuple):
    """The result of the model's `encode` or `step`, and the `_Subset` of its sentences."""

    inner: Any
    subset: _Subset


class Datastore(NamedTuple):
    """Keys and values of all target tokens of a text (Khandelwal et al. 2021, section 2)."""

    sources: list  # list of int arrays, the ids of each pair's source
    lengths: np.ndarray  # int [pairs], tokens of each pair's target
    # float32 [tokens, model_dim], the decoder's output before each token of all targets
    keys: np.ndarray
    values: np.ndarray  # int32 [tokens], the tokens


def build_datastore(model: Transformer, batches: tf.data.Dataset) -> Datastore:
    """Returns the `Datastore` of a text, by one pass of a trained model over it.

    Args:
        batches: `(inputs, labels, ...)` as `fit` takes them, one pair in each row; rows without a
            token are left out.

    Raises:
        InputError: if the batches hold no token, or several pairs in a row.
    """
    keys_and_values = tf.function(functools.partial(_keys_and_values, model), reduce_retracing=True)
    sources, parts = [], []
    for inputs, labels, *_ in batches:
        if "source_segments" in inputs:
            raise InputError("rows hold several pairs: give batches of LengthBuckets, not Packing.")
        sources.extend(np.asarray(inputs["source_ids"]))
        parts.append([part.numpy() for part in keys_and_values(inputs, labels)])
    if not any(len(values) for _, _, values in parts):
        raise InputError("the datastore would be empty: give batches with at least one token.")
    lengths, keys, values = map(np.concatenate, zip(*parts, strict=True))
    sources = [source for source, length in zip(sources, lengths, strict=True) if length]
    logging.info("Datastore of %s tokens, %.0f MiB", f"{len(values):,}", keys.nbytes / 2**20)
    return Datastore(sources, lengths[lengths > 0], keys, values)


def _keys_and_values(model, inputs, labels):
    """Returns the lengths, keys and values of a batch, as in `Datastore`."""
    real = labels != ops.PAD_ID
    keys = tf.boolean_mask(tf.cast(model(inputs, return_hidden=True), tf.float32), real)
    return tf.math.count_nonzero(real, axis=1), keys, labels[real]


class TfIdfRetriever(keras.layers.Layer):
    """Finds the texts that share the most ids with a query; rare ids have more weight.

    The weight of an id is idf = log(texts / texts that contain it); repetitions within a text do
    not count. The weights of a text are normalized to length 1 (Spärck Jones 1972; Salton and
    Buckley 1988). Texts are a list of int arrays of ids; 0 is padding.
    """

    def __init__(self, texts, vocab_size, **kwargs):
        super().__init__(trainable=False, **kwargs)
        self.num_texts = len(texts)
        self.vocab_size = vocab_size
        rows = np.repeat(np.arange(len(texts)), [len(text) for text in texts])
        occurrences = np.unique(np.stack([rows, np.concatenate(texts)], axis=1), axis=0)
        rows, ids = occurrences[occurrences[:, 1] != ops.PAD_ID].T
        frequency = np.bincount(ids, minlength=vocab_size)  # texts that have each id
        idf = np.log(self.num_texts / np.maximum(frequency, 1)) * (frequency > 0)
        norms = np.sqrt(np.bincount(rows, idf[ids] ** 2, minlength=self.num_texts))
        weights = idf[ids] / np.maximum(norms[rows], 1e-9)
        # The sparse matrix [texts, vocab] of weights, as vectors: an export may round matrices.
        self.rows = add_buffer(self, "rows", rows, "int32")
        self.ids = add_buffer(self, "ids", ids, "int32")
        self.weights_of_ids = add_buffer(self, "weights", weights, "float32")
        self.idf = add_buffer(self, "idf", idf, "float32")
        self.built = True

    def retrieve(self, query_ids: tf.Tensor, count: int) -> tf.Tensor:
        """Returns the indices of the `count` texts most similar to each query.

        They are int32 [batch, count], most similar first; ties: the lowest first. `query_ids` are
        int32 [batch, length], 0 on padding.
        """
        batch, length = tf.unstack(tf.shape(query_ids))
        rows = tf.tile(tf.range(batch)[:, tf.newaxis], [1, length])
        queries = tf.tensor_scatter_nd_max(  # an id counts once
            tf.zeros([batch, self.vocab_size]),
            tf.stack([rows, query_ids], axis=2),
            tf.gather(tf.convert_to_tensor(self.idf), query_ids),
        )
        indices = tf.stack([tf.convert_to_tensor(self.rows), tf.convert_to_tensor(self.ids)], 1)
        texts = tf.SparseTensor(
            tf.cast(indices, tf.int64),
            tf.convert_to_tensor(self.weights_of_ids),
            [self.num_texts, self.vocab_size],
        )
        scores = tf.sparse.sparse_dense_matmul(texts, queries, adjoint_b=True)  # [texts, batch]
        return tf.math.top_k(tf.transpose(scores), count).indices


def add_buffer(layer, name, value, dtype):
    """Adds a weight that is never trained, but saved and exported, in a dtype, and returns it."""
    value = np.asarray(value, dtype)
    weight = layer.add_weight(
        name=name,
        shape=value.shape,
        dtype=dtype,
        initializer="zeros",
        trainable=False,
        autocast=False,
    )
    weight.assign(value)
    return weight


def _check_datastore(datastore, model_dim):
    """Raises InputError if a `Datastore` is empty, inconsistent, or of another width."""
    count, shape = len(datastore.values), np.shape(datastore.keys)
    if not count or shape != (count, model_dim):
        raise InputError(
            f"keys have shape {shape} for {count} tokens: give a vector of width {model_dim} for "
            "each token, and at least one token."
        )
    if not np.all(datastore.lengths):
        pair = int(np.argmin(datastore.lengths))
        raise InputError(f"the target of pair {pair} (from 0) has no token: leave the pair out.")
    num_pairs, num_targets = len(datastore.sources), len(datastore.lengths)
    if num_pairs != num_targets or np.sum(datastore.lengths) != count:
        raise InputError(
            f"{num_pairs} sources have {num_targets} targets of {np.sum(datastore.lengths)} tokens "
            f"in all, and the datastore has {count} tokens: give sources and targets of the same "
            "pairs."
        )
