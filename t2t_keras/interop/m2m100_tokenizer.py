"""The tokenizers of M2M-100 and NLLB-200, from Hugging Face's files.

Start with `read_tokens`. SentencePiece splits a text into pieces; the language tokens are not
pieces. M2M-100 takes a piece's id from vocab.json and treats other pieces as unknown. NLLB-200
uses fairseq's ids, which are SentencePiece's plus one because of an additional special token.
Rows of the embedding beyond the last token are unused.

If a text contains `</s>`, `<unk>`, `<pad>` or a language token, it is encoded as text; Hugging
Face's tokenizers encode it as a special token.
"""

import itertools
import re
from typing import NamedTuple

import numpy as np
import sentencepiece

from t2t_keras.data.language_template import LanguageTemplate
from t2t_keras.data.vocabulary_tokenizer import FIRST_PIECE, Side, pack_vocabularies
from t2t_keras.errors import InputError
from t2t_keras.interop.files import read_json, read_sentencepiece
from t2t_keras.interop.hugging_face_tokenizers import (
    content_of,
    ids_of,
    read_added_tokens,
    read_settings,
    read_vocabulary,
    require_ids,
    rows_of_ids,
)

TEMPLATES = {
    "m2m100": {"source": "source", "forces_target": True},
    "small100": {"source": "target", "forces_target": False},
}
"""{name: fields of `LanguageTemplate`}: where M2M-100 and NLLB-200, and SMaLL-100, read languages.
"""

_SPM_FILE = "sentencepiece.bpe.model"

_SMALL100 = "SMALL100Tokenizer"

_FIXED = {
    "tokenizer_class": [None, "M2M100Tokenizer", "NllbTokenizer", "NllbTokenizerFast", _SMALL100],
}
"""Fields of tokenizer_config.json and special_tokens_map.json, and the values they may have."""

_SPECIAL = {
    "bos_token": "<s>",
    "cls_token": "<s>",
    "eos_token": "</s>",
    "mask_token": "<mask>",
    "pad_token": "<pad>",
    "sep_token": "</s>",
    "unk_token": "<unk>",
}

_READ = ("additional_special_tokens", "extra_special_tokens", "language_codes", *_SPECIAL)
_WITHOUT_EFFECT = ("num_madeup_words", "src_lang", "tgt_lang")

_FAIRSEQ_SPECIAL = ["<s>", "<pad>", "</s>", "<unk>"]

_M2M100_LANGUAGE = re.compile(r"__(.+)__")
_NLLB_LANGUAGE = re.compile(r"([a-z]{2,3}_[A-Z][a-z]{3}\w*)")

_LANGUAGE_CODES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga "
    "gd gl gu ha he hi hr ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml "
    "mn mr ms my ne nl no ns oc or pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn "
    "tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""The languages behind the pieces of vocab.json, in the order of their ids."""


class Tokens(NamedTuple):
    """The vocabulary, and the rows of the embedding that become our ids."""

    packed: bytes  # the file of a `VocabularyTokenizer`
    languages: LanguageTemplate
    rows: np.ndarray  # int [ids], the row of each of our ids
    language_rows: list  # of the languages' tokens


def read_tokenizer(folder):
    """Returns the fields of the tokenizer's files, defaults included; InputError for others."""
    fields = read_settings(folder, _FIXED, (*_READ, *_WITHOUT_EFFECT), longest=None)
    path = folder / "tokenizer_config.json"
    for name, expected in _SPECIAL.items():
        if content_of(fields.get(name)) not in (None, expected):
            raise InputError(f"{path}: {name} is {fields[name]!r}: only {expected} is supported.")
    codes = fields.get("language_codes") or "m2m100"
    if codes not in list(_LANGUAGE_CODES):  # it may be unhashable
        raise InputError(
            f"{path}: language_codes is {codes!r}: only {', '.join(_LANGUAGE_CODES)} are supported."
        )
    fields["language_codes"] = codes
    return fields


def template_of(folder, settings):
    """Returns the name in `TEMPLATES` of a folder; its files distinguish SMaLL-100 from M2M-100."""
    is_small100 = settings.get("tokenizer_class") == _SMALL100
    is_small100 |= (folder / "tokenization_small100.py").exists()
    return "small100" if is_small100 else "m2m100"


