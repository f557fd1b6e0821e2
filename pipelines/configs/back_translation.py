"""Back-translation with a tag, English–German: the config of both models.

--config=back_translation:reverse translates from German into English and learns from the real pairs
of --config.data.folder=…, with train.*.en, train.*.de, val.* and test.*. Its samples of German text
are the sources of synthetic pairs, each after the word <BT>; --config=back_translation learns from
real and synthetic pairs together. pipelines/docs/back_translation.md lists all commands.
The model has the size of multi30k_en_de, for about 10,000 to 100,000 real pairs; the search is the
paper's, without kNN-MT.
"""

from pipelines.configs import multi30k_en_de


def get_config(direction="forward"):
    """Returns the config of the final model, or, "reverse", of the model that translates back."""
    config = multi30k_en_de.get_config(direction)
    config.data.test_split = "test"
    config.train.label_smoothing = 0.1  # samples are to be drawn from probabilities as learned
    config.decode.beam_size = 4
    config.decode.length_penalty = 0.6
    config.knn.k = 0
    return config
