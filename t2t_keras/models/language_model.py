"""The decoder alone: a language model over the same layers, config and vocabulary.

`TransformerLM` predicts each token from the tokens before it (Liu et al. 2018, "Generating
Wikipedia by Summarizing Long Sequences", section 4.2.3; GPT). It is figure 1 of the paper without
its left column: masked self-attention and a feed-forward network, N times. Training uses `call`,
which computes all positions; a search uses `initial_state`, `step` and `reorder`.
"""

from typing import Any

import keras
import tensorflow as tf

from t2t_keras import ops
from t2t_keras.errors import InputError
from t2t_keras.layers.attention import Sequences
from t2t_keras.layers.basic import Dropout
from t2t_keras.layers.value_checks import Limit
from t2t_keras.models import parts
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.trainable_model import TrainableModel
from t2t_keras.models.transformer import DecoderState, Encoder, TokenModel, sequences_of


@keras.saving.register_keras_serializable(package="t2t_keras")
class TransformerLM(TokenModel):
    """Decoder-only Transformer; by default one matrix embeds the tokens and gives the logits.

    The weights exist as soon as the model is made.

    Args:
        config: `num_decoder_layers` is the number of layers; the fields of an encoder have no
            effect.

    Call arguments:
        inputs: dict of int32 tensors, 0 on padding:
            target_ids: [batch, length], the tokens shifted right after the begin-of-sequence id.
            target_segments, target_positions: [batch, length], only if rows contain several texts:
                the number of each position's text, from 1, and each position within its text,
                from 0.
        training: whether to apply dropout; `fit` passes True.
        return_attention_weights, return_hidden: as for `Transformer`.

    Returns:
        Logits of the next token, float32 [batch, length, vocab_size]; with them, if asked for,
        float32 [batch, layers, heads, length, length].

    Raises:
        InputError: as for `Transformer`, or if inputs contain source_ids.

    Example:
        >>> tokenizer = t2t.train_tokenizer("wordpiece", ["a house", "a dog"] * 9, vocab_size=280)
        >>> batches = t2t.TextBuckets(64)(t2t.encode_texts(["a house", "a dog"], tokenizer))
        >>> config = t2t.TransformerConfig.tiny(tokenizer.vocab_size)
        >>> model = t2t.TransformerLM(config)
        >>> model.compile(t2t.adam(config.model_dim), t2t.LabelSmoothedCrossEntropy(0.1))
        >>> history = model.fit(batches, epochs=2, verbose=0)
    """

    fast_forms = TrainableModel.fast_forms | {
        "with_room": ("initial_state", "step", "reorder"),
    }

    def __init__(self, config: TransformerConfig | dict, **kwargs):
        super().__init__(**kwargs)
        self.config = TransformerConfig.of(config)
        config, dtype = self.config, self.dtype_policy
        self.embedding, _, self.output_projection = parts.make_embeddings(config, dtype=dtype)
        self.positions = parts.make_positions(config, dtype=dtype, name="positions")
        self.embedding_dropout = Dropout(config.dropout, dtype=dtype, name="embedding_dropout")
        self.decoder = Encoder(config, causal=True, dtype=dtype, name="decoder")
        for layer in dict.fromkeys((self.embedding, self.output_projection)):
            layer.build((None, None))
        for layer in (self.positions, self.embedding_dropout, self.decoder):
            layer.build((None, None, config.model_dim))
        self.built = True

    def call(
        self, inputs: dict, training=None, return_attention_weights=False, return_hidden=False
    ) -> Any:
        del training  # Keras hands it to the layers
        if not isinstance(inputs, dict) or "target_ids" not in inputs:
            given = list(inputs) if isinstance(inputs, dict) else f"a {type(inputs).__name__}"
            raise InputError(f"inputs are {given}: give a dict of target_ids, [batch, length].")
        if "source_ids" in inputs:
            raise InputError(
                "inputs have source_ids, which a language model does not read: give batches of "
                "texts, as TextBuckets makes them."
            )
        self.require_in_range(inputs)
        rows = sequences_of(inputs, "target")
        x = self._embed(inputs["target_ids"], self.embedding, self.positions, rows)
        # hidden: [batch, length, model_dim]
        hidden, weights = self.decoder(x, rows, return_attention_weights=True)
        output = hidden if return_hidden else self.output_projection.logits(hidden)
        if not return_attention_weights:
            return output
        attention = self.decoder.layers[0].attention
        return output, attention.full_weights(weights, tf.shape(hidden)[1])

    def encode(self, prompt_ids: tf.Tensor) -> tf.Tensor:
        """Returns the number of prompts, ids int32 [batch, length]; a search needs no more."""
        return tf.shape(prompt_ids)[0]

    def initial_state(self, batch: int | tf.Tensor, beams: int) -> DecoderState:
        """Returns the state of `beams` hypotheses of each prompt, which have no token yet."""
        caches = tuple(attention.initial_cache(batch) for attention in self._attentions)
        history = tf.zeros([batch, beams, 0], ops.index_dtype())
        return DecoderState((), history, caches, tf.constant(0))

    def step(self, ids: tf.Tensor, state: DecoderState) -> tuple[tf.Tensor, DecoderState]:
        """Reads ids, int32 [batch, beams], the newest token of every hypothesis.

        Returns logits of the next token, float32 [batch, beams, vocab_size], and the new state.
        """
        _, history, caches, num_steps = state
        history, view = self._attentions[0].step_view(history, num_steps)
        # [batch, beams, model_dim]: beams take the place of length
        rows = Sequences(positions=num_steps)
        x = self._embed(ids, self.embedding, self.positions, rows)
        hidden, caches = self.decoder.step(x, caches, view)
        state = DecoderState((), history, caches, num_steps + 1)
        return self.output_projection.logits(hidden), state

    def with_room(self, state: DecoderState, steps: tf.Tensor, round_up=None) -> DecoderState:
        """Returns a state with room for further steps, see `Transformer.with_room`."""
        return state.with_room(steps, self._attentions)

    @property
    def _attentions(self):
        return [layer.attention for layer in self.decoder.layers]

    # What training, saving and exports ask a model for.

    @property
    def max_length(self) -> int | None:
        """The maximum sequence length of the position embedding; None without a limit."""
        return self.positions.max_positions

    @property
    def limits(self):
        """The `Limit`s of ids and labels."""
        size = self.config.vocab_size
        return {"target_ids": Limit.of_ids(size), "labels": Limit.of_labels(size)}

    @property
    def input_signature(self) -> dict[str, tf.TensorSpec]:
        """The inputs that a call needs, dict of `tf.TensorSpec`."""
        return {"target_ids": tf.TensorSpec([None, None], tf.int32, "target_ids")}

    @property
    def output_matrix(self):
        """The matrix [vocab_size, model_dim] of the output projection, for a fused loss."""
        return self.output_projection.matrix
