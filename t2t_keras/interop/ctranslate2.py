"""CTranslate2 models as a `Translator`: converted from OpenNMT-py, OpenNMT-tf, fairseq or Marian.

`load_ctranslate2` is the place to start. The format is that of CTranslate2's `model_spec.py`: a
file of named arrays, model.bin, with vocabularies beside it. Supported are the Transformers
of its `TransformerSpec`: norm before or after, biases, ReLU, GELU or SiLU, any position encodings
that are added, separate vocabularies, and every stored type; integers are dequantized.

Position encodings other than the paper's become learned positions, which hold the stored table.
CTranslate2 has no padding id. Ours, and its first input where that is a vector of zeros, get a row
of their own and a bias of -10,000, so that log-probabilities are the original's.
"""

import json
import math
import pathlib
import struct

import numpy as np

from t2t_keras.data.base_tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from t2t_keras.data.tokenizers import load_tokenizer, tokenizer_exists
from t2t_keras.data.vocabulary_tokenizer import Side, VocabularyTokenizer, pack_vocabularies
from t2t_keras.errors import InputError
from t2t_keras.interop.weights import (
    BANNED,
    Arrays,
    alternating_channels,
    read_json,
    read_sentencepiece,
    set_linear,
    set_norm,
)
from t2t_keras.layers.positions import SinusoidalPositions
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.translation import Translator

_VERSIONS = range(2, 7)  # of model.bin
_DTYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_OLD_DTYPES = {4: "float32", 2: "int16", 1: "int8"}  # by the size of an element, before version 4
_OLD_INT16_SCALE = 1000.0
_ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
_UNUSED = ("alignment_layer", "alignment_heads", "embeddings_merge")
_OFF = ("alibi", "scale_alibi", "multi_query_attention", "sliding_window")
_NO_TABLE_POSITIONS = 1024  # CTranslate2 truncates a source at this length
_CONFIG = {
    "add_source_bos",
    "add_source_eos",
    "bos_token",
    "decoder_start_token",
    "eos_token",
    "layer_norm_epsilon",
    "multi_query_attention",
    "quantization_bits",
    "quantization_group_size",
    "quantization_type",
    "unk_token",
}


def load_ctranslate2(folder, source_spm=None, target_spm=None):
    """Loads a CTranslate2 model.

    A folder that `export_ctranslate2` wrote has its tokenizer. For other folders two SentencePiece
    models make one; without them texts are tokens of the vocabulary with spaces between, and
    translations are, too. The end token is appended to a source if config.json has
    `add_source_eos`. CTranslate2's converter leaves it to the tokenizer for Marian models of
    Hugging Face: here too two SentencePiece models then append it, and a text of tokens must end
    with it: `▁Hello </s>`.

    Args:
        folder: a folder with model.bin and vocabularies.
        source_spm: path of the SentencePiece model of the source, or None.
        target_spm: path of that of the target; None: `source_spm`.

    Returns:
        `Translator`, with CTranslate2's defaults: a beam of 2, at most 256 tokens, and the score
        log P / length.

    Raises:
        InputError: if a file is missing or damaged, or the model is of another architecture.

    Example:
        >>> translator = load_ctranslate2("engine", source_spm="source.spm")
    """
    folder = pathlib.Path(folder)
    config = read_json(folder / "config.json", default={})
    for name, value in config.items():
        if name not in _CONFIG and value not in (None, False):
            raise InputError(f"{folder}/config.json: {name} is {value!r}, which is not understood.")
        if name in ("multi_query_attention", "quantization_type") and value:
            raise InputError(f"{folder}/config.json: {name} is {value!r}, which is not supported.")
    arrays = Arrays(_read_model(folder / "model.bin"), str(folder / "model.bin"))
    starts_from_zero = _flag(arrays, "decoder/start_from_zero_embedding", False)
    if tokenizer_exists(folder):
        tokenizer, rows = load_tokenizer(folder), (None, None)
    else:
        tokenizer, rows = _make_tokenizer(
            folder, config, arrays, starts_from_zero, [source_spm, target_spm or source_spm]
        )
    model = _make_model(config, arrays, rows)
    arrays.require_empty()
    return Translator(
        model,
        tokenizer,
        beam_size=2,
        length_penalty=1.0,
        length_penalty_offset=0.0,
        max_extra_tokens=256,
        max_target_length=256,
    )


