"""KerasHub's encoder and decoder layers under `train_on_batch`.

Attention weights are not dropped, as in our step and the paper. Biases stay as they are. Each step
waits for its loss, which costs a GPU some time.
"""

import keras
import keras_hub
import numpy as np
from common import SIZES, TRAINING_LENGTH, answer, median_time


class SmoothedCrossEntropy(keras.losses.Loss):
    """Keras's label smoothing, which is over one-hot targets."""

    def __init__(self, vocab, epsilon=0.1):
        super().__init__()
        self.vocab, self.epsilon = vocab, epsilon

    def call(self, labels, logits):
        target = keras.ops.one_hot(labels, self.vocab)
        target = target * (1 - self.epsilon) + self.epsilon / self.vocab
        logits = keras.ops.cast(logits, "float32")
        return keras.losses.categorical_crossentropy(target, logits, from_logits=True)


def build(layers, dim, inner, heads, vocab):
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    embedding = keras_hub.layers.ReversibleEmbedding(vocab, dim, tie_weights=True)
    positions = keras_hub.layers.SinePositionEncoding()

    def embed(ids):
        x = embedding(ids) * dim**0.5
        return x + positions(x)

    mask = keras.ops.not_equal(source, 0)
    memory, hidden = embed(source), embed(target)
    for _ in range(layers):
        layer = keras_hub.layers.TransformerEncoder(inner, heads, dropout=0.1)
        memory = layer(memory, padding_mask=mask)
    for _ in range(layers):
        layer = keras_hub.layers.TransformerDecoder(inner, heads, dropout=0.1)
        hidden = layer(hidden, memory, encoder_padding_mask=mask)
    model = keras.Model([source, target], embedding(hidden, reverse=True))
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.MultiHeadAttention):
            layer._dropout = layer._dropout_layer.rate = 0.0
    return model


def measure(size, dtype, repeats, threads, xla=False, lock=None):
    keras.config.set_dtype_policy("mixed_bfloat16" if dtype == "bfloat16" else "float32")
    *sizes, batch = SIZES[size]
    vocab = sizes[-1]
    model = build(*sizes)
    loss = SmoothedCrossEntropy(vocab)
    model.compile(optimizer=keras.optimizers.Adam(1e-4), loss=loss, jit_compile=xla)
    rng = np.random.default_rng(0)
    source, target = rng.integers(1, vocab, (2, batch, TRAINING_LENGTH)).astype("int32")
    step = lambda: model.train_on_batch([source, target], target)  # noqa: E731
    seconds = median_time(step, repeats, warm_up=2, compiles=xla, lock=lock)
    return {"target tokens/s": batch * TRAINING_LENGTH / seconds}


answer(measure)
