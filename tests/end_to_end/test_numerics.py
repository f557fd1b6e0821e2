"""What a config says of number types and of the order of sums holds for the whole process."""

import keras
import tensorflow as tf

from pipelines import experiment
from pipelines.configs import multi30k_en_de


def test_numerics_fields_set_the_process(monkeypatch):
    config = multi30k_en_de.get_config()
    calls = []
    monkeypatch.setattr(
        tf.config.experimental, "enable_op_determinism", lambda: calls.append("deterministic")
    )
    config.train.update(deterministic=True, mixed_precision=True)
    try:
        experiment.set_numerics(config)
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
        assert calls == ["deterministic"]
    finally:
        keras.config.set_dtype_policy("float32")
