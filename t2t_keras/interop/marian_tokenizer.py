"""The tokenizer of a MarianMT (OPUS-MT) model, from Hugging Face's files.

`read_tokenizer` reads the files of settings, `read_tokens` the vocabularies. Tokens that the files
add to those of vocab.json are refused, by name.
"""

import numpy as np

from t2t_keras.data.vocabulary_tokenizer import MARIAN_CODE, Side, pack_vocabularies
from t2t_keras.errors import InputError
from t2t_keras.interop.files import (
    read_json,
    read_sentencepiece,
    require_flag,
    require_known,
    require_number,
    require_text,
)
from t2t_keras.interop.weights import BANNED

MAX_POSITIONS = 1_000_000
"""The limit of lengths where a folder gives none."""

_FIXED_TOKENIZER = {
    "additional_special_tokens": [None, []],
    "extra_special_tokens": [None, [], {}],
    "model_specific_special_tokens": [None, {}],
    "sp_model_kwargs": [None, {}],
    "tokenizer_class": [None, "MarianTokenizer"],
    "truncation_side": [None, "right"],
}
"""Fields of tokenizer_config.json and special_tokens_map.json, and the values they may have."""

_READ_TOKENIZER = {
    "added_tokens_decoder",
    "clean_up_tokenization_spaces",
    "eos_token",
    "model_max_length",
    "pad_token",
    "separate_vocabs",
    "unk_token",
}
_TOKENIZER_WITHOUT_EFFECT = {
    "backend",
    "is_local",
    "local_files_only",
    "model_input_names",
    "name_or_path",
    "padding_side",
    "return_tensors",
    "source_lang",
    "special_tokens_map_file",
    "split_special_tokens",
    "target_lang",
    "target_vocab_file",
    "tokenizer_file",
    "transformers_version",
}


class Tokens:
    """The two sides' vocabularies, and the rows of the embedding that become our ids.

    Attributes:
        sides: list of one or two `Side`s.
        rows: list of int arrays, for each side the row of each of our ids.
        banned: the bias of each of our target ids: 0, or -10,000 for those that are never output.
    """

    def __init__(self, sides, rows, banned):
        self.sides, self.rows, self.banned = sides, rows, banned

    def pack(self):
        return pack_vocabularies(*self.sides)


def read_tokenizer(folder):
    """Returns the fields of the tokenizer's files, defaults included, checked."""
    path, special_path = folder / "tokenizer_config.json", folder / "special_tokens_map.json"
    fields, special = (read_json(file, default={}) for file in (path, special_path))
    for file, found in ((path, fields), (special_path, special)):
        require_known(found, file, _FIXED_TOKENIZER, _READ_TOKENIZER | _TOKENIZER_WITHOUT_EFFECT)
    for name, value in special.items():
        if _content(fields.setdefault(name, value)) != _content(value):
            raise InputError(
                f"{special_path}: {name} is {value!r}, and in {path.name} {fields[name]!r}: only "
                "equal ones are supported."
            )
    for name, default in (("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")):
        fields[name] = _content(fields.get(name, default))
        require_text(path, name, fields[name])
    for name in ("separate_vocabs", "clean_up_tokenization_spaces"):
        if fields.get(name) is None:
            fields[name] = False
        require_flag(path, name, fields[name])
    longest = fields.setdefault("model_max_length", 512)
    if longest is None:  # no limit
        fields["model_max_length"] = MAX_POSITIONS
    else:
        require_number(path, "model_max_length", longest)
        if longest < 1:
            raise InputError(f"{path}: model_max_length is {longest}: at least 1 is needed.")
    return fields


