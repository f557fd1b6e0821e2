"""German captions of Multi30k task 1: a language model of 29,000 lines.

Needs --config.data.folder=…, a folder with train.*.de, val.*.de and test_2016_flickr.*.de.
"""

from pipelines.fields import make_config


def get_config():
    """Returns the config of a run of some ten minutes on two cores."""
    config = make_config("language_model")
    config.model.update(
        vocab_size=6_000,
        num_decoder_layers=2,
        model_dim=256,
        feed_forward_dim=1_024,
        num_heads=4,
        dropout=0.2,
        norm="pre",
        position_embedding="rotary",
    )
    config.data.update(
        tfds="",
        language="de",
        validation_split="val",
        test_split="test_2016_flickr",
        max_length=128,
        tokens_per_batch=4_096,
    )
    config.train.update(
        optimizer="muon",
        weight_decay=0.1,
        label_smoothing=0.0,
        steps=800,
        warmup_steps=100,
        learning_rate_scale=5e-3 * 256**0.5 * 100**0.5,
        decay_fraction=0.7,
        mixed_precision="bfloat16",
        micro_batches=2,
        parallel_micro_batches=2,
        log_every=50,
        validate_every=100,
        checkpoint_every=10,
        checkpoint_minutes=0.0,
        keep_checkpoints=5,
        average_checkpoints=5,
    )
    return config
