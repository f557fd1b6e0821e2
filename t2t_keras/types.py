"""Types of the arguments and results of public functions."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, Union

if TYPE_CHECKING:  # to read an annotation neither is needed
    import numpy  # by its name, by which pdoc finds it, too
    import tensorflow

StrPath: TypeAlias = str | os.PathLike[str]
Array: TypeAlias = Union["tensorflow.Tensor", "numpy.ndarray"]
Shape: TypeAlias = Sequence[int | None]
"""The shape of an array as Keras gives it: None for a size that is not known yet."""
Batch: TypeAlias = tuple[dict[str, "tensorflow.Tensor"], "tensorflow.Tensor", "tensorflow.Tensor"]
"""Inputs, labels and weights."""


class Corpus(Protocol):
    """What gives the pairs of each split, `{"source", "target"}` string scalars."""

    def examples(self, split: str, /) -> "tensorflow.data.Dataset": ...


class Encoder(Protocol):
    """A tokenizer, or what replaces it for one side of the pairs."""

    def encode(self, texts: "tensorflow.Tensor", /) -> "tensorflow.RaggedTensor": ...


class TextSequence(Protocol):
    """A list, tuple, set, column, … of texts; no str, which contains no other objects than str."""

    def __contains__(self, item: object, /) -> bool: ...

    def __iter__(self) -> Iterator[Union[str, bytes, "tensorflow.Tensor"]]: ...


Texts: TypeAlias = Union[
    TextSequence,
    Iterator[str | bytes],
    "tensorflow.data.Dataset",
    "tensorflow.Tensor",
    "numpy.ndarray",
]
Languages: TypeAlias = str | Texts | None
"""The code of the language of all texts, or one for each."""
Ids: TypeAlias = Union[
    "tensorflow.Tensor", "tensorflow.RaggedTensor", "numpy.ndarray", Sequence[Sequence[int]]
]
