"""A trained translator as a CTranslate2 model, for serving there and for comparing both engines.

CTranslate2 is another inference engine (https://opennmt.net/CTranslate2). The weights are set in
its public specification classes; the folder also holds the tokenizer's files. Its input is a
source's tokens with the end, its output a translation's tokens, which `Tokenizer` joins.

The two searches differ in three rules. CTranslate2's score is log P / length^α, ours
log P / ((5 + length) / 6)^α (Wu et al. 2016, equation 14). It stops after beam · patience finished
hypotheses, ours when no live hypothesis can win. It has one maximum length for a batch, ours one
for each sentence. `find_translations` removes the first two differences: more hypotheses finish
than there are beams, and they are ranked by our score.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from t2t_keras.data.files import write_checksums
from t2t_keras.errors import InputError
from t2t_keras.layers import variants
from t2t_keras.layers.basic import has_form
from t2t_keras.models.sub_layers import sub_layers
from t2t_keras.serving.export import new_version
from t2t_keras.tasks.translation import Translator
from t2t_keras.types import StrPath

_POSITIONS = 1024
"""CTranslate2 truncates a source at this length by default; it fails beyond its table."""


def export_ctranslate2(translator: Translator, directory: StrPath) -> None:
    """Writes a translator's model, vocabulary and tokenizer as a CTranslate2 model.

    The folder appears under its name when it is complete. LoRA is merged into the weights.

    Args:
        translator: `Translator` of a `Transformer`.
        directory: folder to make.

    Raises:
        InputError: if ctranslate2 is not installed, the folder exists and is not empty, or
            CTranslate2 does not support the model.

    Example:
        >>> export_ctranslate2(translator, "engine")
        >>> engine = ctranslate2.Translator("engine", compute_type="int8")
        >>> tokenizer = t2t_keras.data.load_tokenizer("engine")
    """
    if not isinstance(translator, Translator):
        raise InputError(
            f"a {type(translator).__name__} can't be exported to CTranslate2: give a Translator."
        )
    if not has_form(translator.model, "hidden_step"):
        raise InputError(
            f"CTranslate2 has no {type(translator.model).__name__}: give a translator of one "
            "Transformer, without kNN-MT and with the `step` of this library."
        )
    _require_form(translator.model.config)
    with new_version(directory) as folder:
        spec = _specification(translator.merged())
        spec.validate()
        spec.optimize()
        spec.save(folder)
        translator.tokenizer.save(folder)
        write_checksums(folder)


def find_translations(engine, sources, *, beam_size, length_penalty, max_length=256, patience=4):
    """Searches with CTranslate2 by rules close to `beam_search`'s.

    Args:
        engine: `ctranslate2.Translator` of a folder that `export_ctranslate2` wrote.
        sources: list of lists of str, the tokens of each source with the end.
        beam_size: live hypotheses of a sentence.
        length_penalty: α of ((5 + length) / 6)^α.
        max_length: maximum tokens of a translation, including the end.
        patience: a sentence's search ends when beam_size · patience hypotheses have finished; with
            a beam of 1, when the first has.

    Returns:
        For each source a list of (tokens with the end, log P / penalty), best first.
    """
    patience = patience if beam_size > 1 else 1
    results = engine.translate_batch(
        sources,
        beam_size=beam_size,
        patience=patience,
        num_hypotheses=beam_size * patience,
        length_penalty=1,  # with 0 it would stop earlier
        min_decoding_length=0,
        max_decoding_length=max_length,
        return_end_token=True,
        return_scores=True,
    )
    return [_ranked(result, length_penalty) for result in results]


def _ranked(result, length_penalty):
    """Returns (tokens, score) of a result's hypotheses, whose own scores are log P / length."""
    hypotheses = [
        (pieces, mean * len(pieces) / ((5 + len(pieces)) / 6) ** length_penalty)
        for pieces, mean in zip(result.hypotheses, result.scores, strict=True)
    ]
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis[1])


_TABLES = {
    "attention_score": variants.ATTENTION_SCORES,
    "attention_weights": variants.ATTENTION_WEIGHTS,
    "norm": variants.NORMS,
    "position_embedding": variants.POSITION_EMBEDDINGS,
    "feed_forward": variants.FEED_FORWARDS,
}
_SUPPORTED = {"attention_window": [None], "activation": ["relu", "gelu", "silu"]} | {
    field: [name for name, kind in table.items() if vars(kind).get("in_ctranslate2")]
    for field, table in _TABLES.items()
}
_WITH_ANY_VALUE = {  # `_specification` writes them, or they have no effect on a trained model
    *("vocab_size", "source_vocab_size", "embedding_sharing", "scale_embedding", "output_bias"),
    *("num_encoder_layers", "num_decoder_layers", "model_dim", "feed_forward_dim"),
    *("num_heads", "key_dim", "value_dim", "attention_temperature", "fused_qkv", "attention_bias"),
    *("max_positions", "max_relative_distance", "norm_epsilon"),
    *("dropout", "attention_dropout", "activation_dropout"),
}