# The file ----------------------------------------------------------------------------------------


def _read_model(path):
    """Returns the arrays of model.bin, {name: array}: matrices dequantized, aliases as entries."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path.parent} has no {path.name}: copy the model again.") from error
    try:
        arrays, aliases = _parse(content, path)
    except (struct.error, ValueError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is damaged ({error}): copy it again.") from error
    for name, array in list(arrays.items()):
        scale = arrays.get(f"{name}_scale")
        if name.endswith("weight") and array.dtype in (np.int8, np.int16):
            scale = np.float32(_OLD_INT16_SCALE) if scale is None else scale
            scale = scale.reshape(-1, *[1] * (array.ndim - 1)) if scale.size > 1 else scale
            arrays[name] = array.astype(np.float32) / scale
            arrays.pop(f"{name}_scale", None)
    for alias, name in aliases:
        if name in arrays:  # a scale is gone
            arrays[alias] = arrays[name]
    return arrays


def _parse(content, path):
    """Returns {name: array} and [(alias, name)] of the bytes of model.bin."""
    place = 0

    def take(form):
        nonlocal place
        [value] = struct.unpack_from(form, content, place)
        place += struct.calcsize(form)
        return value

    def take_bytes(count):
        nonlocal place
        if count > len(content) - place:
            raise ValueError(f"it ends at byte {len(content)}, within {count} bytes at {place}")
        place += count
        return content[place - count : place]

    def take_string():
        return take_bytes(take("<H"))[:-1].decode("utf-8")

    version = take("<I")
    if version not in _VERSIONS:
        raise InputError(
            f"{path} has version {version}: {_VERSIONS[0]} to {_VERSIONS[-1]} can be read."
        )
    spec, revision = take_string(), take("<I")
    heads = {"TransformerBase": 8, "TransformerBig": 16}
    if spec not in ("TransformerSpec", *heads) or not 2 <= revision <= 7:
        raise InputError(
            f"{path} holds a {spec}, revision {revision}: only a TransformerSpec of revision 2 to "
            "7, an encoder and a decoder, is supported."
        )
    arrays = {}
    for _ in range(take("<I")):
        name, rank = take_string(), take("<B")
        shape = [take("<I") for _ in range(rank)]
        code, size = take("<B"), take("<I")
        if version >= 4:
            dtype = _DTYPES[code] if code < len(_DTYPES) else f"type {code}"
        else:
            dtype, size = _OLD_DTYPES.get(code, f"type {code}"), size * code
        if not hasattr(np, dtype) and dtype != "bfloat16":
            raise ValueError(f"{name} is of {dtype}")
        array = np.frombuffer(take_bytes(size), np.uint16 if dtype == "bfloat16" else dtype)
        if dtype == "bfloat16":
            array = (array.astype(np.uint32) << 16).view(np.float32)
        if array.size != math.prod(shape):
            raise ValueError(f"{name} of shape {shape} has {array.size} elements")
        arrays[name] = array.reshape(shape)
    if spec in heads:
        arrays.setdefault("num_heads", np.int8(heads[spec]))
    count = take("<I") if version >= 3 else 0
    aliases = [(take_string(), take_string()) for _ in range(count)]
    if place != len(content):
        raise ValueError(f"{len(content) - place} bytes follow its end")
    return arrays, aliases


# Vocabulary --------------------------------------------------------------------------------------


def _make_tokenizer(folder, config, arrays, starts_from_zero, spms):
    """Returns the tokenizer, and for each side the rows that become our ids."""
    files = [_vocabulary_file(folder, side) for side in ("source", "target")]
    names = {
        key: config.get(f"{key}_token", default)
        for key, default in (("eos", "</s>"), ("unk", "<unk>"), ("bos", "<s>"))
    }
    start = config.get("decoder_start_token", names["bos"])
    if start is None and not starts_from_zero:
        raise InputError(
            f"{folder}/config.json: decoder_start_token is null: models that need a target prefix, "
            "such as M2M-100 and NLLB, are not supported."
        )
    # In files without config.json the flags are arrays.
    begins, ends = (
        config.get(f"add_source_{key}", _flag(arrays, f"with_source_{key}", False))
        for key in ("bos", "eos")
    )
    ends = ends or bool(starts_from_zero and spms[0])  # of Marian
    if not _flag(arrays, "with_target_bos", True):
        start = names["eos"]
    sides, rows = [], []
    for number, (file, name) in enumerate(zip(files, ("encoder", "decoder"), strict=True)):
        pieces = _read_vocabulary(file)
        size = arrays.shape(_embedding(arrays, name))[0]
        if names["unk"] not in pieces and len(pieces) < size:
            pieces.append(names["unk"])  # as CTranslate2 does
        if len(pieces) != size:
            raise InputError(f"{file} has {len(pieces)} tokens, and the embedding {size} rows.")
        index = {piece: row for row, piece in reversed(list(enumerate(pieces)))}
        required = {"target": (names["eos"],), "source": (names["eos"],) if ends else ()}
        for piece in required["target" if number else "source"]:
            if piece not in index:
                raise InputError(f"{file} has no {piece!r}.")
        first = names["bos"] if starts_from_zero else start
        if number and not starts_from_zero and first not in index:
            raise InputError(f"{file} has no {first!r}, the decoder's first input.")
        start_row = -1 if starts_from_zero else index.get(first, -1)
        special = [-1, index.get(names["eos"], -1), index.get(names["unk"], -1), start_row]
        rows.append(np.array([*special, *(row for row in range(size) if row not in special)]))
        shown = ["<pad>", names["eos"], names["unk"], first]
        spm = read_sentencepiece(pathlib.Path(spms[number])) if spms[number] else b""
        prefix = [names["bos"]] if begins and not number else []
        if any(piece not in index for piece in prefix):
            raise InputError(f"{file} has no {names['bos']!r}, which begins a source.")
        sides.append(
            Side(
                [*shown, *(pieces[row] for row in rows[-1][4:])], spm, prefix=prefix, adds_eos=ends
            )
        )
    same = files[0] == files[1] and spms[0] == spms[1]
    packed = pack_vocabularies(*sides[:1] if same else sides)
    return VocabularyTokenizer("vocabulary", packed), rows


def _vocabulary_file(folder, side):
    for name in ("shared_vocabulary", f"{side}_vocabulary"):
        for ending in (".json", ".txt"):
            if (folder / (name + ending)).exists():
                return folder / (name + ending)
    raise InputError(f"{folder} has no {side}_vocabulary.json or shared_vocabulary.json.")


def _read_vocabulary(path):
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix != ".json":
            return text.removesuffix("\n").split("\n")
        pieces = json.loads(text)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}): copy it again.") from error
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise InputError(f"{path} is not a JSON list of strings: copy it again.")
    return pieces


# The model ---------------------------------------------------------------------------------------


def _flag(arrays, name, default):
    return bool(arrays.take_scalar(name)) if name in arrays else default


def _embedding(arrays, side):
    """Returns the name of a side's embedding."""
    names = [f"{side}/embeddings_0/weight", f"{side}/embeddings/weight"]
    return next((name for name in names if name in arrays), names[1])


