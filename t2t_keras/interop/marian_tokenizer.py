"""The tokenizer of a MarianMT (OPUS-MT) model, from Hugging Face's files.

`read_tokenizer` reads the files of settings, `read_tokens` the vocabularies. If the files add
tokens to vocab.json, an error names them.
"""

from typing import NamedTuple

import numpy as np

from t2t_keras.data.vocabulary_tokenizer import MARIAN_CODE, Side, pack_vocabularies
from t2t_keras.errors import InputError
from t2t_keras.interop.files import read_sentencepiece, require_kind
from t2t_keras.interop.hugging_face_tokenizers import (
    ids_of,
    read_added_tokens,
    read_settings,
    read_vocabulary,
    require_ids,
    rows_of_ids,
)
from t2t_keras.interop.weights import BANNED

_FIXED = {
    "additional_special_tokens": [None, []],
    "extra_special_tokens": [None, [], {}],
    "tokenizer_class": [None, "MarianTokenizer"],
}
"""Fields of tokenizer_config.json and special_tokens_map.json, and the values they may have."""


class Tokens(NamedTuple):
    """The vocabularies, and the rows of the embedding that become our ids."""

    packed: bytes  # the file of a `VocabularyTokenizer`
    rows: list  # int [ids] of each side, the embedding's row for each of our ids
    banned: np.ndarray  # bias [target ids]: 0, or -10,000 for those that are never output


def read_tokenizer(folder):
    """Returns the fields of the tokenizer's files, defaults included; InputError for others."""
    fields = read_settings(folder, _FIXED, ["separate_vocabs"], longest=512)
    if fields.get("separate_vocabs") is None:
        fields["separate_vocabs"] = False
    path, separate = folder / "tokenizer_config.json", fields["separate_vocabs"]
    require_kind(path, "true or false", separate_vocabs=separate)
    return fields


def read_tokens(folder, config, settings):
    """Returns the `Tokens` of a folder; `settings` are those of `read_tokenizer`.

    Raises:
        InputError: if a file is missing, files do not fit together, or tokens are added.
    """
    separate = settings["separate_vocabs"]
    if separate == config["share_encoder_decoder_embeddings"]:
        raise InputError(
            f"{folder}/tokenizer_config.json: separate_vocabs is {separate}, and in config.json "
            f"share_encoder_decoder_embeddings is {config['share_encoder_decoder_embeddings']}: "
            "download both files of one model again."
        )
    names = [settings[f"{name}_token"] for name in ("pad", "eos", "unk")]
    files = [(folder / "vocab.json", config["vocab_size"])]
    target_file = folder / "target_vocab.json" if separate else files[0][0]
    files.append((target_file, config["decoder_vocab_size"]))
    sides, rows = [], []
    for (file, size), spm in zip(files, ("source.spm", "target.spm"), strict=True):
        is_target = spm == "target.spm"
        pieces = read_vocabulary(file)
        if len(pieces) != size:
            raise InputError(
                f"{file} has {len(pieces)} pieces, and config.json says {size}: "
                "download both files of one model again."
            )
        special = ids_of(pieces, names, file)
        if not is_target:
            ids = dict(zip(names, special, strict=True))  # which the tokenizer's files repeat
            for token, number in read_added_tokens(folder, settings):
                if not isinstance(token, str) or str(ids.get(token)) != str(number):
                    raise InputError(
                        f"{folder} adds the token {token!r} with id {number!r} to those of "
                        "vocab.json: added tokens are not supported."
                    )
        start = config["decoder_start_token_id"] if is_target or not separate else special[0]
        if start >= size:
            raise InputError(
                f"{folder}/config.json: decoder_start_token_id is {start}, and {file} has {size} "
                "pieces: download both files of one model again."
            )
        order = rows_of_ids([*special, start], size, placed=(*special, start))
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
    require_ids(folder, config, pad_token_id=rows[0][0], eos_token_id=eos)
    banned = np.zeros(len(rows[1]), np.float32)
    banned[0] = BANNED
    banned[3] = BANNED if start in (pad, eos, unk) else 0.0
    return Tokens(pack_vocabularies(*sides), rows, banned)
