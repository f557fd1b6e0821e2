"""CTranslate2 models as a `Translator`: converted from OpenNMT-py, OpenNMT-tf, fairseq or Marian.

Start with `load_ctranslate2`; `ctranslate2_files.py` reads the files. It supports
the Transformers of CTranslate2's `TransformerSpec`: pre-norm or post-norm, biases, ReLU, GELU or
SiLU, any added position encodings, separate vocabularies, and every stored type; integers are
dequantized.

Position encodings other than the paper's and fairseq's become learned positions with the stored
table. CTranslate2 has no padding id. Ours, and its first input if that is a vector of zeros, get
an additional row and a bias of -10,000, so that log-probabilities equal the original's.
"""

import math
import pathlib
import re

import numpy as np
import sentencepiece
from absl import logging

from t2t_keras.data.base_tokenizer import BOS_ID, DESCRIPTION_FILE, EOS_ID, PAD_ID, UNK_ID
from t2t_keras.data.files import local_path
from t2t_keras.data.tokenizers import load_tokenizer
from t2t_keras.data.vocabulary_tokenizer import Side, VocabularyTokenizer, pack_vocabularies
from t2t_keras.errors import InputError
from t2t_keras.interop.ctranslate2_files import (
    find_vocabulary,
    read_model,
    read_vocabulary,
    require_neutral,
)
from t2t_keras.interop.files import read_json, read_sentencepiece
from t2t_keras.interop.hugging_face_tokenizers import rows_of_ids
from t2t_keras.interop.weights import BANNED, alternating_channels, set_layers
from t2t_keras.layers.positions import SinusoidalPositions
from t2t_keras.layers.variants.positions import FairseqSinusoidalPositions
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.translation import Translator
from t2t_keras.types import StrPath

_ACTIVATIONS = {0: "relu", 2: "silu", 3: "gelu"}
_MAX_SOURCE_LENGTH = 1024  # CTranslate2 truncates a source at this length


def load_ctranslate2(
    folder: StrPath, source_spm: StrPath | None = None, target_spm: StrPath | None = None
) -> Translator:
    """Loads a CTranslate2 model.

    A folder that `export_ctranslate2` wrote contains its tokenizer. In other folders the two
    SentencePiece models are read, such as source.spm and target.spm, or the only one, for both
    sides; or give them. Without them sources and translations are tokens separated by spaces. The
    end token is appended to a source if `add_source_eos` is set in config.json. CTranslate2 does
    not set it when it converts Hugging Face's Marian models. For them the tokenizer made from two
    SentencePiece models appends the end, and a source of tokens must contain it: `▁Hello </s>`.

    A source, a prefix or a translation may begin with language codes, such as `>>fra<<`, `__fr__`,
    `<2fr>`, `[fr]`, `｟fr｠` or `fra_Latn`: tokens of the vocabulary that neither SentencePiece
    model produces.

    Args:
        folder: a folder with model.bin and vocabularies.
        source_spm: path of the SentencePiece model of the source; None: that in the folder.
        target_spm: path of the SentencePiece model of the target; None: `source_spm`.

    Returns:
        `Translator`, with CTranslate2's defaults: a beam of 2, sources of at most 1,024 tokens,
        translations of at most 256, and the score log P / length.

    Raises:
        InputError: if a file is missing or damaged, the model has another architecture,
            SentencePiece models are given for a folder that contains a tokenizer, or those in the
            folder do not say which side they are for.

    Example:
        >>> translator = load_ctranslate2("engine", source_spm="source.spm")
    """
    folder = pathlib.Path(local_path(folder))
    stored = read_model(folder)
    spms = [source_spm, target_spm or source_spm]
    if target_spm and not source_spm:
        raise InputError(f"{target_spm} is the target's SentencePiece model: give source_spm, too.")
    starts_from_zero = stored.attributes.pop("decoder/start_from_zero_embedding", 0) != 0
    if not _has_tokenizer(folder):
        spms = spms if any(spms) else _find_sentencepiece(folder)
        tokenizer, rows = _make_tokenizer(folder, stored, starts_from_zero, spms)
    elif any(spms):
        raise InputError(f"{folder} has a tokenizer: leave out the SentencePiece models.")
    else:
        tokenizer, rows = load_tokenizer(folder), (None, None)
    model = _make_model(stored, rows)
    stored.arrays.require_empty()
    return Translator(
        model,
        tokenizer,
        beam_size=2,
        length_penalty=1.0,
        length_penalty_offset=0.0,
        max_extra_tokens=256,
        max_source_length=_MAX_SOURCE_LENGTH,
        max_target_length=256,
    )


