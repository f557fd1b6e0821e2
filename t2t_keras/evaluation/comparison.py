"""Is one system's output better than another's, or was the test set kind to it?"""

import dataclasses

import sacrebleu
from sacrebleu.significance import PairedTest

from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two systems' BLEU on the same sentences.

    Attributes:
        bleu: float, the system's.
        baseline_bleu: float, the other's.
        p_value: float, how often a difference this large comes by chance if there is none.
        interval: float, half the width of the system's 95 % confidence interval.
        baseline_interval: float, half the width of the other's.
        samples: int, the resampled test sets.
    """

    bleu: float
    baseline_bleu: float
    p_value: float
    interval: float
    baseline_interval: float
    samples: int


def paired_bootstrap(
    hypotheses, baseline, references, tokenize="13a", lowercase=False, samples=1000
):
    """Compares two systems by paired bootstrap resampling (Koehn 2004), as sacreBLEU does it.

    Its random numbers have a fixed seed (12345, or SACREBLEU_SEED).

    Args:
        hypotheses: list of str.
        baseline: list of str, the other system's translations of the same sentences.
        references: list of str.
        tokenize: sacreBLEU's tokenization.
        lowercase: whether case is ignored.
        samples: how many test sets are drawn.

    Returns:
        `Comparison`.

    Raises:
        InputError: if the counts of lines differ.
    """
    if not len(hypotheses) == len(baseline) == len(references):
        raise InputError(
            f"there are {len(hypotheses)} translations, {len(baseline)} of the baseline and "
            f"{len(references)} references: give files that are aligned line by line."
        )
    # Each kept reference must be a fresh metric's: PairedTest caches them.
    metric = sacrebleu.BLEU(
        tokenize=tokenize, lowercase=lowercase, force=True, references=[references]
    )
    systems = [("baseline", baseline), ("system", hypotheses)]
    _, scores = PairedTest(systems, {"BLEU": metric}, None, "bs", samples)()
    other, system = scores["BLEU"]
    # sacreBLEU counts the drawn sets that differ more: where nothing differs, none does.
    p_value = float(system.p_value) if system.score != other.score else 1.0
    return Comparison(system.score, other.score, p_value, system.ci, other.ci, samples)