class _Side:
    """The attributes of the encoder or the decoder in model.bin, except its layers."""

    def __init__(self, arrays, name, shared):
        """Takes it from the `Arrays`; `shared` are the attributes of older files, {name: value}."""

        def attribute(key, default):
            if f"{name}/{key}" in arrays:
                return arrays.take_scalar(f"{name}/{key}")
            return shared.get(key, default)

        self.embedding = arrays.take(_embedding(arrays, name), None, None)
        self.model_dim = self.embedding.shape[1]
        self.num_heads = int(attribute("num_heads", 8))
        self.pre_norm = bool(attribute("pre_norm", True))
        self.activation = int(attribute("activation", 0))
        for key in _UNUSED:
            attribute(key, None)
        attribute("alibi_use_positive_positions", None)
        for key in _OFF:
            if value := attribute(key, 0):
                raise InputError(f"the {name} has {key} = {value}, which is not supported.")
        scale = attribute("scale_embeddings", None)
        if scale is None:
            scale = attribute("embeddings/multiply_by_sqrt_depth", 1)
        flag = isinstance(scale, int)
        self.scales = (
            bool(scale) if flag else math.isclose(scale, self.model_dim**0.5, rel_tol=1e-4)
        )
        if not flag and not self.scales and scale != 1.0:
            raise InputError(f"the {name} has scale_embeddings = {scale}: only √{self.model_dim}.")
        self.positions = None
        if f"{name}/position_encodings/encodings" in arrays:
            self.positions = arrays.take(
                f"{name}/position_encodings/encodings", None, self.model_dim
            )
        self.num_layers = arrays.count(f"{name}/layer_")

    def agrees(self, other):
        return all(
            getattr(self, key) == getattr(other, key)
            for key in ("model_dim", "num_heads", "pre_norm", "activation", "scales")
        )


