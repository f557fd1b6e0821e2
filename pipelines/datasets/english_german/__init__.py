"""The built-in English–German corpus: the TFDS dataset `english_german`.

Importing this package registers the dataset. A synchronous grammar generates the pairs: one tree
gives an English sentence and its German translation. Start with `clauses.py` (word order), then
read `phrases.py` (noun phrases), `sampler.py` (random trees) and `splits.py` (the corpus). The
`.tsv` files hold the words, `lexicon.py` reads them.
"""

from pipelines.datasets.english_german.english_german_dataset_builder import Builder as Builder
