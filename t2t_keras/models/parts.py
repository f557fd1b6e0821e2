"""The layers of a model as its `TransformerConfig` describes them; `variants` has the choices."""

from t2t_keras.layers import variants
from t2t_keras.layers.attention import MultiHeadCrossAttention, MultiHeadSelfAttention, Softmax
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.positions import PositionEmbedding
from t2t_keras.layers.variants.local_attention import LocalSelfAttention


def make_attention(config, **kwargs):
    """Returns what computes the attention of all heads, such as `ScaledDotProductAttention`."""
    if config.attention_weights == "softmax" and config.attention_temperature == 1.0:
        normalize = Softmax()  # one operation less
    else:
        normalize = variants.ATTENTION_WEIGHTS[config.attention_weights](
            config.attention_temperature
        )
    kind = variants.ATTENTION_SCORES[config.attention_score]
    return kind(normalize, config.attention_dropout, **kwargs)


def _heads(config, **kwargs):
    """Returns the arguments of multi-head attention."""
    return kwargs | {
        "num_heads": config.num_heads,
        "key_dim": config.key_dim,
        "value_dim": config.value_dim,
        "attention": make_attention(config, dtype=kwargs.get("dtype"), name="scores"),
        "fused": config.fused_qkv,
        "use_bias": config.attention_bias,
    }


def make_self_attention(config, **kwargs):
    """Returns multi-head self-attention over the whole sequence, or over a window of it."""
    dtype, kind = kwargs.get("dtype"), variants.POSITION_EMBEDDINGS[config.position_embedding]
    kwargs = _heads(config, **kwargs)
    if kind.in_attention:
        kwargs["positions"] = kind.from_transformer(config, dtype=dtype, name="positions")
    if config.attention_window is None:
        return MultiHeadSelfAttention(**kwargs)
    return LocalSelfAttention(window=config.attention_window, **kwargs)


def make_cross_attention(config, **kwargs):
    """Returns the decoder's multi-head attention to the encoder's output."""
    return MultiHeadCrossAttention(**_heads(config, **kwargs))


def make_feed_forward(config, **kwargs):
    """Returns the feed-forward network of a layer."""
    kind = variants.FEED_FORWARDS[config.feed_forward]
    return kind(config.feed_forward_dim, config.activation_dropout, config.activation, **kwargs)


def make_residual(config, **kwargs):
    """Returns norm, dropout and residual connection of one sub-layer."""
    return variants.NORMS[config.norm](config.dropout, config.norm_epsilon, **kwargs)


def make_final_norm(config, **kwargs):
    """Returns the layer that follows the last layer of a stack."""
    return variants.NORMS[config.norm].final_norm(epsilon=config.norm_epsilon, **kwargs)


def make_positions(config, **kwargs):
    """Returns the layer that adds positions to embedded tokens; nothing if attention uses them."""
    kind = variants.POSITION_EMBEDDINGS[config.position_embedding]
    if kind.in_attention:
        return PositionEmbedding(**kwargs)
    return kind.from_transformer(config, **kwargs)


def make_embeddings(config, **kwargs):
    """Returns target embedding, source embedding and output projection: one layer, two or three."""

    def make(vocab_size, output_bias, name):
        return SharedEmbedding(
            vocab_size, config.model_dim, config.scale_embedding, output_bias, name=name, **kwargs
        )

    is_tied = config.embedding_sharing != "none"
    target = make(config.vocab_size, is_tied and config.output_bias, "embedding")
    source = output = target
    if config.embedding_sharing != "all":
        source = make(config.encoder_vocab_size, False, "source_embedding")
    if not is_tied:
        output = make(config.vocab_size, config.output_bias, "output_projection")
    return target, source, output
