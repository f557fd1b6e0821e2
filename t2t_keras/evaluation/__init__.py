"""Metrics of outputs: `text` has BLEU, chrF and label accuracy, `bracketing` F1 of trees."""

from t2t_keras.evaluation.text import CorpusScores, corpus_scores

__all__ = ["CorpusScores", "corpus_scores"]
