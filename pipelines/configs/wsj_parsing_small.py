"""Constituency parsing on a few thousand trees: a small model with data augmentation.

Needs --config.data.folder=…, a folder with train.mrg and dev.mrg, plain or .gz.
"""

from pipelines.configs import wsj_parsing
from t2t_keras.models.config import TINY


def get_config():
    """Returns the config for the sample of the Penn Treebank that NLTK has."""
    config = wsj_parsing.get_config()
    config.model.update(TINY, vocab_size=5_000, norm="pre", dropout=0.1)
    config.data.update(echo=True, copies=60, exchange=0.2, max_length=250, tokens_per_batch=2_000)
    config.train.update(
        steps=6_500,
        warmup_steps=1_000,
        learning_rate_scale=1.43,
        optimizer="muon",
        weight_decay=0.1,
        decay_fraction=0.25,
        mixed_precision="bfloat16",
        validate_every=1_500,
        validation_sentences=50,
        checkpoint_every=150,
        checkpoint_minutes=0.0,
        keep_checkpoints=12,
        average_checkpoints=5,
    )
    return config
