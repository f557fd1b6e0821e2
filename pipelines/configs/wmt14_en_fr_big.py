"""The paper's big model on WMT14 English–French: dropout 0.1 instead of 0.3 (section 6.1)."""

from pipelines.configs import wmt14_en_de_big, wmt14_en_fr_base


def get_config():
    config = wmt14_en_de_big.get_config()
    french = wmt14_en_fr_base.get_config()
    config.data.update(french.data)
    config.model.vocab_size = french.model.vocab_size
    config.model.dropout = 0.1
    return config
