"""The files of a CTranslate2 model: model.bin, config.json and the vocabularies.

Start with `read_model`. Like CTranslate2, this module reads the files of all converters from
version 0.5 on. It gives arrays, attributes (numbers of a model or a layer, such as `num_heads`) and
settings (config.json) the names of today's converters. `require_neutral` refuses attributes of
other architectures than the paper's Transformer, and names them, unless their value turns them off.
"""

import json
import math
import pathlib
import re
import struct
from typing import NamedTuple

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.interop.files import read_file, read_json, require_kind
from t2t_keras.interop.weights import Arrays

_VERSIONS = range(2, 7)  # of model.bin
_REVISIONS = range(2, 8)  # of the specification
_SIDE_REVISION = 5  # the first whose encoder and decoder have attributes of their own
_CONFIG_VERSION = 6  # the first whose settings are in config.json, and not in model.bin
_TYPED_VERSION = 4  # the first that says the type of an array
_ALIAS_VERSION = 3  # the first that has aliases
_DTYPES = ("float32", "int8", "int16", "int32", "float16", "bfloat16")
_OLD_DTYPES = {4: "float32", 2: "int16", 1: "int8"}  # by the size of an element
_OLD_INT16_SCALE = 1000.0
_OLD_HEADS = {"TransformerBase": 8, "TransformerBig": 16}

_SHARED = (  # attributes of the whole model, before `_SIDE_REVISION`
    "num_heads",
    "pre_norm",
    "activation",
    "alignment_layer",
    "alignment_heads",
    "embeddings_merge",
)
_NEUTRAL = {
    "alibi": 0,
    "final_logit_softcapping": 0,
    "layer_scalar": 1,
    "layernorm_embedding": 0,
    "merged_encoder_attention": 0,
    "multi_query": 0,
    "rotary_dim": -1,
    "scale_outputs": 1,
    "sliding_window": 0,
    "with_relative_position": 0,
}
"""Attributes of other architectures, and the value that turns each off."""

_WITHOUT_EFFECT = {
    *("alibi_use_positive_positions", "scale_alibi"),  # of ALiBi
    *("alignment_heads", "alignment_layer"),
    "embeddings_merge",  # of several embeddings
    "multiply_by_sqrt_depth",  # where `scale_embeddings` is there, too
    "multi_query_attention",  # some converters write 1 for any model; `num_heads_kv` decides
    "layer_norm_use_residual",  # of RMSNorm
    # Of rotary positions.
    *("max_position_embeddings", "original_max_position_embeddings", "rotary_base"),
    *("rotary_high_freq_factor", "rotary_low_freq_factor", "rotary_interleave"),
    *("rotary_scaling_factor", "rotary_scaling_type"),
    # Of relative positions, which have tensors.
    *("relative_attention_max_distance", "relative_left_max_position"),
    "relative_right_max_position",
}
_TENSORS = re.compile(
    r"(encoder|decoder)/(embeddings/weight|position_encodings/encodings|layer_norm/(gamma|beta)"
    r"|layer_\d+/(self_attention|attention|ffn)/(layer_norm/(gamma|beta)|linear_\d/(weight|bias)))"
    r"|decoder/projection/(weight|bias)"
)


class StoredModel(NamedTuple):
    """The contents of a folder, except its vocabularies."""

    arrays: Arrays  # the weights as floats
    attributes: dict  # {name: int or float}
    settings: dict  # {name: value} with all names of config.json


