"""A synchronous English–German grammar and the corpus of sentence pairs that it generates.

One tree gives both sentences: `lexicon` has the words, `phrases` the noun phrases, `verbs` the
verb groups, `clauses` the word order, `sampling` the random trees, `splits` the corpus.
"""

from t2t_keras.data.english_german.splits import SPLIT_SIZES, sentence_pairs

__all__ = ["SPLIT_SIZES", "sentence_pairs"]
