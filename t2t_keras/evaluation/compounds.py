"""Tokenized BLEU with compounds split: the convention behind the paper's newstest2014 figures.

Published English–German scores of 2016 and 2017 were taken on Moses-tokenized text in which each
hyphenated word was put apart, on both sides: "rich-text" → "rich ##AT##-##AT## text". It gives
higher scores than sacreBLEU's (Post 2018), and only such scores compare with the paper's table 2.
"""

import re

import sacrebleu

from t2t_keras.errors import InputError

_HYPHEN = re.compile(r"(\S)-(\S)")


def split_compounds(tokenized):
    """Puts the parts of hyphenated words apart, in a line that is tokenized already."""
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", tokenized)


def compound_split_bleu(hypotheses, references, language="de"):
    """Scores translations as the paper's English–German ones were.

    Args:
        hypotheses: list of str, detokenized.
        references: list of str, detokenized, one for each hypothesis.
        language: of both, for the rules of the Moses tokenizer.

    Returns:
        float, BLEU from 0 to 100, case-sensitive, without smoothing (as `multi-bleu.perl`).

    Raises:
        InputError: if sacremoses is not installed.

    Example:
        >>> compound_split_bleu(["Ein rot-grünes Haus."], ["Ein rot-grünes Haus."])
        100.0
    """
    try:
        import sacremoses  # noqa: PLC0415  an extra
    except ImportError as error:
        raise InputError(
            "Compound-split BLEU needs the Moses tokenizer: pip install t2t_keras[evaluation]."
        ) from error
    normalizer = sacremoses.MosesPunctNormalizer(language)
    tokenizer = sacremoses.MosesTokenizer(language)

    def prepared(lines):
        return [
            split_compounds(tokenizer.tokenize(normalizer.normalize(line), return_str=True))
            for line in lines
        ]

    bleu = sacrebleu.BLEU(tokenize="none", smooth_method="none", force=True)
    return bleu.corpus_score(prepared(hypotheses), [prepared(references)]).score
