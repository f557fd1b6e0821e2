"""Files of other people's models: JSON, SentencePiece, and the checks of their fields.

For any content the functions return something valid or raise an `InputError` that names the
file. Start with `read_json`.
"""

import json
import pathlib

from t2t_keras.errors import InputError
from t2t_keras.types import StrPath

_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def check_file(path):
    """Raises InputError if a file is missing, cannot be read, or is a pointer of Git LFS."""
    path = pathlib.Path(path)
    try:
        with open(path, "rb") as file:
            beginning = file.read(len(_LFS_POINTER))
    except FileNotFoundError as error:
        if not path.parent.is_dir():
            place = str(path.parent)
            raise InputError(f"there is no folder {place!r}: give a model's folder.") from error
        raise InputError(f"{path.parent} has no {path.name}: copy the model again.") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): copy it again.") from error
    if beginning == _LFS_POINTER:
        raise InputError(
            f"{path} is a pointer of Git LFS, and not the file itself: run git lfs pull."
        )


def read_file(path):
    """Returns the bytes of a file; raises InputError as `check_file`."""
    check_file(path)
    return pathlib.Path(path).read_bytes()


def read_json(path, default=None):
    """Returns the object in a JSON file, a dict.

    Args:
        path: the file.
        default: the content if the file is missing; None: a missing file is an error.

    Raises:
        InputError: if the file is missing or is not one object, or if it contains numbers that
            are not finite, or lone surrogates, which are not valid text.
    """
    path = pathlib.Path(path)
    if not path.exists() and default is not None:
        return default
    content = read_file(path)
    try:
        value = json.loads(content)
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not JSON ({error}): copy the model again.") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} has a JSON {type(value).__name__}, not an object: copy it again.")
    return value


def read_sentencepiece(path: StrPath) -> bytes:
    """Returns the bytes of a SentencePiece model; raises InputError if it is missing or damaged."""
    import sentencepiece  # noqa: PLC0415  as in training a tokenizer

    model = read_file(path)
    try:
        if not sentencepiece.SentencePieceProcessor(model_proto=model).get_piece_size():
            raise ValueError("it is empty")  # which SentencePiece accepts
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{path} is not a SentencePiece model: copy it again.") from error
    return model


def require_known(fields, path, fixed, known):
    """Raises InputError, naming the field, for unsupported fields.

    Args:
        fields: dict from a file.
        path: the file.
        fixed: {field: the values it may have}.
        known: fields that may have any value; others may be null or false.
    """
    for name, value in fields.items():
        if name in fixed:
            if value not in fixed[name]:
                wanted = " or ".join(map(str, fixed[name]))
                raise InputError(f"{path}: {name} is {value!r}: only {wanted} is supported.")
        elif name not in known and name[:1] != "_" and value not in (None, False):
            raise InputError(f"{path}: {name} is {value!r}: only null or false is supported.")


_KINDS = {
    "a token, a str,": str,
    "true or false": bool,
    "a number": (int, float),
    "a whole number": int,
}


def require_kind(path, wanted, least=None, **fields):
    """Raises InputError if a field's value is not of a kind in `_KINDS`, or is below `least`."""
    for name, value in fields.items():
        fits = isinstance(value, _KINDS[wanted]) and isinstance(value, bool) == (
            _KINDS[wanted] is bool
        )
        if not fits or (least is not None and value < least):
            raise InputError(f"{path}: {name} is {value!r}: {wanted} is needed.")