def read_tokens(folder, config, settings, template):
    """Returns the `Tokens` of a folder.

    Args:
        folder: path.
        config, settings: fields of config.json, and result of `read_tokenizer`.
        template: a name in `TEMPLATES`.

    Raises:
        InputError: if a file is missing, or the files do not fit together.
    """
    spm = read_sentencepiece(folder / _SPM_FILE)
    is_nllb = not (folder / "vocab.json").exists()
    if is_nllb and _is_m2m100(folder, settings):
        raise InputError(f"{folder} has no vocab.json, which M2M-100 needs: copy the model again.")
    pieces = _nllb_pieces(folder, spm) if is_nllb else read_vocabulary(folder / "vocab.json")
    size, index = config["vocab_size"], {piece: row for row, piece in enumerate(pieces)}
    if is_nllb:
        languages = _added_languages(folder, settings, _NLLB_LANGUAGE, index)
        if min(languages.values(), default=-1) != len(pieces):  # the first behind the pieces
            raise InputError(
                f"{folder} does not name the languages of NLLB-200: copy tokenizer.json or "
                "special_tokens_map.json of the model, and for M2M-100 vocab.json."
            )
    else:
        codes = _LANGUAGE_CODES[settings["language_codes"]].split()
        languages = {code: len(pieces) + number for number, code in enumerate(codes)}
        _added_languages(folder, settings, _M2M100_LANGUAGE, index, languages)
    for code, row in languages.items():
        if not len(pieces) <= row < size:
            raise InputError(
                f"{folder}: the token of language {code!r} has id {row}: give one after the "
                f"{len(pieces)} pieces and below vocab_size of config.json, {size}."
            )
    pad, end, unknown = ids_of(pieces, ("<pad>", "</s>", "<unk>"), folder / "vocab.json")
    require_ids(folder, config, pad_token_id=pad, eos_token_id=end)
    if config["decoder_start_token_id"] != end:
        raise InputError(
            f"{folder}/config.json: decoder_start_token_id is {config['decoder_start_token_id']}: "
            f"only {end}, that of '</s>', is supported."
        )
    names = [*pieces, *(f"madeupword{row:04}" for row in range(len(pieces), size))]
    for code, row in languages.items():
        names[row] = code if is_nllb else f"__{code}__"
    names[pad] = "<padding>"
    # The padding appears twice: as an output it has an id like any other token.
    rows = rows_of_ids([pad, end, unknown, end], size, placed=(end, unknown))
    control = {pad, end, unknown, index.get("<s>", pad), *range(len(pieces), size)}
    ours = {int(row): our_id for our_id, row in enumerate(rows)}  # of the padding as an output
    side = Side(
        [names[row] for row in rows],
        spm,
        cleans_up_spaces=settings["clean_up_tokenization_spaces"],
        control_ids=sorted(ours[row] for row in control if ours[row] >= FIRST_PIECE),
    )
    ids = {code: ours[row] for code, row in languages.items()}
    template = LanguageTemplate(ids, **TEMPLATES[template])
    return Tokens(pack_vocabularies(side), template, rows, [*languages.values()])


def _is_m2m100(folder, settings):
    """Returns whether the tokenizer's files belong to M2M-100 or SMaLL-100, not to NLLB-200."""
    tokens = _special_tokens(folder, settings)
    tokens += [token for token, _ in read_added_tokens(folder, settings) if isinstance(token, str)]
    if any(map(_NLLB_LANGUAGE.fullmatch, tokens)):
        return False
    is_named = settings.get("tokenizer_class") in ("M2M100Tokenizer", _SMALL100)
    return is_named or any(map(_M2M100_LANGUAGE.fullmatch, tokens))


def _nllb_pieces(folder, spm):
    """Returns the pieces of NLLB-200 in the order of their ids, list of str."""
    processor = sentencepiece.SentencePieceProcessor(model_proto=spm)
    in_spm = [processor.id_to_piece(i) for i in range(processor.get_piece_size())]
    if in_spm[:3] != ["<unk>", "<s>", "</s>"]:
        raise InputError(
            f"{folder / _SPM_FILE} begins with {', '.join(in_spm[:3])}, and NLLB-200's with <unk>, "
            "<s>, </s>: copy the model again; if it is M2M-100, copy its vocab.json as well."
        )
    pieces = [*_FAIRSEQ_SPECIAL, *in_spm[3:]]
    model = read_json(folder / "tokenizer.json", default={}).get("model")
    if model is None:
        return pieces
    vocabulary = model.get("vocab") if isinstance(model, dict) else None
    for row, piece in enumerate(pieces):
        if not isinstance(vocabulary, dict) or vocabulary.get(piece) != row:
            raise InputError(
                f"{folder / 'tokenizer.json'} does not give {piece!r} the id {row}, as {_SPM_FILE} "
                "does: copy both files of one model."
            )
    return pieces


def _added_languages(folder, settings, pattern, index, languages=None):
    """Adds the languages that the tokenizer's files name to `languages`, {code: row}.

    Their ids are the ids of added tokens. Where no languages are known (None), those among the
    special tokens that have no such id are numbered after the last piece.

    Args:
        folder, settings: path, and result of `read_tokenizer`.
        pattern: pattern of a language token, with its code as the first group.
        index: {piece: row}.

    Raises:
        InputError: if a token is neither a language nor known, or has two ids.
    """
    numbered = languages is not None
    languages = {} if languages is None else languages
    added = read_added_tokens(folder, settings)
    for token, number in added:
        row = int(number) if re.fullmatch(r"[0-9]{1,9}", str(number)) else -1
        match = pattern.fullmatch(token) if isinstance(token, str) else None
        known = index.get(token) if isinstance(token, str) else None
        if match:
            known = languages.setdefault(match[1], row)
        elif token == "<mask>":
            known = row
        if row != known or row < 0:
            raise InputError(
                f"{folder} adds the token {token!r} with id {number!r}: only languages are "
                "supported, each with one id."
            )
    rows, taken = itertools.count(len(index)), {str(number) for _, number in added}
    for token in dict.fromkeys(_special_tokens(folder, settings)):
        match = pattern.fullmatch(token)
        if match and not numbered and match[1] not in languages:
            languages[match[1]] = row = next(rows)
            if str(row) in taken:
                raise InputError(
                    f"{folder} gives the language {token!r} no id, and another token the id {row} "
                    "that is next: copy tokenizer.json or tokenizer_config.json of the model."
                )
        elif not (token in index or token == "<mask>" or (match and match[1] in languages)):
            raise InputError(
                f"{folder}: the special token {token!r} is neither in the vocabulary nor a "
                "language: it is not supported."
            )
    return languages


def _special_tokens(folder, settings):
    """Returns the further special tokens of the tokenizer's files, list of str."""
    tokens = []
    for name in ("additional_special_tokens", "extra_special_tokens"):
        listed = content_of(settings.get(name) or [])
        if not isinstance(listed, list) or not all(isinstance(token, str) for token in listed):
            path = f"{folder}/tokenizer_config.json"
            raise InputError(f"{path}: {name} is {listed!r}: give a list.")
        tokens += listed
    return tokens
