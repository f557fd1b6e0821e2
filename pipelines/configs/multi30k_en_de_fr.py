"""Multi30k in four directions, English ↔ German and English ↔ French: one tiny model.

--config=multi30k_en_de_fr:FOLDER; the folder contains train.*.en, train.*.de, train.*.fr, val.* and
test_2016_flickr.*. To evaluate German → French, which is not trained, give
--source_language=de --target_language=fr. The recipe is the same as in `multi30k_en_de.py`, with
more steps: its text is four times as long. Label smoothing is 0.1, as in the paper.
"""

from pipelines.configs import multi30k_en_de


def get_config(folder="multi30k"):
    config = multi30k_en_de.get_config()
    config.data.corpora = f"{folder}:en=de,{folder}:en=fr"
    config.train.update(
        steps=12_000, label_smoothing=0.1, validate_every=3_000, validation_sentences=100
    )
    config.decode.length_penalty = 1.0
    config.knn.k = 0
    return config
