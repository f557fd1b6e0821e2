"""BLEU and chrF as sacreBLEU computes them, with the signatures that make them comparable.

A warning of Post (2018): the same output scores differently under different tokenization, so
that a BLEU figure without its signature says little.
"""

import dataclasses

from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class CorpusScores:
    """The scores of a translated corpus.

    Attributes:
        bleu: float from 0 to 100 (Papineni et al. 2002).
        chrf: float from 0 to 100 (Popović 2015).
        bleu_signature: str, the settings and version behind `bleu`.
        chrf_signature: str, likewise.
        length_ratio: float, tokens of the translations over those of the references (of the
            nearest lengths, where there are several).
        sentences: int.
    """

    bleu: float
    chrf: float
    bleu_signature: str
    chrf_signature: str
    length_ratio: float
    sentences: int


def corpus_scores(hypotheses, references, tokenize="13a", lowercase=False):
    """Scores translations against references.

    Args:
        hypotheses: list of str, detokenized unless `tokenize` is `none`.
        references: list of str, one for each hypothesis; or a list of such lists.
        tokenize: sacreBLEU's tokenizer: `13a` as WMT uses, `none` for tokenized text, `intl`, …
        lowercase: whether case is ignored.

    Returns:
        `CorpusScores`.

    Raises:
        InputError: if there is nothing to score, the counts of lines differ, or the tokenizer is
            unknown.

    Example:
        >>> corpus_scores(["Hallo Welt."], ["Hallo Welt."]).bleu
        100.0
    """
    import sacrebleu  # noqa: PLC0415  slow, and needed by nothing but a score

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
    if tokenize not in sacrebleu.BLEU.TOKENIZERS:
        raise InputError(
            f"tokenize is {tokenize!r}: give one of {', '.join(sacrebleu.BLEU.TOKENIZERS)}."
        )
    # force: tokenized text is no mistake here, it is what `none` is for.
    bleu = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
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
