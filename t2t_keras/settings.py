"""Allowed values of settings: one definition for constructors, configs and flags.

`Range`, `Choice`, `Switch` and `Text` describe and check allowed values; `setting` makes a field of
a dataclass from one of them, as in `TransformerConfig`, and `settings_of` reads it. The dataclasses
at the end are those of all searches, of samples and of kNN-MT. This module imports no TensorFlow,
Keras or NumPy, so that the flags of a command need none.
"""

import dataclasses
import inspect
import math
import numbers
import textwrap
from collections.abc import Collection
from typing import Any, NamedTuple

from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class Range:
    """The allowed values of a number."""

    least: float
    most: float
    whole: bool = False
    optional: bool = False  # whether None is allowed
    most_name: str = ""  # the meaning of `most`, for the message; "" if it is a constant
    exclude_least: bool = False  # whether that end itself is not allowed
    exclude_most: bool = False

    def __str__(self):
        most = f"{self.most_name}, which is {self.most}" if self.most_name else f"{self.most:,}"
        if self.most == math.inf:
            ends = f"{'above' if self.exclude_least else 'of at least'} {self.least:,}"
        else:
            least = (
                "above" if self.exclude_least else "of at least" if self.exclude_most else "from"
            )
            ends = f"{least} {self.least:,} {'and less than' if self.exclude_most else 'to'} {most}"
        kind = "a whole number" if self.whole else "a number"
        return f"{kind} {ends}{', or None' if self.optional else ''}"

    def check(self, name, value):
        """Returns a number of Python, or None; raises InputError for another value, such as NaN."""
        if value is None and self.optional:
            return None
        kind = numbers.Integral if self.whole else numbers.Real
        is_number = isinstance(value, kind) and not isinstance(value, bool)
        is_allowed = is_number and self.least <= value <= self.most  # false for NaN
        is_end = (self.exclude_least and value == self.least) or (
            self.exclude_most and value == self.most
        )
        if not is_allowed or is_end:
            raise InputError(f"{name} is {value!r}: give {self}.")
        return int(value) if self.whole else float(value)


class _Values:
    """Base of descriptions by `allows(value)`."""

    def check(self, name, value):
        """Returns the value; raises InputError if it is not allowed."""
        if not self.allows(value):
            raise InputError(f"{name} is {value!r}: give {self}.")
        return value


@dataclasses.dataclass(frozen=True)
class Switch(_Values):
    """A setting that is True or False, or "auto" if `auto` is True."""

    auto: bool = False

    def __str__(self):
        return "auto, True or False" if self.auto else "True or False"

    def allows(self, value):
        return isinstance(value, bool) or (self.auto and value == "auto")


@dataclasses.dataclass(frozen=True)
class Choice(_Values):
    """A setting that is one of some names, a tuple or the keys of a table."""

    names: Collection

    def __str__(self):
        return "one of " + ", ".join(name or "'' (empty)" for name in self.names)

    def allows(self, value):
        return value in tuple(self.names)  # a value may be of any type


@dataclasses.dataclass(frozen=True)
class Text(_Values):
    """A setting that is any text."""

    def __str__(self):
        return "text"

    def allows(self, value):
        return isinstance(value, str)


class Setting(NamedTuple):
    """A setting: a field of a config, an argument of a constructor, a flag."""

    default: Any
    allowed: Any  # `Range`, `Choice`, `Switch`, `Text`, or another class with `check`
    text: str  # its meaning, a sentence
    may_change: Any = None  # of a config: whether it may change between two starts of a run


def setting(default, allowed, text, may_change=None):
    """Returns the field of a dataclass that a `Setting` of these values describes.

    The default `dataclasses.MISSING` means that there is none.
    """
    described = Setting(default, allowed, text, may_change)
    return dataclasses.field(default=default, metadata={"setting": described})


def settings_of(kind, *without):
    """Returns {name: `Setting`} of a dataclass whose fields `setting` made, except some names."""
    fields = dataclasses.fields(kind)
    return {f.name: f.metadata["setting"] for f in fields if f.name not in without}


_OF_PREDICTOR = ("model", "tokenizer")


def documented(kind, settings=None):
    """Returns a class whose docstring ends with the meanings of settings.

    Args:
        kind: class.
        settings: dataclass of the settings; None: kind itself. Otherwise kind is a predictor's
            class, whose signature then shows the settings after model and tokenizer.
    """
    texts = (f"{name}: {x.text}" for name, x in settings_of(settings or kind).items())
    wrapper = textwrap.TextWrapper(100, " " * 8, " " * 12, break_on_hyphens=False)
    rows = map(wrapper.fill, texts)
    if kind.__doc__:  # not under `python -OO`
        title = "Settings" if settings else "Fields"
        kind.__doc__ = "\n".join([f"{kind.__doc__.rstrip()}\n\n    {title}:", *rows])
    if settings:
        own = (inspect.Parameter(n, inspect.Parameter.POSITIONAL_OR_KEYWORD) for n in _OF_PREDICTOR)
        fields = inspect.signature(settings).parameters.values()
        kind.__signature__ = _OfTheClass(inspect.Signature([*own, *fields]))
    return kind


