"""How good an output is: BLEU and chrF."""

from t2t_keras.evaluation.bleu import CorpusScores, corpus_scores

__all__ = ["CorpusScores", "corpus_scores"]
