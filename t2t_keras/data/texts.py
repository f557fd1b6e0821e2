"""Sequences of texts, pairs and ids as programs bring them: the one reader of all public functions.

`elements` says what a sequence is: it refuses a single string, a table, a dict, a set or an array
of two dimensions instead of reading something else from it. `as_list`, `as_strings` and `as_batch`
read texts, `as_pairs` reads pairs, also rows and tables by the names of two columns, and `as_ids`
reads batches of ids.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_keras.data.files import quoted, split_lines
from t2t_keras.errors import InputError

_STRINGS = "a list of strings"
_NESTED = "translation"  # the column of Hugging Face's datasets that holds a dict of languages
_SIDES = ("source", "target")  # the names in rows of the library's own corpora
_SHOWN = 60  # characters of a value in a message
_SURROGATE = re.compile("[\ud800-\udfff]")


def encode_utf8(text: str) -> bytes:
    """Returns a str as UTF-8, with U+FFFD for lone surrogates, which UTF-8 cannot encode."""
    return _SURROGATE.sub("\ufffd", text).encode()


def text_bytes(text: Any, place: str) -> bytes:
    """Returns the UTF-8 of a str, bytes or string tensor []; else raises InputError."""
    if isinstance(text, str):
        return encode_utf8(text)
    value = text
    if tf.is_tensor(text):
        value = text.numpy()
    elif hasattr(text, "as_py"):  # of pyarrow
        return text_bytes(text.as_py(), place)
    if not isinstance(value, bytes):
        raise InputError(f"{place} is {shown(text)}, of type {type(text).__name__}: give a string.")
    return value


def shown(value: Any) -> str:
    """Returns a value as a message shows it, at most 60 characters."""
    text = " ".join(repr(value).split())
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def elements(values: Any, name: str, what: str = _STRINGS, sets: bool = False) -> Iterator:
    """Returns the elements of a sequence, in its order, each once.

    Args:
        values: an iterable: list, tuple, generator, NumPy array or tensor of one dimension or more,
            pandas column, finite `tf.data.Dataset`, or open file, which gives its lines without
            their ends.
        name, what: the argument's name and what to give, for the messages.
        sets: whether a set is allowed, where the order does not matter.

    Raises:
        InputError: for everything else: a string, table, dict, set, path, number, or None; for a
            file that is not text in UTF-8.
    """
    if tf.is_symbolic_tensor(values):
        raise InputError(
            f"{name} is a tensor of a graph, as in tf.function or dataset.map: call the method for "
            "graphs there, translator.translate, parser.parse or classifier.rank."
        )
    if isinstance(values, tf.data.Dataset):
        if values.cardinality() == tf.data.INFINITE_CARDINALITY:
            raise InputError(f"{name} is an infinite dataset: limit it with dataset.take(count).")
        return values.as_numpy_iterator()
    if tf.is_tensor(values):
        values = values.numpy()
    if isinstance(values, str | bytes):
        raise InputError(f"{name} is the string {shown(values)}: give {what}.")
    columns = None if isinstance(values, Mapping) else _column_names(values)
    if columns is not None:
        kind = f"a {type(values).__name__} with the columns {quoted(columns)}"
        raise InputError(f"{name} is {kind}: give {what}, such as one of its columns.")
    is_set = isinstance(values, set | frozenset)
    ordered = hasattr(values, "__iter__") and not isinstance(values, Mapping | type)
    if not ordered or (is_set and not sets) or getattr(values, "ndim", 1) < 1:
        raise InputError(f"{name} is a {type(values).__name__}: give {what}.")
    return _lines(values, name) if hasattr(values, "readline") else iter(values)


def as_list(texts: Any, name: str = "texts", sets: bool = False) -> list[bytes]:
    """Returns `elements` that are texts as a list of bytes, UTF-8; a dataset may have batches.

    Lone surrogates in a str become U+FFFD.

    Raises:
        InputError: as `elements`, or if an element is not a string.
    """
    return list(iterate(texts, name, sets))


def iterate(texts: Any, name: str = "texts", sets: bool = False) -> Iterator[bytes]:
    """Returns an iterator over what `as_list` returns, for texts that need not fit in memory."""
    if isinstance(texts, tf.data.Dataset):
        spec = texts.element_spec
        is_text = isinstance(spec, tf.TensorSpec) and spec.dtype == tf.string
        if not is_text or (spec.shape.rank or 0) > 1:
            raise InputError(
                f"{name} is a dataset of {spec}: map it to strings, or to batches of them, for "
                "example by dataset.map(lambda text, label: text)."
            )
        batches = elements(texts, name)
        items = (text for batch in batches for text in np.atleast_1d(batch))
    else:
        items = elements(texts, name, sets=sets)
        texts = texts.numpy() if tf.is_tensor(texts) else texts
        if getattr(texts, "ndim", 1) > 1:
            kind, shape = type(texts).__name__, getattr(texts, "shape", "of two dimensions")
            raise InputError(f"{name} is a {kind} of shape {shape}: give {_STRINGS}.")
    return (text_bytes(text, f"{name}[{i}]") for i, text in enumerate(items))


def as_strings(texts: Any, name: str = "texts", sets: bool = False) -> list[str]:
    """Returns texts as a list of str, U+FFFD for what is not UTF-8; errors as of `as_list`."""
    return [text.decode("utf-8", "replace") for text in as_list(texts, name, sets)]


def as_batch(texts: Any, name: str = "texts") -> tf.Tensor:
    """Returns texts, or a tensor, also of a graph, as string [batch]; errors as of `as_list`."""
    if not tf.is_tensor(texts):
        return tf.constant(as_list(texts, name), tf.string)
    if texts.dtype != tf.string or texts.shape.rank not in (1, None):
        raise InputError(
            f"{name} is a tensor of type {texts.dtype.name} and shape {texts.shape}: give strings "
            "of shape [batch]."
        )
    return texts


def as_ids(ids: Any, vocab_size: int, name: str = "ids") -> tf.Tensor | tf.RaggedTensor:
    """Returns a batch of ids as int32 [batch, length], dense or ragged.

    Args:
        ids: integers [batch, length]: a tensor, also of a graph, a RaggedTensor or an array; or a
            sequence of sequences of int.
        vocab_size: outside of graphs, ids must be below it.

    Raises:
        InputError: if it is something else, or an id is out of range.
    """
    if isinstance(ids, np.ndarray) and ids.dtype != object:
        ids = tf.constant(ids)
    if tf.is_tensor(ids):
        if not ids.dtype.is_integer or ids.shape.rank not in (2, None):
            raise InputError(
                f"{name} has type {ids.dtype.name} and shape {ids.shape}: give integers of shape "
                "[batch, length]."
            )
    else:
        rows = list(elements(ids, name, "a list of lists of ids"))
        rows = [_id_row(row, f"{name}[{i}]") for i, row in enumerate(rows)]
        flat = np.concatenate([np.zeros(0, np.int64), *rows])
        ids = tf.RaggedTensor.from_row_lengths(flat, [len(row) for row in rows])
    flat = ids.flat_values if isinstance(ids, tf.RaggedTensor) else ids
    if not tf.is_symbolic_tensor(flat):
        values = flat.numpy()
        wrong = values[(values < 0) | (values >= vocab_size)]
        if wrong.size:
            raise InputError(f"{name} has {wrong[0]}: give ids from 0 to {vocab_size - 1}.")
    return tf.cast(ids, tf.int32)


def _id_row(row, place):
    try:
        ids = np.asarray(row)
    except ValueError:  # rows within the row
        ids = np.zeros([0, 0])
    if ids.ndim != 1 or (ids.size and ids.dtype.kind not in "iu"):
        raise InputError(f"{place} is {shown(row)}: give a list of ids.")
    return ids.astype(np.int64)


def as_pairs(
    pairs: Any,
    name: str = "pairs",
    source: str | int | None = None,
    target: str | int | None = None,
) -> tuple[list[bytes], list[bytes]]:
    """Returns the sources and the targets of pairs of texts.

    Args:
        pairs: `elements` that are two texts each. With names: rows that are dicts, as of Hugging
            Face's `datasets`, a nested {"translation": {…}} included, and of TFDS; or a table, such
            as one of pandas or a dict of columns.
        source, target: the names of two columns; None: rows are pairs, or dicts with the keys
            "source" and "target". Indices such as 0 and 2 choose columns of rows without names.

    Raises:
        InputError: if a row is not a pair of texts, with its number; if a name is missing.
    """
    if (source is None) != (target is None) or (source is not None and source == target):
        raise InputError(
            f"source is {source!r} and target is {target!r}: name two columns, or neither."
        )
    names = None if source is None else (source, target)
    if (columns := _column_names(pairs)) is not None:
        if names or set(columns) == set(_SIDES):
            names = names or _SIDES
            if _NESTED in columns and not set(names) <= set(columns):
                return as_pairs(pairs[_NESTED], f"{name}[{_NESTED!r}]", *names)
        names = _require_names(columns, name, names)
        try:
            sides = [pairs[key] for key in names]
        except TypeError as error:  # a LazyFrame of polars
            raise InputError(
                f"{name} is a {type(pairs).__name__}, whose columns cannot be read: give a table "
                "in memory, such as collect() returns."
            ) from error
        sources, targets = (
            as_list(side, f"{name}[{key!r}]") for key, side in zip(names, sides, strict=True)
        )
        if len(sources) != len(targets):
            raise InputError(
                f"{name} has {len(sources)} texts in {names[0]!r} and {len(targets)} in "
                f"{names[1]!r}: give equally many."
            )
        return sources, targets
    if isinstance(pairs, tf.data.Dataset) and not isinstance(pairs.element_spec, tf.TensorSpec):
        specs = tf.nest.flatten(pairs.element_spec)
        if all(isinstance(spec, tf.TensorSpec) and spec.shape.rank == 1 for spec in specs):
            pairs = pairs.unbatch()
    what = "a list of pairs of strings"
    rows = [_pair(row, f"{name}[{i}]", names) for i, row in enumerate(elements(pairs, name, what))]
    return [row[0] for row in rows], [row[1] for row in rows]


def _pair(row, place, names):
    """Returns the source and the target of a row, bytes."""
    if names and hasattr(row, "_asdict"):
        row = row._asdict()
    elif isinstance(row, np.void):
        row = {key: row[key] for key in row.dtype.names or ()}
    elif names and hasattr(row, "keys"):  # a row of pandas or sqlite3
        row = {key: row[key] for key in row.keys()}  # noqa: SIM118 (it iterates over values)
    if isinstance(row, Mapping):
        names = names or (_SIDES if set(row) == set(_SIDES) else None)
        nested = row.get(_NESTED)
        if names and isinstance(nested, Mapping) and not set(names) <= set(row):
            row = nested
        row = [row[key] for key in _require_names(row, place, names)]
        names = None
    if isinstance(row, str | bytes | set | frozenset) or not hasattr(row, "__iter__"):
        raise InputError(
            f"{place} is {shown(row)}: give a source and its target, such as ('a house', 'ein "
            "Haus')."
        )
    row = list(row)
    if names:
        if not all(isinstance(key, int) and 0 <= key < len(row) for key in names):
            raise InputError(
                f"{place} has {len(row)} columns without names, and none is {names[0]!r} or "
                f"{names[1]!r}: give their places, such as source=0, target=1."
            )
        row = [row[key] for key in names]
    if len(row) != 2:
        raise InputError(
            f"{place} has {len(row)} columns: give two, a source and its target, or the places of "
            "both, such as source=0, target=1."
        )
    return tuple(text_bytes(text, place) for text in row)


def _require_names(columns, place, names):
    """Returns the names of two columns; raises InputError if they are missing."""
    present = list(columns)
    if not names:
        two = present[:2] if len(present) > 1 else ["en", "de"]
        raise InputError(
            f"{place} has the columns {quoted(present)}: name the two to read, such as "
            f"source={two[0]!r}, target={two[1]!r}."
        )
    if missing := [key for key in names if key not in present]:
        raise InputError(f"{place} has no column {missing[0]!r}; it has {quoted(present)}.")
    return names


def _column_names(values):
    """Returns the names of a table's columns, a list; None if it is not a table.

    Tables are dicts of columns, structured arrays, and those of pandas, polars, pyarrow and
    Hugging Face.
    """
    if isinstance(values, Mapping):
        return list(values)
    kinds = (
        getattr(values, "column_names", None),
        getattr(values, "columns", None),
        getattr(getattr(values, "dtype", None), "names", None),
    )
    usable = [names for names in kinds if isinstance(names, Iterable) and not callable(names)]
    return list(usable[0]) if usable else None


def _lines(file, name):
    """Yields the lines of an open file, without their ends: bytes, or str of a text file."""
    if file.read(0) == b"":
        yield from split_lines(file, name)
        return
    try:
        for line in split_lines((encode_utf8(line) for line in file), name):
            yield line.decode()
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is a file that is not valid in the encoding of its open() ({error}): open it "
            "with 'rb', whose error names the line, with its encoding, or with errors='replace'."
        ) from error
    ends = getattr(file, "newlines", None)
    if "\r" in ((ends,) if isinstance(ends, str) else ends or ()):
        raise InputError(
            f"{name} is a file with carriage returns within lines, at which open() divides them: "
            r"open it with newline='\n'."
        )
