"""A walk over the sub-layers of a `Transformer`, for files of weights of other programs."""

from typing import Any, NamedTuple


class SubLayer(NamedTuple):
    """The linear layers and the norm of a sub-layer of a `Transformer`, or the norm of a stack."""

    side: str  # "encoder" or "decoder"
    number: int | None  # of the layer, from 0; None: the norm after a stack
    name: str | None  # in CTranslate2: self_attention, attention (of the memory) or ffn
    linear: list  # in the order of their products
    norm: Any


def sub_layers(model):
    """Yields each `SubLayer` of a `Transformer`, of the encoder first."""
    for side in ("encoder", "decoder"):
        stack = getattr(model, side)
        for number, layer in enumerate(stack.layers):
            if side == "encoder":
                own, residual = layer.attention, layer.attention_residual
            else:
                own, residual = layer.self_attention, layer.self_residual
            linear = [own.qkv_projection, own.output_projection]
            yield SubLayer(side, number, "self_attention", linear, residual.norm)
            if side == "decoder":
                cross = layer.cross_attention
                linear = [cross.query_projection, cross.kv_projection, cross.output_projection]
                yield SubLayer(side, number, "attention", linear, layer.cross_residual.norm)
            linear = [layer.feed_forward.inner, layer.feed_forward.outer]
            yield SubLayer(side, number, "ffn", linear, layer.feed_forward_residual.norm)
        if model.config.norm == "pre":
            yield SubLayer(side, None, None, [], stack.final_norm)