def _require_no_added_tokens(folder, fields, ids):
    """Raises InputError for tokens that the tokenizer's files add to vocab.json.

    Args:
        folder: path.
        fields: result of `read_tokenizer`.
        ids: {token: id} of the special tokens, which these files repeat.
    """
    entries = fields.get("added_tokens_decoder")
    if entries is None:  # Hugging Face reads one of them
        entries = read_json(folder / "tokenizer.json", default={}).get("added_tokens") or {}
    if isinstance(entries, list):
        entries = {str(token.get("id")): token for token in entries if isinstance(token, dict)}
    elif not isinstance(entries, dict):
        entries = {None: entries}
    added = [(_content(token), number) for number, token in entries.items()]
    added += read_json(folder / "added_tokens.json", default={}).items()
    for token, number in added:
        if not isinstance(token, str) or str(ids.get(token)) != str(number):
            raise InputError(
                f"{folder} adds the token {token!r} with id {number!r} to those of vocab.json: "
                "added tokens are not supported."
            )


def read_tokens(folder, config, settings):
    separate = settings["separate_vocabs"]
    if separate == config["share_encoder_decoder_embeddings"]:
        raise InputError(
            f"{folder}/tokenizer_config.json: separate_vocabs is {separate}, and in config.json "
            f"share_encoder_decoder_embeddings is {config['share_encoder_decoder_embeddings']}."
        )
    names = [settings[f"{name}_token"] for name in ("pad", "eos", "unk")]
    files = [(folder / "vocab.json", config["vocab_size"])]
    target_file = folder / "target_vocab.json" if separate else files[0][0]
    files.append((target_file, config["decoder_vocab_size"]))
    sides, rows = [], []
    for (file, size), spm in zip(files, ("source.spm", "target.spm"), strict=True):
        is_target = spm == "target.spm"
        pieces = _read_vocabulary(file, size)
        special = [_index(pieces, name, file) for name in names]
        if not is_target:
            _require_no_added_tokens(folder, settings, dict(zip(names, special, strict=True)))
        start = config["decoder_start_token_id"] if is_target or not separate else special[0]
        if start >= size:
            raise InputError(f"{folder}/config.json: decoder_start_token_id is {start} of {size}.")
        order = _rows(special, start, size)
        rows.append(order)
        sides.append(
            Side(
                [pieces[row] for row in order],
                read_sentencepiece(folder / spm),
                codes=MARIAN_CODE,
                cleans_up_spaces=settings["clean_up_tokenization_spaces"],
            )
        )
    pad, eos, unk, start = rows[1][:4]
    for name, row in (("pad_token_id", rows[0][0]), ("eos_token_id", eos)):
        if config[name] != row:
            raise InputError(
                f"{folder}: {name} is {config[name]} in config.json, and {row} in the vocabulary."
            )
    banned = np.zeros(len(rows[1]), np.float32)
    banned[0] = BANNED
    banned[3] = BANNED if start in (pad, eos, unk) else 0.0
    return Tokens(sides, rows, banned)


def _content(token):
    return token.get("content") if isinstance(token, dict) else token


def _read_vocabulary(path, size):
    """Returns the piece of each id of a vocabulary file, list of str."""
    ids = read_json(path)
    if sorted(ids.values(), key=repr) != sorted(range(len(ids)), key=repr):
        raise InputError(
            f"{path} numbers {len(ids)} pieces, but not by 0 to {len(ids) - 1}, each once."
        )
    if len(ids) != size:
        raise InputError(f"{path} has {len(ids)} pieces, and config.json says {size}.")
    return sorted(ids, key=ids.get)


def _index(pieces, piece, path):
    if piece not in pieces:
        raise InputError(f"{path} has no {piece!r}, which the tokenizer needs.")
    return pieces.index(piece)


def _rows(special, start, size):
    """Returns the rows of an embedding that become ids 0, 1, 2, …, int [size + 1] or so.

    Args:
        special: rows of padding, end and unknown.
        start: row of the decoder's first input, which may be one of them.
        size: rows of the embedding.
    """
    first = [*special, start]
    return np.array([*first, *(row for row in range(size) if row not in first)])
