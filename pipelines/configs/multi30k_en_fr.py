"""Multi30k task 1, English–French captions: `multi30k_en_de.py` with another target language.

Label smoothing is 0.1, as in the paper; 0.3 was not tried.
Needs --config.data.folder=…, a folder with train.*.en, train.*.fr, val.* and test_2016_flickr.*.
The other direction is --config=multi30k_en_fr:reverse.
"""

from pipelines.configs import multi30k_en_de


def get_config(direction="forward"):
    config = multi30k_en_de.get_config()
    config.data.target_language = "fr"
    config.train.label_smoothing = 0.1
    return multi30k_en_de.directed(config, direction)
