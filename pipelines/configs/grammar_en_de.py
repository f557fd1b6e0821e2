"""The built-in English–German corpus: a small model that learns its grammar in minutes."""

from pipelines.configs import wmt14_en_de_base
from t2t_keras.models.config import TransformerConfig


def get_config():
    """Returns the config of `tools/quickstart.sh`: two passes over the corpus."""
    config = wmt14_en_de_base.get_config()
    config.model.update(
        wmt14_en_de_base.sizes(
            TransformerConfig(
                vocab_size=2_500,
                num_encoder_layers=3,
                num_decoder_layers=2,
                model_dim=256,
                feed_forward_dim=512,
                num_heads=4,
                dropout=0.0,  # hardly any sentence is seen often enough to be learned by heart
            )
        )
    )
    config.data.update(
        tfds="english_german",
        tfds_import="pipelines.datasets.english_german",
        max_length=128,
        tokens_per_batch=1_200,
    )
    config.train.update(
        steps=5_200,
        warmup_steps=350,
        decay_fraction=0.3,
        learning_rate_scale=0.45,
        log_every=100,
        validate_every=2_600,
        validation_sentences=200,
        checkpoint_every=120,
        checkpoint_minutes=0.0,
        keep_checkpoints=5,
        average_checkpoints=5,
    )
    return config
