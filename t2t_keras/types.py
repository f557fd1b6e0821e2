"""Types of the arguments and results of public functions."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, Union

if TYPE_CHECKING:  # neither is needed to read an annotation
    import numpy as np
    import tensorflow as tf

StrPath: TypeAlias = str | os.PathLike[str]
Array: TypeAlias = Union["tf.Tensor", "np.ndarray"]
Shape: TypeAlias = Sequence[int | None]
"""The shape of an array as Keras gives it: None for a size that is not known yet."""
Batch: TypeAlias = tuple[dict[str, "tf.Tensor"], "tf.Tensor", "tf.Tensor"]
"""Inputs, labels and weights."""


class Corpus(Protocol):
    """What gives the pairs of each split, `{"source", "target"}` string scalars."""

    def examples(self, split: str, /) -> "tf.data.Dataset": ...


class Encoder(Protocol):
    """A tokenizer, or what replaces it for one side of the pairs."""

    def encode(self, texts: "tf.Tensor", /) -> "tf.RaggedTensor": ...


class TextSequence(Protocol):
    """A list, tuple, set, column, … of texts; no str, which contains no other objects than str."""

    def __contains__(self, item: object, /) -> bool: ...

    def __iter__(self) -> Iterator[Union[str, bytes, "tf.Tensor"]]: ...


Texts: TypeAlias = Union[
    TextSequence, Iterator[str | bytes], "tf.data.Dataset", "tf.Tensor", "np.ndarray"
]
Ids: TypeAlias = Union["tf.Tensor", "tf.RaggedTensor", "np.ndarray", Sequence[Sequence[int]]]
