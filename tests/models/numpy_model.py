"""Section 3 as a whole, in float64, from a model's weights."""

import numpy as np

from tests import reference


def randomized(model):
    """Adds noise to all weights: mistakes with biases of 0 and gains of 1 would not show."""
    rng = np.random.default_rng(1)
    model.set_weights([w + rng.normal(0, 0.1, w.shape) for w in model.get_weights()])
    return model


def embed(model, ids):
    """Vectors [batch, length, model_dim]; padding has no position of its own."""
    c = model.config
    vectors = model.embedding.matrix.numpy().astype("float64")[ids]
    vectors = vectors * (np.sqrt(c.model_dim) if c.scale_embedding else 1.0)
    counted = np.maximum(np.cumsum(np.array(ids) != 0, axis=1) - 1, 0)
    return vectors + reference.positions(np.shape(ids)[1], c.model_dim)[counted]


def attend(layer, x, memory, mask, heads):
    """Returns multi-head attention and its weights [batch, heads, query, key]."""
    if hasattr(layer, "qkv_projection"):
        kernels = np.split(layer.qkv_projection.get_weights()[0], 3, axis=1)
    else:
        key_value = np.split(layer.kv_projection.get_weights()[0], 2, axis=1)
        kernels = [layer.query_projection.kernel.numpy(), *key_value]
    split = [np.split(kernel.astype("float64"), heads, axis=1) for kernel in kernels]
    identity = np.eye(memory.shape[1])  # with it for values, the context is the weights
    weights = [
        reference.attention(x @ q, memory @ k, identity, mask)
        for q, k in zip(*split[:2], strict=True)
    ]
    output = layer.output_projection.kernel.numpy()
    return reference.multi_head(x, memory, *split, output, mask=mask), np.stack(weights, axis=1)


def run_layer(layer, config, x, self_mask, memory=None, source_mask=None):
    """Returns the output of an encoder or a decoder layer, and the weights of its attentions."""

    def norm(residual, x):
        gamma, beta = (w.numpy() for w in residual.norm.weights)
        return reference.layer_norm(x, gamma, beta, config.norm_epsilon)

    first, residual = (
        (layer.attention, layer.attention_residual)
        if memory is None
        else (layer.self_attention, layer.self_residual)
    )
    y, weights = attend(first, x, x, self_mask, config.num_heads)
    x, all_weights = norm(residual, x + y), [weights]
    if memory is not None:
        y, weights = attend(layer.cross_attention, x, memory, source_mask, config.num_heads)
        x = norm(layer.cross_residual, x + y)
        all_weights.append(weights)
    kernels = (w.numpy().astype("float64") for w in layer.feed_forward.weights)
    y = reference.feed_forward(x, *kernels)
    return norm(layer.feed_forward_residual, x + y), all_weights


def encode(model, ids):
    """Returns the encoder's output and its weights, a list of a list for each layer."""
    x, mask, weights = embed(model, ids), (np.array(ids) != 0)[:, None, :], []
    for layer in model.encoder.layers:
        x, found = run_layer(layer, model.config, x, mask)
        weights.append(found)
    return x, weights


def transformer(model, source, target):
    """Returns the logits and the weights: of the encoder, the decoder, and across."""
    memory, of_encoder = encode(model, source)
    x, source_mask, of_decoder = embed(model, target), (np.array(source) != 0)[:, None, :], []
    causal = np.tril(np.ones((x.shape[1], x.shape[1]), bool))
    for layer in model.decoder.layers:
        x, found = run_layer(layer, model.config, x, causal, memory, source_mask)
        of_decoder.append(found)
    weights = [w for [w] in of_encoder], *map(list, zip(*of_decoder, strict=True))
    matrix = model.embedding.matrix.numpy().astype("float64")
    return x @ matrix.T, [np.stack(layers, axis=1) for layers in weights]
