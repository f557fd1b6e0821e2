"""The TFDS builder of the corpus."""

import random

import tensorflow_datasets as tfds

from pipelines.datasets.english_german.splits import SPLIT_SIZES, sentence_pairs


class Builder(tfds.core.GeneratorBasedBuilder):
    """English–German sentence pairs from a hand-written grammar; nothing is downloaded."""

    VERSION = tfds.core.Version("2.0.0")

    def _info(self):
        return self.dataset_info_from_configs(
            features=tfds.features.Translation(languages=("en", "de")),
            supervised_keys=("en", "de"),
        )

    def download_and_prepare(self, **kwargs):
        """Prepares the dataset, and restores the global random state, from which Keras draws seeds.

        TFDS draws a folder's name from it.
        """
        state = random.getstate()
        try:
            super().download_and_prepare(**kwargs)
        finally:
            random.setstate(state)

    def _split_generators(self, dl_manager):
        del dl_manager
        return {split: self._generate_examples(split) for split in SPLIT_SIZES}

    def _generate_examples(self, split):
        for index, (english, german) in enumerate(sentence_pairs(split)):
            yield index, {"en": english, "de": german}