def read_model(folder):
    """Returns the `StoredModel` of a folder: its model.bin and config.json.

    Raises:
        InputError: if a file is missing or damaged, or of another architecture.
    """
    path = pathlib.Path(folder) / "model.bin"
    config_path = path.with_name("config.json")
    try:
        stored = _parse(read_file(path), path)
        arrays = _dequantized(stored)
        if stored.version < _CONFIG_VERSION:
            settings = _old_settings(arrays, read_json(config_path, default={}))
        else:
            settings = read_json(config_path)
    except InputError:
        raise
    except (struct.error, ValueError) as error:
        raise InputError(f"{path} is damaged ({error}): copy it again.") from error
    attributes = {
        name: arrays.pop(name).item() for name in list(arrays) if arrays[name].shape == ()
    }
    if stored.revision < _SIDE_REVISION:
        for name in _SHARED:
            if name in attributes:
                value = attributes.pop(name)
                attributes |= {f"{side}/{name}": value for side in ("encoder", "decoder")}
    for name, value in attributes.items():
        if not math.isfinite(value):
            raise InputError(f"{path}: {name} is {value}: a finite number is needed.")
    if "encoder/embeddings_0/weight" in arrays:
        first = arrays.pop("encoder/embeddings_0/weight")
        arrays.setdefault("encoder/embeddings/weight", first)
    for name in sorted(arrays):
        if not _TENSORS.fullmatch(name):
            raise InputError(
                f"{path} has the tensor {name}, which the architectures that are supported do not "
                "have: it is another kind of model."
            )
    return StoredModel(Arrays(arrays, str(path)), attributes, _checked(settings, config_path))


class _Stored(NamedTuple):
    """The unchanged contents of model.bin."""

    version: int
    revision: int
    arrays: dict  # {name: array}
    aliases: list  # of (alias, name)


def _parse(content, path):
    """Returns the `_Stored` of the bytes of model.bin."""
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
            f"{path} has version {version}: {_VERSIONS[0]} to {_VERSIONS[-1]} can be read. Convert "
            "the original model again."
        )
    spec, revision = take_string(), take("<I")
    if spec not in ("TransformerSpec", *_OLD_HEADS) or revision not in _REVISIONS:
        raise InputError(
            f"{path} holds a {spec!r}, revision {revision}: only a TransformerSpec of revision "
            f"{_REVISIONS[0]} to {_REVISIONS[-1]}, an encoder and a decoder, is supported."
        )
    arrays = {}
    for _ in range(take("<I")):
        name, rank = take_string(), take("<B")
        shape = [take("<I") for _ in range(rank)]
        code, size = take("<B"), take("<I")
        if version >= _TYPED_VERSION:
            dtype = _DTYPES[code] if code < len(_DTYPES) else None
        else:
            dtype, size = _OLD_DTYPES.get(code), size * code
        if dtype is None:
            raise ValueError(f"{name} is of type {code}")
        array = np.frombuffer(take_bytes(size), np.dtype(dtype))  # bfloat16 is TensorFlow's
        if array.size != math.prod(shape):
            raise ValueError(f"{name} of shape {shape} has {array.size} elements")
        arrays.setdefault(name, array.reshape(shape))
    if spec in _OLD_HEADS:
        arrays.setdefault("num_heads", np.array(_OLD_HEADS[spec]))
    count = take("<I") if version >= _ALIAS_VERSION else 0
    aliases = [(take_string(), take_string()) for _ in range(count)]
    if place != len(content):
        raise ValueError(f"{len(content) - place} bytes follow its end")
    return _Stored(version, revision, arrays, aliases)


def _dequantized(stored):
    """Returns {name: array} with matrices of integers as floats, and an entry for each alias."""
    arrays = dict(stored.arrays)
    for name, array in stored.arrays.items():
        if name.endswith("weight") and array.dtype in (np.int8, np.int16):
            scale = arrays.pop(f"{name}_scale", None)
            if scale is None and array.dtype == np.int8:
                raise ValueError(f"{name} has no {name}_scale")
            scale = np.float32(_OLD_INT16_SCALE) if scale is None else scale.astype(np.float32)
            if scale.size > 1:
                scale = scale.reshape(-1, *[1] * (array.ndim - 1))
            with np.errstate(divide="ignore", invalid="ignore"):  # `Arrays.take` finds them
                arrays[name] = np.broadcast_to(array / scale, array.shape).astype(np.float32)
    for alias, name in stored.aliases:
        if name in arrays:  # a scale is gone
            arrays.setdefault(alias, arrays[name])
    return arrays


# Settings and attributes --------------------------------------------------------------------------


