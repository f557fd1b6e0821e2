"""Sentences of film reviews, positive or negative (Pang and Lee 2005): a small encoder.

Needs --config.data.folder=…, a folder with train.neg, train.pos, dev.neg and dev.pos, a sentence on
each line, plain or gzipped.
"""

from pipelines.fields import make_config


def get_config():
    """Returns the config of a run of a few minutes."""
    config = make_config("classification")
    config.model.update(
        vocab_size=8_000,
        num_encoder_layers=1,
        model_dim=128,
        feed_forward_dim=256,
        num_heads=4,
        dropout=0.3,
        pooling="mean",
        head_dropout=0.5,
        word_dropout=0.5,
    )
    config.data.update(
        tfds="",
        validation_split="dev",
        test_split="dev",
        tokenizer="wordpiece",
        max_length=128,
        tokens_per_batch=2_000,
    )
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
    return config