def _make_model(config, arrays, rows):
    """Returns the `Transformer` of model.bin."""
    shared = {
        key: arrays.take_scalar(key)
        for key in ("num_heads", "pre_norm", "activation", *_UNUSED)
        if key in arrays
    }
    encoder, decoder = (_Side(arrays, name, shared) for name in ("encoder", "decoder"))
    if not encoder.agrees(decoder):
        raise InputError("encoder and decoder differ in width, heads, norm, activation or scale.")
    if decoder.activation not in _ACTIVATIONS:
        raise InputError(
            f"the activation has number {decoder.activation}: only 0 (ReLU), 2 (SiLU) and 3 (GELU) "
            "are supported."
        )
    size, model_dim = decoder.embedding.shape
    projection = arrays.take("decoder/projection/weight", size, model_dim)
    bias = arrays.take_optional("decoder/projection/bias", size)
    matrices = [
        _with_rows(matrix, order)
        for matrix, order in (
            (encoder.embedding, rows[0]),
            (decoder.embedding, rows[1]),
            (projection, rows[1]),
        )
    ]
    if not np.array_equal(matrices[1], matrices[2]):
        sharing = "none"
    else:
        sharing = "all" if np.array_equal(matrices[0], matrices[1]) else "target"
    position_embedding, tables, channels = _positions(encoder, decoder)
    inner = arrays.shape("encoder/layer_0/ffn/linear_0/weight")[0]
    model = Transformer(
        TransformerConfig(
            vocab_size=len(matrices[1]),
            source_vocab_size=None if sharing == "all" else len(matrices[0]),
            num_encoder_layers=encoder.num_layers,
            num_decoder_layers=decoder.num_layers,
            model_dim=model_dim,
            feed_forward_dim=inner,
            num_heads=decoder.num_heads,
            position_embedding=position_embedding,
            max_positions=min(len(table) for table in tables) if tables else 512,
            norm="pre" if decoder.pre_norm else "post",
            norm_epsilon=config.get("layer_norm_epsilon") or 1e-5,
            activation=_ACTIVATIONS[decoder.activation],
            attention_bias=arrays.has_any("attention/linear_0/bias"),
            embedding_sharing=sharing,
            scale_embedding=decoder.scales,
            output_bias=rows[1] is not None or bias is not None,
        )
    )
    for layer, matrix in zip(
        (model.source_embedding, model.embedding, model.output_projection), matrices, strict=True
    ):
        layer.matrix.assign(matrix[:, channels])
    if model.output_bias is not None:
        model.output_bias.assign(_output_bias(bias, rows[1], size))
    for layer, table in zip((model.source_positions, model.target_positions), tables, strict=False):
        layer.table.assign(table[: layer.max_positions])
    _set_layers(model, arrays, channels)
    return model


def _with_rows(matrix, rows):
    """Returns the rows of a matrix, zeros where a row is -1; all rows if None."""
    if rows is None:
        return matrix
    return np.where((rows >= 0)[:, np.newaxis], matrix[rows], np.float32(0))


def _output_bias(bias, rows, size):
    bias = np.zeros(size, np.float32) if bias is None else bias
    if rows is None:
        return bias
    bias = np.where(rows >= 0, bias[rows], BANNED)
    bias[PAD_ID] = BANNED
    if rows[BOS_ID] in (rows[EOS_ID], rows[UNK_ID]):
        bias[BOS_ID] = BANNED
    return bias


