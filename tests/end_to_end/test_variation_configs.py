"""The configs of the paper's variations and of Table 3, made from one table each."""

import pytest

from pipelines import experiment
from pipelines.configs import multi30k_en_de, multi30k_en_fr, table3, variations, wmt14_en_de_base
from pipelines.fields import config_diff
from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig

# Table 3: N, d_model, d_ff, h, d_k, d_v, P_drop, ε_ls, train steps.
BASE = (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000)
PAPER = {
    "base": BASE,
    "A1": (6, 512, 2048, 1, 512, 512, *BASE[6:]),
    "A2": (6, 512, 2048, 4, 128, 128, *BASE[6:]),
    "A3": (6, 512, 2048, 16, 32, 32, *BASE[6:]),
    "A4": (6, 512, 2048, 32, 16, 16, *BASE[6:]),
    "B1": (6, 512, 2048, 8, 16, 64, *BASE[6:]),
    "B2": (6, 512, 2048, 8, 32, 64, *BASE[6:]),
    "C1": (2, *BASE[1:]),
    "C2": (4, *BASE[1:]),
    "C3": (8, *BASE[1:]),
    "C4": (6, 256, 2048, 8, 32, 32, *BASE[6:]),
    "C5": (6, 1024, 2048, 8, 128, 128, *BASE[6:]),
    "C6": (6, 512, 1024, *BASE[3:]),
    "C7": (6, 512, 4096, *BASE[3:]),
    "D1": (*BASE[:6], 0.0, *BASE[7:]),
    "D2": (*BASE[:6], 0.2, *BASE[7:]),
    "D3": (*BASE[:7], 0.0, *BASE[8:]),
    "D4": (*BASE[:7], 0.2, *BASE[8:]),
    "E": BASE,
    "big": (6, 1024, 4096, 16, 64, 64, 0.3, 0.1, 300_000),
}


@pytest.mark.parametrize("row", table3.ROWS)
def test_the_rows_are_table_3s(row):
    config = table3.get_config(row)
    model, train = TransformerConfig(**config.model), config.train
    assert model.num_encoder_layers == model.num_decoder_layers
    assert PAPER[row] == (
        model.num_encoder_layers, model.model_dim, model.feed_forward_dim, model.num_heads,
        model.key_dim, model.value_dim, model.dropout, train.label_smoothing, train.steps,
    )  # fmt: skip
    assert model.position_embedding == ("learned" if row == "E" else "sinusoidal")
    assert train.average_checkpoints == 0
    experiment.check(config)


@pytest.mark.parametrize("row", table3.FURTHER_ROWS)
def test_a_further_row_changes_the_positions_alone(row):
    config = table3.get_config(row)
    experiment.check(config)
    assert config.model.position_embedding == row.removeprefix("E-")
    config.model.position_embedding = "sinusoidal"
    assert config == table3.get_config()


def test_table_3_is_whole():
    assert list(table3.ROWS) == list(PAPER)


@pytest.mark.parametrize("name", variations.VARIATIONS)
def test_a_variation_is_what_its_table_says_and_can_run(name):
    config, plain = variations.get_config(name), variations.get_config()
    experiment.check(config)
    changes = [
        f"{part}.{field}"
        for part in ("model", "train", "data", "decode")
        for field in config[part]
        if config[part][field] != plain[part][field]
    ]
    assert sorted(changes) == sorted(variations.VARIATIONS[name])
    listed = " ".join(config_diff(config))
    paper = wmt14_en_de_base.get_config()
    for change in changes:
        part, field = change.split(".")
        assert (change in listed) == (config[part][field] != paper[part][field])


@pytest.mark.parametrize(("module", "other"), [(multi30k_en_de, "de"), (multi30k_en_fr, "fr")])
def test_multi30k_goes_both_ways(module, other):
    forward, reverse = module.get_config(), module.get_config("reverse")
    assert (forward.data.source_language, forward.data.target_language) == ("en", other)
    assert (reverse.data.source_language, reverse.data.target_language) == (other, "en")
    reverse.data.update(source_language="en", target_language=other)
    assert reverse == forward == module.get_config("forward")
    with pytest.raises(InputError, match="no direction 'back'"):
        module.get_config("back")
