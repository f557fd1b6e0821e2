r"""Film reviews of IMDB, positive or negative (Maas et al. 2011), from TFDS: long documents.

python -m pipelines.train --config=imdb_reviews --workdir=runs/imdb \
    --config.model.attention_window=128

A window restricts self-attention to the positions around each one (paper, section 4), so that
memory grows linearly with the length of a text, not quadratically.
"""

from pipelines.configs import sentence_polarity


def get_config():
    """Returns the config; a tenth of the training texts is held out for validation."""
    config = sentence_polarity.get_config()
    config.model.update(vocab_size=16_000, num_encoder_layers=2)
    config.data.update(
        tfds="imdb_reviews",
        train_split="train[:90%]",
        validation_split="train[90%:]",
        test_split="test",
        max_length=1_024,
        tokens_per_batch=16_384,
    )
    config.train.update(steps=3_000, warmup_steps=400, validate_every=300, checkpoint_every=300)
    return config
