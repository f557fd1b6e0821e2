"""A config whose run takes a second or two within the process."""

from pipelines.configs import multi30k_en_de
from tests.end_to_end.binaries import SETTINGS


def small_config(folder):
    """Returns the config of four steps on the text in a folder, as `write_folder` makes it."""
    config = multi30k_en_de.get_config()
    config.update_from_flattened_dict(SETTINGS)
    config.model.update(vocab_size=300, model_dim=16, feed_forward_dim=32)
    config.model.update(position_embedding="learned", max_positions=60)
    config.data.update(folder=str(folder), test_split="test_2016_flickr", max_length=40)
    every_2 = dict.fromkeys(("log_every", "validate_every", "checkpoint_every"), 2)
    config.train.update(every_2, steps=4, validation_sentences=0, keep_checkpoints=2)
    config.train.deterministic = False
    config.decode.update(beam_size=3, max_extra_tokens=4)
    return config
