"""The built-in English–German corpus: a small model that learns its grammar in minutes."""

from pipelines.configs import wmt14_en_de_base


def get_config():
    """Returns the config of `tools/quickstart.sh`: a tiny model, trained by Muon."""
    config = wmt14_en_de_base.get_config()
    config.model.update(
        vocab_size=1_500,
        num_encoder_layers=2,
        num_decoder_layers=2,
        model_dim=128,
        feed_forward_dim=256,
        num_heads=4,
        dropout=0.0,  # few sentences are seen twice
    )
    config.data.update(
        tfds="english_german",
        tfds_import="pipelines.datasets.english_german",
        max_length=128,
        tokens_per_batch=1_200,
    )
    config.train.update(
        optimizer="muon",
        steps=2_600,
        warmup_steps=150,
        decay_fraction=0.9,
        learning_rate_scale=0.7,
        micro_batches=2,
        parallel_micro_batches=2,  # each with cores // 2 threads
        log_every=100,
        validate_every=2_600,
        validation_sentences=200,
        checkpoint_every=50,
        checkpoint_minutes=0.0,
        keep_checkpoints=5,
        average_checkpoints=5,
    )
    return config
