"""The built-in English–German corpus as a TFDS dataset, `grammar_en_de`.

Importing this module registers the name; nothing is downloaded:

    import t2t_keras.data.grammar
    tfds.load("grammar_en_de", split="train", data_dir=...)
"""

import tensorflow_datasets as tfds

from t2t_keras.data.english_german import SPLIT_SIZES, sentence_pairs


class GrammarEnDe(tfds.core.GeneratorBasedBuilder):
    """English–German sentence pairs from a hand-written synchronous grammar.

    The splits are train, validation, test, and test_long, whose sentences are longer than any
    in the others. No sentence of either language stands in two splits.
    """

    VERSION = tfds.core.Version("1.1.0")
    RELEASE_NOTES = {"1.1.0": "240,000 training pairs."}  # noqa: RUF012 (the form that TFDS asks for)

    def _info(self):
        return self.dataset_info_from_configs(
            description=self.__doc__,
            features=tfds.features.Translation(languages=("en", "de")),
            supervised_keys=("en", "de"),
        )

    def _split_generators(self, dl_manager):
        del dl_manager  # nothing is downloaded
        return {split: self._generate_examples(split) for split in SPLIT_SIZES}

    def _generate_examples(self, split):
        for index, (english, german) in enumerate(sentence_pairs(split)):
            yield index, {"en": english, "de": german}
