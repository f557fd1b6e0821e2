"""Settings and files of Hugging Face's tokenizers, which `marian_tokenizer.py` and others read."""

import numpy as np

from t2t_keras.errors import InputError
from t2t_keras.interop.files import read_json, require_kind, require_known

MAX_POSITIONS = 1_000_000
"""The limit of lengths where a folder gives none."""

_FIXED = {
    "model_specific_special_tokens": [None, {}],
    "sp_model_kwargs": [None, {}],
    "truncation_side": [None, "right"],
}
"""Fields of tokenizer_config.json and special_tokens_map.json, and the values they may have."""

_WITHOUT_EFFECT = {
    # Where the tokenizer came from, and what made the files.
    *("backend", "is_local", "local_files_only", "name_or_path", "transformers_version"),
    *("special_tokens_map_file", "target_vocab_file", "tokenizer_file"),
    # The form of its batches, and the languages of a bilingual model.
    *("model_input_names", "padding_side", "return_tensors", "split_special_tokens"),
    *("source_lang", "target_lang"),
}


def read_settings(folder, fixed, known, longest):
    """Returns the fields of tokenizer_config.json and special_tokens_map.json.

    Raises InputError if a field is not supported, or the files differ. `fixed` and `known` are as
    for `hugging_face.read_config`, `longest` is the default of `model_max_length`.
    """
    path, special_path = folder / "tokenizer_config.json", folder / "special_tokens_map.json"
    fields, special = (read_json(file, default={}) for file in (path, special_path))
    known = {
        *("eos_token", "pad_token", "unk_token", "added_tokens_decoder"),
        *("clean_up_tokenization_spaces", "model_max_length", *known),
        *_WITHOUT_EFFECT,
    }
    for file, settings in ((path, fields), (special_path, special)):
        require_known(settings, file, _FIXED | fixed, known)
    for name, value in special.items():
        if content_of(fields.setdefault(name, value)) != content_of(value):
            raise InputError(
                f"{special_path}: {name} is {value!r}, and in {path.name} {fields[name]!r}: only "
                "equal ones are supported."
            )
    for name, default in (("eos_token", "</s>"), ("unk_token", "<unk>"), ("pad_token", "<pad>")):
        fields[name] = content_of(fields.get(name, default))
        require_kind(path, "a token, a str,", **{name: fields[name]})
    if fields.get("clean_up_tokenization_spaces") is None:
        fields["clean_up_tokenization_spaces"] = False
    cleans = fields["clean_up_tokenization_spaces"]
    require_kind(path, "true or false", clean_up_tokenization_spaces=cleans)
    limit = fields.setdefault("model_max_length", longest)
    if limit is None:  # no limit
        fields["model_max_length"] = MAX_POSITIONS
    else:
        require_kind(path, "a number", model_max_length=limit)
        if limit < 1:
            raise InputError(f"{path}: model_max_length is {limit}: at least 1 is needed.")
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
    """Returns the piece of each id of a vocabulary file; InputError unless ids are 0, 1, 2, …"""
    ids = read_json(path)
    if sorted(ids.values(), key=repr) != sorted(range(len(ids)), key=repr):
        raise InputError(
            f"{path} has {len(ids)} pieces whose ids are not 0 to {len(ids) - 1}, each once: copy "
            "it again."
        )
    return sorted(ids, key=ids.get)


def ids_of(pieces, names, path):
    """Returns the ids of tokens, a list of int; InputError if a vocabulary file lacks one."""
    for name in names:
        if name not in pieces:
            raise InputError(f"{path} has no {name!r}, which the tokenizer needs: copy it again.")
    return [pieces.index(name) for name in names]


def require_ids(folder, config, **ids):
    """Raises InputError if config.json gives tokens other ids than the vocabulary, {field: id}."""
    for name, row in ids.items():
        if config[name] != row:
            raise InputError(
                f"{folder}: {name} is {config[name]} in config.json, and {row} in the vocabulary: "
                "copy both files of one model."
            )


def rows_of_ids(first, size, placed):
    """Returns the row of an embedding for each of our ids 0, 1, 2, …, int [ids].

    Args:
        first: the rows of the padding, end, unknown and start tokens; one may appear twice.
        size: rows of the embedding; they follow in their order.
        placed: the rows that do not follow again.
    """
    return np.array([*first, *(row for row in range(size) if row not in placed)])
