"""The paper's base model on WMT14 English–French: a word-piece vocabulary of 32,000 (5.1)."""

from pipelines.configs import wmt14_en_de_base


def get_config():
    config = wmt14_en_de_base.get_config()
    config.model.vocab_size = 32_000
    config.data.tfds = "wmt14_translate/fr-en"
    config.data.target_language = "fr"
    config.data.tokenizer = "wordpiece"
    return config
