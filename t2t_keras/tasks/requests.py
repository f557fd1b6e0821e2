"""Kinds of requests to predictors, one row each: inputs, the graph that answers, and its outputs.

A class of predictors has a table of rows, `RequestKind`, for instance `Translator.requests`. All
that asks a predictor is made of it: its Python methods (`Predictor.run`), the signatures of an
export and their verification (`serving`), and the commands (`pipelines.batch_inference`). To add a
request, write its graph and its row, and describe it in `serving/README.md`; a new input, such as
`TEXT`, is a row too.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.data.base_tokenizer import FIRST_WORD
from t2t_keras.settings import Range, SamplingSettings, settings_of


class Input(NamedTuple):
    """An input of requests. Dimension 0 is the batch, so that a server can batch requests."""

    name: str
    # function of a predictor and lines, list of str, to the column of a sample request, an array
    # [lines, ...]; samples verify an export and warm up a server
    sample: Callable
    dtype: tf.DType = tf.string
    rank: int = 1  # 2: ids of the source's vocabulary
    allowed: Range | None = None  # of numbers

    @property
    def spec(self):
        """The `tf.TensorSpec` of the input."""
        return tf.TensorSpec([None] * self.rank, self.dtype, self.name)


@dataclasses.dataclass(frozen=True)
class RequestKind:
    """A kind of request: its inputs, how it is answered, and the meaning of the outputs."""

    # function of a predictor and of the inputs by name, tensors, to {output: tensor [batch, ...]},
    # inside a graph
    graph: Callable
    inputs: tuple  # of `Input`: a signature requires all of them, as requests over REST give all
    outputs: tuple = ()  # names of the outputs of a signature; (): all
    answer: str | None = None  # output with the text, label or ids that was chosen
    # output by which it was chosen: the score of each answer, or the probabilities of classes
    score: str | None = None
    details: tuple = ()  # outputs that describe each answer; the first counts tokens
    # the `RequestKind` that returns all answers, of which this one returns the best
    ranking: "RequestKind | None" = None
    on_request: bool = False  # whether an export has it only where it is named
    is_long: bool = False  # whether one text may be many searches: few samples verify it
    of_prompts: bool = False  # whether a text that must be truncated can't be answered
    searches: bool = False  # whether a GPU may compile its search, see `SearchPredictor.run_on_gpu`

    def inputs_of(self, predictor):
        """Returns the inputs, a tuple; of many languages with those that name them."""
        if getattr(predictor, "languages", None) is None:
            return self.inputs
        # The tokens of source ids tell their language.
        return self.inputs + (LANGUAGES if self.inputs[0].rank == 1 else LANGUAGES[1:])

    def sample(self, predictor, lines):
        """Returns a sample request of lines, {input: array [lines, ...]}."""
        return {x.name: x.sample(predictor, lines) for x in self.inputs_of(predictor)}

    @property
    def is_drawn(self):
        """Whether its answers are drawn at random."""
        return self.answer is not None and self.ranking is None


def ranked(request, **changes):
    """Returns a `RequestKind` that is its own ranking, since it returns all answers."""
    request = dataclasses.replace(request, **changes)
    return dataclasses.replace(request, ranking=request)


# Inputs -------------------------------------------------------------------------------------------


def sample_lines(tokenizer, lengths=(1, 6, 20)):
    """Returns texts with these numbers of tokens, a list of str made from the vocabulary."""
    rng = np.random.default_rng(0)
    first = min(FIRST_WORD, tokenizer.vocab_size - 1)
    return [
        tokenizer.decode(rng.integers(first, tokenizer.vocab_size, [1, length], np.int32))
        .numpy()[0]
        .decode()
        for length in lengths
    ]


def strings(lines):
    """Returns lines, str each, as an array of bytes."""
    return np.array([line.encode() for line in lines], object)


def _languages(shift):
    def sample(predictor, lines):
        codes = predictor.languages.codes
        return strings(codes[(row + shift) % len(codes)] for row in range(len(lines)))

    return sample


def _beginnings(predictor, lines):
    # Of two characters, most of them word fragments, and some empty ones.
    return strings(line[:2] if number % 2 else "" for number, line in enumerate(lines, start=1))


def _number(name, dtype, of_row, allowed=None):
    """Returns an input of a number for each text, whose sample is a function of the row."""

    def sample(predictor, lines):
        return np.array([of_row(row) for row in range(len(lines))], dtype.as_numpy_dtype)

    return Input(name, sample, dtype, allowed=allowed)


def _source_ids(predictor, lines):
    languages = {}
    if getattr(predictor, "languages", None) is not None:
        languages = {x.name: tf.constant(x.sample(predictor, lines)) for x in LANGUAGES}
    return predictor.encode(tf.constant(lines), **languages).numpy()


TEXT = Input("text", lambda predictor, lines: strings(lines))
PREFIX = Input("prefix", _beginnings)
# Any text has a probability as translation.
TRANSLATION = Input("translation", lambda predictor, lines: strings(reversed(lines)))
SOURCE_IDS = Input("source_ids", _source_ids, tf.int32, 2)
LANGUAGES = (
    Input("source_language", _languages(0)),
    Input("target_language", _languages(1)),
)
_SAMPLING = settings_of(SamplingSettings)
SAMPLING = (  # some draw from all tokens, some from the most likely ones; 0 and 1: None in Python
    _number("seed", tf.int32, lambda row: row),
    _number("temperature", tf.float32, lambda row: 0.8, _SAMPLING["temperature"].allowed),
    _number(
        "top_k",
        tf.int32,
        lambda row: row % 2 * 10,
        Range(0, _SAMPLING["top_k"].allowed.most, whole=True),
    ),
    _number(
        "top_p",
        tf.float32,
        lambda row: 0.9 if row % 3 == 1 else 1.0,
        Range(_SAMPLING["top_p"].allowed.least, 1),
    ),
)
