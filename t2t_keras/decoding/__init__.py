"""Search over any step function: beam search, greedy search, sampling (paper, section 6.1)."""

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.sampling import greedy_search, sample
from t2t_keras.decoding.state import Hypotheses

__all__ = ["Hypotheses", "beam_search", "greedy_search", "sample"]
