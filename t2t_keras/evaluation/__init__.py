"""How good an output is: `text` for BLEU, chrF and label accuracy, `bracketing` for trees."""

from t2t_keras.evaluation.text import CorpusScores, corpus_scores

__all__ = ["CorpusScores", "corpus_scores"]
