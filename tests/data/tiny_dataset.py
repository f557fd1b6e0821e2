"""A dataset of TFDS, whose pairs have labels in one split."""

import tensorflow_datasets as tfds

PAIRS = [("a house", "ein Haus"), ("a street", "eine Straße")]
IN_ORDER = False  # whether TFDS keeps the order of the examples


class TinyPairs(tfds.core.GeneratorBasedBuilder):
    """Two pairs a split; those of the second have no label, as in imdb_reviews."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self):
        text, label = tfds.features.Text(), tfds.features.ClassLabel(names=["neg", "pos"])
        features = tfds.features.FeaturesDict({"en": text, "de": text, "label": label})
        return tfds.core.DatasetInfo(builder=self, features=features, disable_shuffling=IN_ORDER)

    def _split_generators(self, _):
        return {"train": self._generate_examples(0), "unsupervised": self._generate_examples(-1)}

    def _generate_examples(self, label):
        for key, (english, german) in enumerate(PAIRS):
            yield key, {"en": english, "de": german, "label": label}