def _has_tokenizer(folder):
    """Returns whether a folder contains this library's tokenizer; others use the same file name."""
    return "kind" in read_json(folder / DESCRIPTION_FILE, default={})


# Vocabulary --------------------------------------------------------------------------------------


_READ = re.compile(r"model\.bin|config\.json|\w+_vocabulary\.(json|txt)|README.*|LICENSE.*|\..*")
_ONE_SIDE = re.compile(r"(source|src|target|tgt|trg)(?![a-z])")


def _find_sentencepiece(folder):
    """Returns the paths of the SentencePiece models in a folder, source and target, or two None."""
    files = sorted(path for path in folder.iterdir() if path.suffix in (".spm", ".model"))
    sides = [match and match[1][0] for match in (_ONE_SIDE.match(file.name) for file in files)]
    if sides in (["s", "t"], ["t", "s"]):
        models = files[:: 1 if sides[0] == "s" else -1]
    elif len(files) == 1 and sides == [None]:
        models = files * 2
    elif files:
        raise InputError(
            f"{folder} has {', '.join(file.name for file in files)}: give the SentencePiece models "
            "of both sides, source_spm and target_spm."
        )
    else:
        unread = sorted(p.name for p in folder.iterdir() if not _READ.fullmatch(p.name))
        logging.warning(
            "%s has no SentencePiece model: texts are tokens with spaces between%s",
            folder,
            f", and {', '.join(unread)} are not read" if unread else "",
        )
        return [None, None]
    logging.info("SentencePiece models: %s", ", ".join(file.name for file in models))
    return models


_CODES = r">>\S+<<|__\S+__|<\S+>|\[\S+\]|｟\S+｠|[a-z]{2,3}_[A-Z][A-Za-z]+"
_NO_CODES = r"<0x..>|<madeupword\d+>|</?\w>|<(unk|pad|blank|mask|eos|bos|sep|cls)>"


def _make_tokenizer(folder, stored, starts_from_zero, spms):
    """Returns the tokenizer, and for each side the rows that become our ids."""
    settings = stored.settings
    files = [find_vocabulary(folder, side) for side in ("source", "target")]
    eos, unk, bos = (settings[f"{name}_token"] for name in ("eos", "unk", "bos"))
    start = settings["decoder_start_token"]
    if start is None and not starts_from_zero:
        raise InputError(
            f"{folder}: decoder_start_token is null: models that need a target prefix, such as "
            "M2M-100 and NLLB, are not supported."
        )
    first = bos if starts_from_zero else start
    ends = settings["add_source_eos"] or bool(starts_from_zero and spms[0])  # of Marian
    prefix = [bos] if settings["add_source_bos"] else []
    models = [read_sentencepiece(pathlib.Path(spm)) if spm else b"" for spm in spms]
    sides, rows = [], []
    for number, (file, name) in enumerate(zip(files, ("encoder", "decoder"), strict=True)):
        pieces = read_vocabulary(file)
        size, _ = stored.arrays.shape(f"{name}/embeddings/weight", None, None)
        if unk not in pieces and len(pieces) < size:
            pieces.append(unk)  # as CTranslate2 does
        if len(pieces) != size:
            raise InputError(
                f"{file} has {len(pieces)} tokens, and the embedding {size} rows: copy "
                "the file again, or convert the model with the vocabulary of its training."
            )
        index = {piece: row for row, piece in reversed(list(enumerate(pieces)))}
        if number:
            required = [eos] if starts_from_zero else [eos, first]
        else:
            required = [*prefix, *[eos] * ends]
        for piece in required:
            if piece not in index:
                raise InputError(f"{file} has no {piece!r}, which the model needs: copy it again.")
        if spms[number]:
            _warn_of_other_pieces(spms[number], models[number], index, file)
        start_row = -1 if starts_from_zero else index.get(first, -1)
        special = [-1, index.get(eos, -1), index.get(unk, -1), start_row]
        rows.append(rows_of_ids(special, size, placed=special))
        shown = ["<pad>", eos, unk, first, *(pieces[row] for row in rows[-1][4:])]
        codes = _code_pattern(set(index) - {eos, unk, bos, start}, models)
        sides.append(Side(shown, models[number], codes, [] if number else prefix, ends))
    same = files[0] == files[1] and models[0] == models[1]
    packed = pack_vocabularies(*sides[:1] if same else sides)
    return VocabularyTokenizer("vocabulary", packed), rows