def _require_form(config):
    """Raises InputError for a field that CTranslate2 does not support, and names it."""
    for field in (field.name for field in dataclasses.fields(config)):
        if field not in _WITH_ANY_VALUE and field not in _SUPPORTED:
            raise InputError(
                f"the export to CTranslate2 does not know {field} of the config: export a "
                "SavedModel instead."
            )
        if field in _SUPPORTED and getattr(config, field) not in _SUPPORTED[field]:
            raise InputError(
                f"{field} is {getattr(config, field)!r}, but CTranslate2 has only "
                f"{' and '.join(map(repr, _SUPPORTED[field]))}: export a SavedModel instead."
            )
    if config.key_dim != config.value_dim or config.num_heads * config.key_dim != config.model_dim:
        raise InputError(
            f"num_heads, key_dim and value_dim are {config.num_heads}, {config.key_dim} and "
            f"{config.value_dim}: in CTranslate2 both widths are model_dim / num_heads, here "
            f"{config.model_dim} / {config.num_heads}; export a SavedModel instead."
        )


def _specification(translator):
    try:
        from ctranslate2 import specs  # noqa: PLC0415  an extra: pip install ".[ctranslate2]"
    except ImportError as error:
        raise InputError(
            'the package ctranslate2 is missing: pip install "t2t_keras[ctranslate2]".'
        ) from error
    model, tokenizer, config = translator.model, translator.tokenizer, translator.model.config
    names = {"relu": "RELU", "gelu": "GELU", "silu": "SWISH"}
    spec = specs.TransformerSpec.from_config(
        (config.num_encoder_layers, config.num_decoder_layers),
        config.num_heads,
        pre_norm=config.norm == "pre",
        activation=specs.Activation[names[config.activation]],
    )
    pieces = shown_pieces(tokenizer.target)
    spec.register_source_vocabulary(shown_pieces(tokenizer))
    spec.register_target_vocabulary(pieces)
    spec.config.layer_norm_epsilon = config.norm_epsilon
    spec.config.unk_token = pieces[tokenizer.unk_id]
    spec.config.eos_token = pieces[tokenizer.eos_id]
    spec.config.bos_token = spec.config.decoder_start_token = pieces[tokenizer.bos_id]

    spec.encoder.embeddings[0].weight = _array(model.source_embedding.matrix)
    spec.decoder.embeddings.weight = _array(model.embedding.matrix)
    spec.decoder.projection.weight = _array(model.output_matrix)
    if model.output_bias is not None:
        spec.decoder.projection.bias = _array(model.output_bias)
    longest = max(translator.sources.limit, translator.targets.limit, _POSITIONS)
    for side, positions in (
        (spec.encoder, model.source_positions),
        (spec.decoder, model.target_positions),
    ):
        side.scale_embeddings = config.scale_embedding
        side.position_encodings.encodings = _table(positions, longest, config.model_dim)
    scale = _query_scale(config)
    for stack, number, name, linear, norm in sub_layers(model):
        side = getattr(spec, stack)
        part = side if number is None else getattr(side.layer[number], name)
        part.layer_norm.gamma, part.layer_norm.beta = _array(norm.gamma), _array(norm.beta)
        if name == "ffn":
            targets = [part.linear_0, part.linear_1]
        elif name is None:
            targets = []
        else:
            targets, part.queries_scale = part.linear, scale
        for target, ours in zip(targets, linear, strict=True):
            _set_linear(target, ours)
    return spec


def shown_pieces(tokenizer):
    """Returns the tokens of the exported vocabulary, a list of distinct str."""
    shown = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    pieces = [piece.decode("utf-8") for piece in shown]
    pieces[tokenizer.pad_id] = "<pad>"
    if pieces.count(pieces[tokenizer.bos_id]) > 1:  # of a pretrained model
        pieces[tokenizer.bos_id] = "<begin of sequence>"
    return pieces


def _query_scale(config):
    """Returns the factor on the dot product of a query and a key."""
    scale = config.key_dim**-0.5 if config.attention_score == "scaled_dot_product" else 1.0
    return np.float32(scale / config.attention_temperature)


def _table(positions, longest, model_dim):
    """Returns the position encodings, float32 [positions, model_dim]."""
    if positions.max_positions:
        return _array(positions.table)
    return positions.encode(tf.range(longest), model_dim).numpy()


def _set_linear(spec, layer):
    """Sets the weights of a linear layer: its kernels concatenated, [outputs, inputs]."""
    kernels = [_array(weight) for weight in layer.weights if len(weight.shape) > 1]
    # A convolution of size 1 is a product too: [1, inputs, outputs].
    kernels = [kernel.reshape(kernel.shape[-2:]) for kernel in kernels]
    spec.weight = np.ascontiguousarray(np.concatenate(kernels, axis=1).T)
    if biases := [_array(weight) for weight in layer.weights if len(weight.shape) == 1]:
        spec.bias = np.concatenate(biases)


def _array(weight):
    return weight.numpy().astype("float32")
