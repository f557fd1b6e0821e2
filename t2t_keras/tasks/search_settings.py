"""The settings of searches: one frozen dataclass for a predictor, its bundle, configs and flags."""

import dataclasses
import re

import tensorflow as tf

from t2t_keras.decoding.token_rules import MinLength, NoRepeatedNgrams, RepetitionPenalty
from t2t_keras.errors import InputError
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
from t2t_keras.tasks.parse_constraints import MIN_EXTRA_TOKENS
from t2t_keras.tasks.spans import WORD
from t2t_keras.training.checkpoint_files import reason_of

_PLAIN = ("The old man sees 2 dogs.", "Собака видит кошку.", "他们看见狗。", "رأى الرجل كلبا")
"""Texts that no pattern may protect as a whole."""
_PLACES = ("", "ab  \n\n.c", "\na\n", " c ")
"""Texts with every kind of place: at ends of texts, lines and words, and not at them."""


class SpanPattern:
    """A setting that is a pattern of spans, or empty."""

    def __str__(self):
        return "a pattern in RE2's syntax, or '' for none"

    def check(self, name, value):
        """Returns the pattern.

        Raises:
            InputError: if it is not a pattern, matches the empty text, or protects all words.
        """
        _check_pattern(name, value)
        return value


def _check_pattern(name, pattern):
    if not isinstance(pattern, str):
        raise InputError(f"{name} is {pattern!r}: give a pattern in RE2's syntax, or '' for none.")
    if not pattern:
        return
    with tf.init_scope(), tf.device("CPU"):
        try:
            marked = tf.strings.regex_replace(
                [*_PLAIN, *_PLACES], f"(?:{pattern})", rf"{WORD}\0{WORD}"
            )
        except (tf.errors.InvalidArgumentError, UnicodeEncodeError) as error:
            reason = re.sub(r".*, error: |: \(\?:.*", "", reason_of(error))  # RE2's own words
            raise InputError(
                f"{name} is {pattern!r}, which is not a pattern in RE2's syntax ({reason}): see "
                "https://github.com/google/re2/wiki/Syntax."
            ) from error
    # Every second part is a match.
    parts = [text.decode(errors="replace").split(WORD) for text in marked.numpy()]
    if any("" in row[1::2] for row in parts):
        raise InputError(
            f"{name} is {pattern!r}, which matches the empty text: make it match at least one "
            "character, for example by + instead of *."
        )
    for text, row in zip(_PLAIN, parts, strict=False):
        if not any(character.isalpha() for character in "".join(row[::2])):
            raise InputError(
                f"{name} is {pattern!r}, which protects all words of {text!r}, so that nothing "
                "would be translated: make it match fewer words."
            )


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

    def token_rules(self, eos_id):
        """Returns the rules of a search, a list for `RuledModel`; eos_id: int, the end."""
        rules = []
        if self.repetition_penalty != 1:
            rules.append(RepetitionPenalty(self.repetition_penalty))
        if self.no_repeat_ngram_size:
            rules.append(NoRepeatedNgrams(self.no_repeat_ngram_size))
        return rules


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

    def token_rules(self, eos_id):
        """Returns the rules of a search, a list for `RuledModel`; eos_id: int, the end."""
        rules = super().token_rules(eos_id)
        if self.min_target_length:
            rules.append(MinLength(self.min_target_length, eos_id))
        return rules


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

    def token_rules(self, eos_id):
        """Returns the rules of a search, see `TranslatorSettings.token_rules`: none."""
        return []
