"""Text to batches: corpora, tokenizers, filters, token shards, batches (paper section 5.1)."""

from t2t_keras.data.batching import Batcher, LengthBuckets
from t2t_keras.data.bpe_dropout import BpeDropout, Copies
from t2t_keras.data.filters import FilterReport, Filters
from t2t_keras.data.labelled_batches import LabelledBuckets
from t2t_keras.data.labelled_text import LabelledFolder, LabelledMemory, LabelledTFDS, Labels
from t2t_keras.data.packing import Packing
from t2t_keras.data.pairs import encode_pairs
from t2t_keras.data.shard_writing import write_shards
from t2t_keras.data.shards import read_shards
from t2t_keras.data.sources import FolderCorpus, MemoryCorpus, TFDSCorpus
from t2t_keras.data.streams import (
    PaddingShare,
    batches_per_epoch,
    evaluation_batches,
    padding_share,
    training_batches,
)
from t2t_keras.data.tokenizers import Tokenizer, learn_tokenizer, load_tokenizer

__all__ = [
    "Batcher",
    "BpeDropout",
    "Copies",
    "FilterReport",
    "Filters",
    "FolderCorpus",
    "LabelledBuckets",
    "LabelledFolder",
    "LabelledMemory",
    "LabelledTFDS",
    "Labels",
    "LengthBuckets",
    "MemoryCorpus",
    "Packing",
    "PaddingShare",
    "TFDSCorpus",
    "Tokenizer",
    "batches_per_epoch",
    "encode_pairs",
    "evaluation_batches",
    "learn_tokenizer",
    "load_tokenizer",
    "padding_share",
    "read_shards",
    "training_batches",
    "write_shards",
]
