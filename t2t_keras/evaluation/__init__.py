"""Metrics of outputs: BLEU, chrF and label accuracy in `text`, F1 of trees in `bracketing`."""

from t2t_keras.evaluation.text import CorpusScores, corpus_scores

__all__ = ["CorpusScores", "corpus_scores"]
