"""Sentences of film reviews, positive or negative (Pang and Lee 2005): a small encoder.

Needs --config.data.folder=…, a folder with train.neg, train.pos, dev.neg and dev.pos, a sentence on
each line, plain or gzipped.
"""

from pipelines.configs import wmt14_en_de_base
from t2t_keras.models.config import TransformerConfig

_DATA = {
    # A labelled dataset of TFDS by name or, if folder is not empty, a folder: see LabelledFolder.
    "tfds": "",
    "tfds_import": "",  # module to import first, which registers a dataset of your own
    "tfds_data_dir": "",  # where TFDS keeps its datasets; empty: its own default
    "errors": "strict",  # or "replace": U+FFFD for what is not UTF-8 in a folder's text
    "text_feature": "text",  # the dataset's features that hold a text and its class
    "label_feature": "label",
    "folder": "",
    "labels": "neg,pos",  # the classes by name, in the order of their probabilities
    "train_split": "train",
    "validation_split": "dev",
    "test_split": "dev",
    "tokenizer": "wordpiece",
    "bpe_dropout": 0.0,  # as in wmt14_en_de_base.py
    "subword_copies": 1,
    "max_length": 128,  # tokens of a text; what goes beyond is cut off
    "tokens_per_batch": 2_000,
    "tokens_per_replica": 0,
}


# Fields of config.model of which the classifier makes no use.
_OF_TRANSLATION = ("num_decoder_layers", "embedding_sharing", "output_bias", "source_vocab_size")


def sizes(config):
    """Returns the fields of a `TransformerConfig` that the classifier makes use of."""
    fields = wmt14_en_de_base.sizes(config)
    return {name: value for name, value in fields.items() if name not in _OF_TRANSLATION}


def get_config():
    """Returns the config of a run of a few minutes."""
    config = wmt14_en_de_base.get_config()
    config.task = "classification"
    for name in _OF_TRANSLATION:
        del config.model[name]
    config.model.update(
        sizes(
            TransformerConfig(
                vocab_size=8_000,
                num_encoder_layers=1,
                model_dim=128,
                feed_forward_dim=256,
                num_heads=4,
                dropout=0.3,
            )
        )
    )
    config.model.update(
        pooling="mean",  # or "max", "first", "attention"
        head_dropout=0.5,  # dropout rate of the pooled vector
        word_dropout=0.5,  # fraction of words dropped from a text in training
    )
    for name in set(config.data) - set(_DATA):
        del config.data[name]
    config.data.update(_DATA)
    config.train.update(
        steps=1_500,
        warmup_steps=200,
        learning_rate_scale=0.2,
        decay_fraction=0.4,
        log_every=50,
        validate_every=100,
        checkpoint_every=100,
        checkpoint_minutes=0.0,
        keep_checkpoints=5,
        average_checkpoints=5,
    )
    del config.train.validation_sentences  # accuracy is measured on all of the split
    config.decode = {}
    return config
