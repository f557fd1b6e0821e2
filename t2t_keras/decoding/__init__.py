"""Searches over any model that predicts the next token: beam search and sampling.

Start with `beam_search.py` (paper, section 6.1). `hypotheses.py` defines the protocol of a model
and the result of a search, `constraints.py` tokens that outputs must contain, `token_records.py`
the values that a search records for each token.
"""

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.constraints import RequiredTokens
from t2t_keras.decoding.hypotheses import Hypotheses, LengthPenalty, SearchableModel
from t2t_keras.decoding.sampling import sample
from t2t_keras.decoding.token_records import AttendingModel, TokenRecords
