"""What a config says of number types and of the order of sums holds for the whole process."""

import keras
import tensorflow as tf

from pipelines import experiment
from pipelines.configs import multi30k_en_de


def test_numerics_fields_set_the_process(monkeypatch):
    config = multi30k_en_de.get_config()
    calls, numerics = [], tf.config.experimental
    monkeypatch.setattr(numerics, "enable_op_determinism", lambda: calls.append("deterministic"))
    config.train.update(deterministic=True, mixed_precision="bfloat16", tf32=False)
    try:
        experiment.set_numerics(config)
        assert keras.config.dtype_policy().name == "mixed_bfloat16"
        assert calls == ["deterministic"]
        assert not numerics.tensor_float_32_execution_enabled()
        config.train.update(deterministic=False, mixed_precision="float16", tf32=True)
        experiment.set_numerics(config)
        assert keras.config.dtype_policy().name == "mixed_float16"
        assert numerics.tensor_float_32_execution_enabled()
    finally:
        keras.config.set_dtype_policy("float32")
