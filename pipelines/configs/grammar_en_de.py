"""The built-in English–German corpus: a small model that learns its grammar in minutes."""

from pipelines.configs import wmt14_en_de_base
from t2t_keras.models.config import TransformerConfig


def get_config():
    """Returns the config of `tools/quickstart.sh`."""
    config = wmt14_en_de_base.get_config()
    config.model.update(
        wmt14_en_de_base.sizes(
            TransformerConfig(
                vocab_size=1_500,
                encoder_layers=3,
                decoder_layers=3,
                model_dim=256,
                feed_forward_dim=512,
                heads=4,
            )
        )
    )
    config.data.update(tfds="grammar_en_de", max_length=128, tokens_per_batch=3_000)
    config.train.update(
        steps=2_000,
        warmup_steps=400,
        learning_rate_scale=0.7,
        log_every=50,
        validate_every=500,
        validation_sentences=200,
        checkpoint_every=50,
        checkpoint_minutes=0.0,
        keep_checkpoints=5,
    )
    return config
