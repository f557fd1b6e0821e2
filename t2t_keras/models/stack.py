"""What encoder and decoder layers share: a config, and weights from the start."""

import dataclasses

import keras

from t2t_keras.models.config import TransformerConfig


class ConfiguredLayer(keras.layers.Layer):
    """A layer whose whole shape is in a `TransformerConfig`, built when it is made.

    Args:
        config: `TransformerConfig`, or its fields as a dict (as a saved file holds them).
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = TransformerConfig(**config) if isinstance(config, dict) else config

    def build_parts(self):
        """Builds all sub-layers; they all work on [batch, length, model_dim]."""
        shape = (None, None, self.config.model_dim)
        for layer in self._layers:
            if not layer.built:
                layer.build(shape)
        self.built = True

    def get_config(self):
        return super().get_config() | {"config": dataclasses.asdict(self.config)}