class _OfTheClass:
    """The signature of a class; a callable instance shows the signature of `__call__`."""

    def __init__(self, signature):
        self.signature = signature

    def __get__(self, instance, owner):
        if instance is not None:
            raise AttributeError("__signature__")
        return self.signature


class Settings:
    """Base of a predictor's settings: `Translator` has the frozen dataclass `TranslatorSettings`.

    `setting` makes the fields. An instance with a value that is not allowed raises InputError.
    """

    def __post_init__(self):
        for name, value in self.checked(vars(self)).items():
            object.__setattr__(self, name, value)

    @classmethod
    def checked(cls, values, prefix=""):
        """Returns some of the settings, {name: value}, with Python's numbers.

        Raises:
            InputError: if a name is not a setting, or a value is not allowed; the prefix, such as
                "--", stands before the name.
        """
        fields, owner = settings_of(cls), cls.__name__.removesuffix("Settings")
        for name in values:
            if name not in fields:
                raise InputError(
                    f"{prefix}{name} is not a setting of a {owner}: leave it out, or give one of "
                    f"{', '.join(fields)}."
                )
        return {name: fields[name].allowed.check(prefix + name, x) for name, x in values.items()}


ENSEMBLE_MEANS = ("probabilities", "log_probabilities")
PRECISIONS = ("float32", "bfloat16", "int8")
EXPORT_DEVICES = ("cpu", "gpu")
LANGUAGE_TEMPLATES = ("m2m100", "small100")
MAX_PLACEHOLDERS = 63
"""The most placeholders of a vocabulary: their marks, U+E001 to U+E03F, share two bytes."""

BEAMS = Range(1, 4_096, whole=True)
COUNT = Range(1, 1_000_000, whole=True)
COUNT_OR_0 = dataclasses.replace(COUNT, least=0)
OPTIONAL_COUNT = dataclasses.replace(COUNT, optional=True)
LENGTH_PENALTY_OFFSET = Range(0, 1_000_000)


@dataclasses.dataclass(frozen=True)
class SearchSettings(Settings):
    """The settings of all searches; a predictor's own ones are those of a subclass."""

    beam_size: int = setting(4, BEAMS, "Hypotheses of the beam search; 1: greedy search.")
    length_penalty: float = setting(
        0.6,
        Range(-10, 10),  # at 10 the penalty of 4,000 tokens is near the largest float32
        "Length penalty α of log P / ((5 + length) / 6)^α; 0: none.",
    )
    max_extra_tokens: int = setting(
        50,
        COUNT_OR_0,
        "Tokens by which an output may be longer than its source, or its prefix if that is longer; "
        "0: not longer.",
    )
    max_source_length: int = setting(
        512, COUNT, "Maximum tokens of a source, including its end; the rest is dropped."
    )


@dataclasses.dataclass(frozen=True)
class SamplingSettings(Settings):
    """The settings of samples."""

    samples: int = setting(1, COUNT, "Outputs of each text.")
    seed: int = setting(
        0, Range(-(2**31), 2**31 - 1, whole=True), "Another seed draws other outputs; default: 0."
    )
    temperature: float = setting(
        1.0,
        Range(1e-6, 1_000_000),
        "Logits are divided by it; below 1: likely tokens more often; default: 1.",
    )
    top_k: int | None = setting(
        None, OPTIONAL_COUNT, "Draw from the k most likely tokens; default: from all."
    )
    top_p: float | None = setting(
        None,
        Range(1e-6, 1, optional=True),
        "Draw from the fewest tokens whose total probability is at least this; default: from all.",
    )


@dataclasses.dataclass(frozen=True)
class KNNSettings(Settings):
    """The settings of kNN-MT (Khandelwal et al. 2021)."""

    k: int = setting(16, Range(1, 65_536, whole=True), "kNN-MT: neighbors that predict each token.")
    temperature: float = setting(
        20.0,
        Range(1e-6, 1_000_000),
        "kNN-MT: T of softmax(-distance / T); low favors the nearest.",
    )
    interpolation: float = setting(
        0.25, Range(0, 0.999999), "kNN-MT: weight λ of the neighbors' prediction; 0: none."
    )
    subset_size: int = setting(
        8_192, COUNT, "kNN-MT: training tokens to search, of similar sentences."
    )
