"""Constituency parsing on the Wall Street Journal: the paper's model (section 6.3, table 4).

Needs --config.data.folder=…, a folder with train.mrg, dev.mrg and test.mrg (sections 2-21, 22 and
23 of the Penn Treebank), plain or .gz. Semi-supervised: --config.data.parsed_trees=…, a file of
automatically parsed trees, and --config.model.vocab_size=32000.
"""

from pipelines.fields import make_config
from t2t_keras.models.config import PARSING


def get_config():
    """Returns the config; values that the paper omits come from its base translation model."""
    config = make_config("parsing")
    config.model.update(PARSING, vocab_size=16_000)
    config.data.update(validation_split="dev", max_length=600, max_length_ratio=100.0)
    config.decode.update(beam_size=21, length_penalty=0.3, max_extra_tokens=300)
    return config
