"""The settings of searches: one frozen dataclass for a predictor, its bundle, configs and flags."""

import dataclasses

from t2t_keras.settings import (
    BEAMS,
    COUNT,
    COUNT_OR_0,
    LENGTH_PENALTY_OFFSET,
    OPTIONAL_COUNT,
    Choice,
    Range,
    SearchSettings,
    Switch,
    documented,
    setting,
    settings_of,
)
from t2t_keras.tasks.abbreviations import ABBREVIATIONS

MIN_EXTRA_TOKENS = 3
"""Minimum tokens of a tree in addition to its words: the two ends of a bracket, and the end."""


class SpanPattern:
    """A setting that is a pattern of spans, or empty."""

    def __str__(self):
        return "a pattern in RE2's syntax, or '' for none"

    def check(self, name, value):
        """Returns the pattern; raises InputError as `spans.check_pattern`."""
        from t2t_keras.tasks.spans import check_pattern  # noqa: PLC0415  needs TensorFlow

        check_pattern(name, value)
        return value


@dataclasses.dataclass(frozen=True)
class RuledSettings(SearchSettings):
    """The settings of searches with rules on tokens."""

    no_repeat_ngram_size: int = setting(
        0,
        Range(0, 100, whole=True),
        "n of the n-grams of tokens that an output contains at most once; 0: no such limit.",
    )
    repetition_penalty: float = setting(
        1.0,
        Range(0.001, 1_000),
        "Divides the logits of tokens that an output has already, or multiplies negative ones "
        "(Keskar et al. 2019); 1: no penalty.",
    )


@documented
@dataclasses.dataclass(frozen=True)
class TranslatorSettings(RuledSettings):
    """The settings of a `Translator`."""

    max_target_length: int | None = setting(
        None, OPTIONAL_COUNT, "Maximum tokens of a translation; None: no limit."
    )
    min_target_length: int = setting(
        0,
        COUNT_OR_0,
        "Minimum tokens of a translation before its end, of a text that is not empty; 0: no limit.",
    )
    length_penalty_offset: float = setting(
        5.0, LENGTH_PENALTY_OFFSET, "k of ((k + length) / (k + 1))^α; 0: length^α."
    )
    exhaustive: bool = setting(
        False,
        Switch(),
        "Whether a search ends only when no hypothesis of any length up to the limit can be among "
        'the results, as with early_stopping="never" in Hugging Face; slower. Else it does not '
        "wait for hypotheses of more than 1.5 times the length of the best.",
    )
    text_language: str = setting(
        "",
        Choice(("", *ABBREVIATIONS)),
        'Code of the language of the sources, such as "de", whose abbreviations end no sentence of '
        "a document; empty: those of all languages.",
    )
    protected_pattern: str = setting(
        "",
        SpanPattern(),
        "Pattern (RE2) of spans that documents keep untranslated, besides markup, {names}, %s and "
        "addresses; empty: no others.",
    )


@documented
@dataclasses.dataclass(frozen=True)
class GeneratorSettings(RuledSettings):
    """The settings of a `TextGenerator`."""

    max_extra_tokens: int = setting(50, COUNT_OR_0, "Maximum tokens that follow a prompt.")
    max_source_length: int = setting(512, COUNT, "Maximum tokens of a prompt.")


@documented
@dataclasses.dataclass(frozen=True)
class ParserSettings(SearchSettings):
    """The settings of a `Parser`; its searches have the defaults of the paper (section 6.3)."""

    beam_size: int = setting(21, BEAMS, "Hypotheses of the beam search.")
    length_penalty: float = setting(
        0.3, settings_of(SearchSettings)["length_penalty"].allowed, "α of the length penalty."
    )
    max_extra_tokens: int = setting(
        300,
        dataclasses.replace(COUNT, least=MIN_EXTRA_TOKENS),
        "Tokens by which a linearized tree may exceed its sentence, without echoes.",
    )
    max_source_length: int = setting(
        512,
        dataclasses.replace(COUNT, least=2),
        "Maximum tokens of a sentence, including its end.",
    )
    max_depth: int = setting(64, COUNT, "Maximum number of open brackets.")
    max_opened: int = setting(8, COUNT, "Maximum number of brackets opened in a row.")
    constrained: bool = setting(
        True,
        Switch(),
        "Whether the search is constrained to valid trees; False: invalid outputs become empty.",
    )
