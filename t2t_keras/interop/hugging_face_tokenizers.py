"""Settings and files of Hugging Face's tokenizers, which `marian_tokenizer.py` and others read."""

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.interop.files import (
    read_json,
    require_flag,
    require_known,
    require_number,
    require_text,
)

MAX_POSITIONS = 1_000_000
"""The limit of lengths where a folder gives none."""

_FIXED = {
    "model_specific_special_tokens": [None, {}],
    "sp_model_kwargs": [None, {}],
    "truncation_side": [None, "right"],
}
"""Fields of tokenizer_config.json and special_tokens_map.json, and the values they may have."""

_WITHOUT_EFFECT = {
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


def read_settings(folder, fixed, known, longest):
    """Returns the fields of tokenizer_config.json and special_tokens_map.json, checked.

    Args:
        folder: path.
        fixed: {field: allowed values}, for this kind of tokenizer.
        known: further fields, which may have any value.
        longest: default of `model_max_length`.

    Raises:
        InputError: if a field is not supported, or the files differ.
    """
    path, special_path = folder / "tokenizer_config.json", folder / "special_tokens_map.json"
    fields, special = (read_json(file, default={}) for file in (path, special_path))
    known = {
        "added_tokens_decoder",
        "clean_up_tokenization_spaces",
        "eos_token",
        "model_max_length",
        "pad_token",
        "unk_token",
        *known,
        *_WITHOUT_EFFECT,
    }
    for file, found in ((path, fields), (special_path, special)):
        require_known(found, file, _FIXED | fixed, known)
    for name, value in special.items():
        if content_of(fields.setdefault(name, value)) != content_of(value):
            raise InputError(
                f"{special_path}: {name} is {value!r}, and in {path.name} {fields[name]!r}: only "
                "equal ones are supported."
            )
    for name, default in (("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")):
        fields[name] = content_of(fields.get(name, default))
        require_text(path, name, fields[name])
    if fields.get("clean_up_tokenization_spaces") is None:
        fields["clean_up_tokenization_spaces"] = False
    require_flag(path, "clean_up_tokenization_spaces", fields["clean_up_tokenization_spaces"])
    found = fields.setdefault("model_max_length", longest)
    if found is None:  # no limit
        fields["model_max_length"] = MAX_POSITIONS
    else:
        require_number(path, "model_max_length", found)
        if found < 1:
            raise InputError(f"{path}: model_max_length is {found}: at least 1 is needed.")
    return fields


def read_added_tokens(folder, settings):
    """Returns the tokens that the tokenizer's files add, or repeat, a list of (token, id).

    Tokens and ids are not checked. Hugging Face reads either tokenizer_config.json or
    tokenizer.json.
    """
    entries = settings.get("added_tokens_decoder")
    if entries is None:
        entries = read_json(folder / "tokenizer.json", default={}).get("added_tokens") or {}
    if isinstance(entries, list):
        entries = {str(token.get("id")): token for token in entries if isinstance(token, dict)}
    elif not isinstance(entries, dict):
        entries = {None: entries}
    added = [(content_of(token), number) for number, token in entries.items()]
    return [*added, *read_json(folder / "added_tokens.json", default={}).items()]


def content_of(token):
    """Returns the text of a token, which may be a dict, or of each token in a list."""
    if isinstance(token, list):
        return [content_of(one) for one in token]
    return token.get("content") if isinstance(token, dict) else token


def read_vocabulary(path):
    """Returns the piece of each id of a vocabulary file, list of str.

    Raises:
        InputError: if the ids are not 0, 1, 2, … without gaps.
    """
    ids = read_json(path)
    if sorted(ids.values(), key=repr) != sorted(range(len(ids)), key=repr):
        raise InputError(
            f"{path} has {len(ids)} pieces whose ids are not 0 to {len(ids) - 1}, each once: copy "
            "it again."
        )
    return sorted(ids, key=ids.get)


def rows_of_ids(first, size, placed):
    """Returns the row of an embedding for each of our ids 0, 1, 2, …, int [ids].

    Ids 0 to 3 come first; the other rows follow in their order.

    Args:
        first: list of int, the rows of the padding, end, unknown and start tokens; a row may appear
            twice.
        size: int, rows of the embedding.
        placed: the rows that do not follow again.
    """
    return np.array([*first, *(row for row in range(size) if row not in placed)])
