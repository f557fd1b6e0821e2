"""Text to batches (paper section 5.1): the links of the chain, in order.

corpus      pairs of text of a split        corpora.py, labeled_text.py, treebank.py
tokenizer   ids of a text                   tokenizers.py and the classes that it names
copies      other segmentations, at random  bpe_dropout.py
marks       words become placeholders       placeholders.py
filters     pairs that are not too long     shard_writing.py
shards      files of ids, written once      shard_writing.py, apache_beam_shards.py; shards.py
batches     padded or packed ids, shifted   batching.py
stream      batches without end, resumable  streams.py
"""

from t2t_keras.data.base_tokenizer import Tokenizer, TokenOffsets
from t2t_keras.data.batching import Batcher, LengthBuckets, Packing
from t2t_keras.data.bpe_dropout import BpeDropout, RepeatedCorpus
from t2t_keras.data.corpora import FolderCorpus, MemoryCorpus, TFDSCorpus, encode_pairs
from t2t_keras.data.labeled_text import (
    LabeledBuckets,
    LabeledFolder,
    LabeledTFDS,
    LabelEncoder,
)
from t2t_keras.data.placeholders import MarkedCorpus, MarkedTokenizer
from t2t_keras.data.shard_writing import FilterReport, Filters, write_shards
from t2t_keras.data.streams import (
    DataService,
    PaddingFraction,
    batches_per_epoch,
    evaluation_batches,
    padding_fraction,
    training_batches,
)
from t2t_keras.data.tokenizers import load_tokenizer, read_sentencepiece, train_tokenizer

__all__ = [
    "Batcher",
    "BpeDropout",
    "DataService",
    "FilterReport",
    "Filters",
    "FolderCorpus",
    "LabelEncoder",
    "LabeledBuckets",
    "LabeledFolder",
    "LabeledTFDS",
    "LengthBuckets",
    "MarkedCorpus",
    "MarkedTokenizer",
    "MemoryCorpus",
    "Packing",
    "PaddingFraction",
    "RepeatedCorpus",
    "TFDSCorpus",
    "TokenOffsets",
    "Tokenizer",
    "batches_per_epoch",
    "encode_pairs",
    "evaluation_batches",
    "load_tokenizer",
    "padding_fraction",
    "read_sentencepiece",
    "train_tokenizer",
    "training_batches",
    "write_shards",
]
