"""Constituency parsing on the Wall Street Journal: the paper's model (section 6.3, table 4).

Needs --config.data.folder=…, a folder with train.mrg, dev.mrg and test.mrg (sections 2-21, 22 and
23 of the Penn Treebank), plain or .gz. Semi-supervised: --config.data.parsed_trees=…, a file of
automatically parsed trees, and --config.model.vocab_size=32000.
"""

from pipelines.configs import wmt14_en_de_base
from t2t_keras.models.config import TransformerConfig


def get_config():
    """Returns the config; values that the paper omits are those of its base translation model."""
    config = wmt14_en_de_base.get_config()
    config.task = "parsing"
    config.model.update(wmt14_en_de_base.sizes(TransformerConfig.parsing(vocab_size=16_000)))
    data = {
        "folder": "",
        "train_split": "train",
        "validation_split": "dev",
        "test_split": "test",
        "train_share": 1.0,  # fraction of the training trees, for learning curves
        "tags": "kept",  # part-of-speech tags stand for words; or "normalized": XX for all
        "echo": False,  # copy each word after its tag in the target, as a position cue
        "copies": 1,  # of each training tree, each with another random augmentation
        "exchange": 0.0,  # fraction of constituents exchanged for others of the same label
        "class_weight": 0.8,  # a word seen n times is made unknown at class_weight / (… + n)
        "parsed_trees": "",  # file of more trees, taken as they are; empty: none
        "max_length": 600,  # longest sequence of training, in tokens
        "max_length_ratio": 100.0,  # a tree longer than this many times its words: dropped
        "batching": "buckets",
        "tokens_per_batch": 25_000,
        "tokens_per_replica": 0,
    }
    for name in set(config.data) - set(data):
        del config.data[name]
    config.data.update(data)
    del config.decode.max_target_length, config.decode.length_penalty_offset
    config.decode.update(beam_size=21, length_penalty=0.3, max_extra_tokens=300, constrained=True)
    return config