def _positions(encoder, decoder):
    """Returns the kind of positions, the tables of learned ones, and the order of channels."""
    model_dim = encoder.model_dim
    tables = [encoder.positions, decoder.positions]
    if model_dim % 2 == 0 and all(table is not None for table in tables):
        for channels in (np.arange(model_dim), alternating_channels(model_dim)):
            if all(_is_sinusoidal(table[:, channels]) for table in tables):
                return "sinusoidal", [], channels
    default = _default_positions(model_dim)
    tables = [default if table is None else table for table in tables]
    return "learned", tables, np.arange(model_dim)


def _is_sinusoidal(table):
    expected = SinusoidalPositions().encode(np.arange(len(table)), table.shape[1]).numpy()
    return np.max(np.abs(table - expected)) < 2e-4


def _default_positions(model_dim):
    """Returns the encodings of a model without a table, as CTranslate2 generates them.

    They are tensor2tensor's: positions from 1, rates from 1 to 1/10000, sines before cosines.
    """
    half = model_dim // 2
    rates = np.exp(np.arange(half, dtype=np.float32) * -np.float32(math.log(10000.0) / (half - 1)))
    angles = np.arange(1, _NO_TABLE_POSITIONS + 1, dtype=np.float32)[:, np.newaxis] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _set_layers(model, arrays, channels):
    """Moves the arrays of the layers into the model."""
    config = model.config
    model_dim, widths = config.model_dim, config.num_heads * config.key_dim

    def linear(name, outputs, inputs):
        weight = arrays.take(f"{name}/weight", outputs, inputs)
        bias = arrays.take_optional(f"{name}/bias", outputs)
        return weight.T, np.zeros(outputs, np.float32) if bias is None else bias

    def set_attention(name, inputs, output, norm):
        """Sets projections: `inputs` is {layer: how many matrices it fuses}, queries first."""
        scale = 1.0
        if f"{name}/queries_scale" in arrays:
            scale = config.key_dim**0.5 * arrays.take_scalar(f"{name}/queries_scale")
        for number, (layer, count) in enumerate(inputs.items()):
            kernel, bias = linear(f"{name}/linear_{number}", count * widths, model_dim)
            if number == 0 and abs(scale - 1) > 1e-6:
                factor = np.repeat([scale, *[1.0] * (count - 1)], widths).astype(np.float32)
                kernel, bias = kernel * factor, bias * factor
            set_linear(layer, [(kernel, bias)], rows=channels)
        part = linear(f"{name}/linear_{len(inputs)}", model_dim, widths)
        set_linear(output, [part], columns=channels)
        set_layer_norm(norm.norm, name)

    def set_layer_norm(layer, name):
        gamma, beta = (
            arrays.take(f"{name}/layer_norm/{part}", model_dim) for part in ("gamma", "beta")
        )
        set_norm(layer, gamma, beta, channels)

    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        if config.norm == "pre":
            set_layer_norm(stack.final_norm, side)
        for number, layer in enumerate(stack.layers):
            name = f"{side}/layer_{number}"
            if side == "encoder":
                attention, residual = layer.attention, layer.attention_residual
            else:
                attention, residual = layer.self_attention, layer.self_residual
                cross = layer.cross_attention
                set_attention(
                    f"{name}/attention",
                    {cross.query_projection: 1, cross.kv_projection: 2},
                    cross.output_projection,
                    layer.cross_residual,
                )
            set_attention(
                f"{name}/self_attention",
                {attention.qkv_projection: 3},
                attention.output_projection,
                residual,
            )
            inner, outer = layer.feed_forward.inner, layer.feed_forward.outer
            part = linear(f"{name}/ffn/linear_0", config.feed_forward_dim, model_dim)
            set_linear(inner, [part], rows=channels)
            part = linear(f"{name}/ffn/linear_1", model_dim, config.feed_forward_dim)
            set_linear(outer, [part], columns=channels)
            set_layer_norm(layer.feed_forward_residual.norm, f"{name}/ffn")
