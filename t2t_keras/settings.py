"""Allowed values of settings: one definition for constructors, configs and flags.

`Range`, `Choice`, `Switch` and `Text` describe and check allowed values; `setting` makes a field of
a dataclass from one of them, as in `TransformerConfig`. `Settings` is the base of a predictor's
settings. `DECODING` lists the settings of decoding: the searches of `decoding`, `KNNTransformer`,
the configs of `pipelines` and the flags check values by it.
"""

import dataclasses
import inspect
import math
import numbers
import textwrap
from collections.abc import Collection

from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class Range:
    """The allowed values of a number.

    Args:
        least, most: the ends of the range.
        whole: whether the number must be whole.
        optional: whether None is allowed.
        most_name: the meaning of `most`, for the message; "" if it is a constant.
        exclude_least, exclude_most: whether that end itself is not allowed.
    """

    least: float
    most: float
    whole: bool = False
    optional: bool = False
    most_name: str = ""
    exclude_least: bool = False
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
        """Returns a value as an int or a float of Python, or None.

        Raises:
            InputError: if it is not a number of the range, or NaN.
        """
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


def setting(default, allowed, text):
    """Returns the field of a dataclass, with the metadata that describes a setting.

    Args:
        default: its default; `dataclasses.MISSING` for none.
        allowed: `Range`, `Choice`, `Switch` or `Text`.
        text: its meaning, a sentence.
    """
    return dataclasses.field(default=default, metadata={"allowed": allowed, "text": text})


_OF_PREDICTOR = ("model", "tokenizer")


def documented(kind, settings=None):
    """Returns a class whose docstring ends with the meanings of settings.

    Args:
        kind: class.
        settings: dataclass of the settings; None: kind itself. Otherwise kind is a predictor's
            class, whose signature then shows the settings after model and tokenizer.
    """
    fields = dataclasses.fields(settings or kind)
    texts = (f"{field.name}: {field.metadata['text']}" for field in fields)
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

    `setting` makes the fields of such a dataclass.

    Raises:
        InputError: if a value is not allowed.
    """

    def __post_init__(self):
        for name, value in self.checked(vars(self)).items():
            object.__setattr__(self, name, value)

    @classmethod
    def checked(cls, values, prefix=""):
        """Checks some of the settings.

        Args:
            values: {name: value}.
            prefix: str before the names in messages, such as "--".

        Returns:
            {name: value}, with Python's numbers.

        Raises:
            InputError: if a name is not a setting, or a value is not allowed.
        """
        fields = {field.name: field for field in dataclasses.fields(cls)}
        owner = cls.__name__.removesuffix("Settings")
        for name in values:
            if name not in fields:
                raise InputError(
                    f"{prefix}{name} is not a setting of a {owner}: leave it out, or give one of "
                    f"{', '.join(fields)}."
                )
        return {
            name: fields[name].metadata["allowed"].check(prefix + name, value)
            for name, value in values.items()
        }


_BEAMS = Range(1, 4_096, whole=True)
_COUNT = Range(1, 1_000_000, whole=True)

DECODING = {
    "beam_size": _BEAMS,
    "n_best": _BEAMS,
    # At α = 10 the penalty of 4,000 tokens is near the largest number of float32.
    "length_penalty": Range(-10, 10),
    "length_penalty_offset": Range(0, 1_000_000),
    "max_extra_tokens": dataclasses.replace(_COUNT, least=0),
    "max_source_length": _COUNT,
    "max_target_length": dataclasses.replace(_COUNT, optional=True),
    "min_target_length": dataclasses.replace(_COUNT, least=0),
    "no_repeat_ngram_size": Range(0, 100, whole=True),
    "repetition_penalty": Range(0.001, 1_000),
    "exhaustive": Switch(),
    "n_best_patience": Range(0, 1_000_000, optional=True),
    "max_length_ratio": Range(0, 1_000_000, optional=True),
    "batch_size": _COUNT,
    # Parsing
    "constrained": Switch(),
    "max_depth": _COUNT,
    "max_opened": _COUNT,
    # Sampling
    "samples": _COUNT,
    "temperature": Range(1e-6, 1_000_000),  # also of kNN-MT
    "top_k": dataclasses.replace(_COUNT, optional=True),
    "top_p": Range(1e-6, 1, optional=True),
    "seed": Range(-(2**31), 2**31 - 1, whole=True),
    # kNN-MT
    "k": Range(1, 65_536, whole=True),
    "interpolation": Range(0, 0.999999),
    "subset_size": _COUNT,
}
"""{setting: its `Range` or `Switch`}"""


def check_settings(settings, prefix=""):
    """Checks settings by `DECODING`.

    Args:
        settings: {name: value}.
        prefix: str before the names in messages, such as "decode.".

    Returns:
        {name: value}, each value an int, float, bool or None of Python.

    Raises:
        InputError: if one is out of its range.
    """
    return {name: DECODING[name].check(prefix + name, value) for name, value in settings.items()}
