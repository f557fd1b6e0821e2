"""The paper's big model on WMT14 English–German (Table 3, last row; sections 5.2 and 6.1)."""

from pipelines.configs import wmt14_en_de_base
from t2t_keras.models.config import BIG


def get_config():
    """Returns the config: 300,000 steps, the last 20 checkpoints averaged."""
    config = wmt14_en_de_base.get_config()
    config.model.update(BIG)
    config.train.steps = 300_000
    config.train.average_checkpoints = 20
    return config
