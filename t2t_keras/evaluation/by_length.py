"""BLEU by the length of the source: where a model does not generalize in length, this shows it."""

import dataclasses

from t2t_keras.evaluation.bleu import corpus_scores

BOUNDS = (5, 10, 15, 20, 30, 40, 60, 80)
"""Words of the longest source in each group; one more group has the rest."""


@dataclasses.dataclass(frozen=True)
class LengthGroup:
    """The score of the sentences of some lengths.

    Attributes:
        shortest: int, words of the shortest source that belongs here.
        longest: int or None, words of the longest; None without a limit.
        sentences: int.
        bleu: float from 0 to 100.
        length_ratio: float, tokens of the translations over those of the references.
    """

    shortest: int
    longest: int | None
    sentences: int
    bleu: float
    length_ratio: float


def bleu_by_length(sources, hypotheses, references, tokenize="13a", lowercase=False, bounds=BOUNDS):
    """Scores translations in groups of source length, in words between spaces.

    Args:
        sources: list of str.
        hypotheses: list of str.
        references: list of str.
        tokenize: sacreBLEU's tokenization.
        lowercase: whether case is ignored.
        bounds: rising ints, the longest source of each group.

    Returns:
        List of `LengthGroup`, shortest first; groups without a sentence are left out.
    """
    groups = []
    shortest = 0
    for longest in (*bounds, None):
        here = [
            i
            for i, source in enumerate(sources)
            if shortest <= len(source.split())
            and (longest is None or len(source.split()) <= longest)
        ]
        if here:
            scores = corpus_scores(
                [hypotheses[i] for i in here], [references[i] for i in here], tokenize, lowercase
            )
            groups.append(
                LengthGroup(shortest, longest, len(here), scores.bleu, scores.length_ratio)
            )
        shortest = (longest or 0) + 1
    return groups