def _warn_of_other_pieces(spm, model, index, file):
    """Logs a warning if most pieces of a SentencePiece model are not in a vocabulary."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    count = processor.get_piece_size()
    known = sum(processor.id_to_piece(i) in index for i in range(count))
    if known < count / 2:
        text = "%s has %d pieces, of which %s has %d: it is probably another model's"
        logging.warning(text, spm, count, file, known)


def _code_pattern(pieces, models):
    """Returns the pattern of the language codes among pieces; see `load_ctranslate2`."""
    if not all(models):
        return ""
    processors = [sentencepiece.SentencePieceProcessor(model_proto=model) for model in models]

    def is_made(piece):
        """Returns whether a SentencePiece model can produce this piece from text."""
        ids = [processor.piece_to_id(piece) for processor in processors]
        return any(
            not (processor.is_unknown(i) or processor.is_control(i))
            for processor, i in zip(processors, ids, strict=True)
        )

    codes = filter(re.compile(rf"(?!({_NO_CODES})$)({_CODES})").fullmatch, pieces)
    codes = [code for code in codes if not is_made(code)]
    return "|".join(map(re.escape, sorted(codes, key=lambda code: (-len(code), code))))


# The model ---------------------------------------------------------------------------------------


class _Side:
    """The attributes of the encoder or the decoder in model.bin, and its embeddings."""

    def __init__(self, stored, name):
        def attribute(key, default):
            return stored.attributes.pop(f"{name}/{key}", default)

        self.place = stored.arrays.place
        self.embedding = stored.arrays.take(f"{name}/embeddings/weight", None, None)
        self.model_dim = self.embedding.shape[1]
        self.num_heads = int(attribute("num_heads", 8))
        self.pre_norm = attribute("pre_norm", 1) != 0
        self.activation = attribute("activation", 0)
        self.scales = self._scales(name, attribute("scale_embeddings", None), attribute)
        self.positions = stored.arrays.take_optional(
            f"{name}/position_encodings/encodings", None, self.model_dim
        )
        self.num_layers = stored.arrays.count(f"{name}/layer_")

    def _scales(self, name, scale, attribute):
        """Returns whether embeddings are multiplied by √model_dim."""
        if scale is None:
            scale = attribute("embeddings/multiply_by_sqrt_depth", 1)
        if isinstance(scale, int):  # a flag
            return scale != 0
        if scale != 1 and not math.isclose(scale, self.model_dim**0.5, rel_tol=1e-4):
            raise InputError(
                f"{self.place}: scale_embeddings of the {name} is {scale}: only 1 and "
                f"√{self.model_dim} are supported."
            )
        return scale != 1


def _make_model(stored, rows):
    """Returns the `Transformer` of model.bin."""
    arrays = stored.arrays
    encoder, decoder = (_Side(stored, name) for name in ("encoder", "decoder"))
    for key in ("model_dim", "num_heads", "pre_norm", "activation", "scales"):
        values = [getattr(side, key) for side in (encoder, decoder)]
        if values[0] != values[1]:
            raise InputError(
                f"{arrays.place}: {key} is {values[0]} in the encoder and {values[1]} in the "
                "decoder: only equal ones are supported."
            )
    if decoder.activation not in _ACTIVATIONS:
        raise InputError(
            f"{arrays.place}: activation is {decoder.activation}: only 0 (ReLU), 2 (SiLU) and 3 "
            "(GELU) are supported."
        )
    size, model_dim = decoder.embedding.shape
    num_heads = decoder.num_heads
    if num_heads < 1 or model_dim % num_heads:
        raise InputError(
            f"{arrays.place}: the width is {model_dim}, which is not divisible by num_heads, "
            f"{num_heads}: such models are not supported."
        )
    names = [name for name in stored.attributes if name.endswith("/queries_scale")]
    scales = {name: stored.attributes.pop(name) for name in names}
    require_neutral(stored.attributes, arrays.place, num_heads, model_dim // num_heads)
    projection = arrays.take("decoder/projection/weight", size, model_dim)
    bias = arrays.take_optional("decoder/projection/bias", size)
    orders = (rows[0], rows[1], rows[1])
    matrices = (encoder.embedding, decoder.embedding, projection)
    matrices = [*map(_with_rows, matrices, orders)]
    if not np.array_equal(matrices[1], matrices[2]):
        sharing = "none"
    else:
        sharing = "all" if np.array_equal(matrices[0], matrices[1]) else "target"
    position_embedding, tables, channels = _positions(encoder, decoder)
    inner, _ = arrays.shape("encoder/layer_0/ffn/linear_0/weight", None, model_dim)
    model = Transformer(
        TransformerConfig(
            vocab_size=len(matrices[1]),
            source_vocab_size=None if sharing == "all" else len(matrices[0]),
            num_encoder_layers=encoder.num_layers,
            num_decoder_layers=decoder.num_layers,
            model_dim=model_dim,
            feed_forward_dim=inner,
            num_heads=num_heads,
            position_embedding=position_embedding,
            max_positions=min(len(table) for table in tables) if tables else 512,
            norm="pre" if decoder.pre_norm else "post",
            norm_epsilon=stored.settings["layer_norm_epsilon"] or 1e-5,
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
    _set_layers(model, arrays, scales, channels)
    return model


def _with_rows(matrix, rows):
    """Returns the given rows of a matrix, zeros for row -1; None: all rows."""
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
            for name, kind in _SINUSOIDS.items():
                if all(_holds(table[:, channels], kind) for table in tables):
                    return name, [], channels
    default = _default_positions(model_dim)
    tables = [default if table is None else table for table in tables]
    return "learned", tables, np.arange(model_dim)


_SINUSOIDS = {
    "sinusoidal": SinusoidalPositions,
    "fairseq_sinusoidal": FairseqSinusoidalPositions,
}


def _holds(table, kind):
    """Returns whether a table equals the encodings of a kind of position embedding."""
    expected = kind.encode(np.arange(len(table)), max(table.shape[1], 4)).numpy()
    return expected.shape == table.shape and np.max(np.abs(table - expected)) < 2e-4


def _default_positions(model_dim):
    """Returns the encodings of a model without a table, as CTranslate2 generates them.

    They are tensor2tensor's: positions from 1, rates from 1 to 1/10000, sines before cosines.
    """
    half = model_dim // 2
    if model_dim % 2 or half < 2:
        raise InputError(
            f"model.bin: the width is {model_dim}, and CTranslate2's position encodings need an "
            "even one of at least 4: convert the original model again."
        )
    rates = np.exp(np.arange(half, dtype=np.float32) * -np.float32(math.log(10000.0) / (half - 1)))
    angles = np.arange(1, _MAX_SOURCE_LENGTH + 1, dtype=np.float32)[:, np.newaxis] * rates
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)


def _set_layers(model, arrays, scales, channels):
    """Moves the arrays of the layers into the model, and the scales of queries, {name: factor}."""
    config = model.config

    def linear(side, number, sub_layer, index, inputs, outputs):
        name = f"{side}/layer_{number}/{sub_layer}/linear_{index}"
        kernel = arrays.take(f"{name}/weight", outputs, inputs).T
        bias = arrays.take_optional(f"{name}/bias", outputs)
        bias = np.zeros(outputs, np.float32) if bias is None else bias
        scale = scales.get(f"{side}/layer_{number}/{sub_layer}/queries_scale")
        if index == 0 and scale is not None and abs(scale * config.key_dim**0.5 - 1) > 1e-6:
            factor = np.ones(outputs, np.float32)
            factor[: config.num_heads * config.key_dim] = scale * config.key_dim**0.5  # queries
            kernel, bias = kernel * factor, bias * factor
        return [(kernel, bias)]

    def norm(side, number, sub_layer):
        name = f"{side}/layer_{number}/{sub_layer}" if sub_layer else side
        return (arrays.take(f"{name}/layer_norm/{x}", config.model_dim) for x in ("gamma", "beta"))

    set_layers(model, channels, linear, norm)