def _old_settings(arrays, config):
    """Removes the settings from the arrays of an older model.bin; config.json may add others."""

    def flag(name, default):
        return bool(arrays.pop(name).item()) if name in arrays else default

    def token(name, default):
        return arrays.pop(name).tobytes().decode("utf-8") if name in arrays else default

    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    settings = config | {name: token(name, default) for name, default in tokens.items()}
    for name in ("bos", "eos"):
        settings[f"add_source_{name}"] = flag(f"with_source_{name}", False)
    start = settings["bos_token" if flag("with_target_bos", True) else "eos_token"]
    settings["decoder_start_token"] = None if flag("user_decoder_start_tokens", False) else start
    return settings


def _checked(settings, path):
    """Returns the settings with all names; raises InputError for one that is not supported."""
    known = {
        "add_source_bos": False,
        "add_source_eos": False,
        "bos_token": "<s>",
        "decoder_start_token": None,
        "eos_token": "</s>",
        "layer_norm_epsilon": None,
        "multi_query_attention": False,  # see `_WITHOUT_EFFECT`
        "quantization_bits": None,
        "quantization_group_size": None,
        "quantization_type": None,
        "unk_token": "<unk>",
    }
    for name, value in settings.items():
        if name not in known and value not in (None, False):
            raise InputError(f"{path}: {name} is {value!r}: this field is not supported.")
    settings = known | settings
    for wanted, names in (
        ("a token, a str,", ("bos_token", "eos_token", "unk_token", "decoder_start_token")),
        ("true or false", ("add_source_bos", "add_source_eos")),
    ):
        given = {n: settings[n] for n in names if settings[n] is not None or known[n] is not None}
        require_kind(path, wanted, **given)
    epsilon = settings["layer_norm_epsilon"]
    if epsilon is not None and not (isinstance(epsilon, int | float) and 0 < epsilon < 1):
        raise InputError(
            f"{path}: layer_norm_epsilon is {epsilon!r}: a number from 0 to 1 is needed."
        )
    if settings["quantization_type"]:
        raise InputError(
            f"{path}: quantization_type is {settings['quantization_type']!r}, which is not "
            "supported: convert the original model with --quantization int8, or with none."
        )
    return settings


def require_neutral(attributes, place, num_heads, key_dim):
    """Raises InputError for an attribute that the model does not use, unless it changes nothing.

    Args:
        attributes: {name: value}, the remaining ones.
        place: the file, for messages.
        num_heads, key_dim: the model's.
    """
    neutral = _NEUTRAL | {"num_heads_kv": num_heads, "head_dim": key_dim}
    for name, value in attributes.items():
        key = name.rpartition("/")[2]
        if key not in _WITHOUT_EFFECT and not (key in neutral and value == neutral[key]):
            only = f": only {neutral[key]} is" if key in neutral else ", which is not"
            raise InputError(f"{place} has {name} = {value}{only} supported.")


# Vocabularies -------------------------------------------------------------------------------------


def find_vocabulary(folder, side):
    """Returns the path of the vocabulary of "source" or "target"; raises InputError without one."""
    folder = pathlib.Path(folder)
    for name in ("shared_vocabulary", f"{side}_vocabulary"):
        for ending in (".json", ".txt"):
            if (folder / (name + ending)).exists():
                return folder / (name + ending)
    if any(folder.glob("source_[0-9]*_vocabulary.*")):
        raise InputError(f"{folder} has vocabularies of word features, which are not supported.")
    raise InputError(
        f"{folder} has no {side}_vocabulary.json or shared_vocabulary.json: copy the folder again."
    )


def read_vocabulary(path):
    """Returns the tokens of a vocabulary as CTranslate2 reads them; InputError if it is damaged.

    Lines end with a line feed. If a carriage return precedes every one of them, it is not part of
    the tokens.
    """
    content = read_file(path)
    try:
        if path.suffix == ".json":
            pieces = json.loads(content.decode("utf-8-sig"))
            json.dumps(pieces, ensure_ascii=False).encode()  # no lone surrogate
        else:
            pieces = content.decode("utf-8").split("\n")
            if not pieces[-1]:
                pieces.pop()
            if all(piece.endswith("\r") for piece in pieces):
                pieces = [piece[:-1] for piece in pieces]
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} cannot be read ({error}): copy it again.") from error
    if not isinstance(pieces, list) or not all(isinstance(piece, str) for piece in pieces):
        raise InputError(f"{path} is not a JSON list of strings: copy it again.")
    return pieces
