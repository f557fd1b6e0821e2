"""Classification: strings in, labels with probabilities out, all in one graph.

Start with `Classifier`.
"""

import dataclasses
import functools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from t2t_keras.data.texts import as_strings
from t2t_keras.errors import InputError
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.settings import COUNT, Range, Settings, documented, setting
from t2t_keras.tasks.bundles import Predictor
from t2t_keras.tasks.requests import TEXT, RequestKind, ranked
from t2t_keras.tasks.text_io import Reader, as_str, as_tensor, warn_truncated
from t2t_keras.types import Texts


class Classification(NamedTuple):
    """One class of one text."""

    label: str
    probability: float


class Probabilities(NamedTuple):
    """The class probabilities of a batch of texts, as tensors."""

    probabilities: tf.Tensor  # float32 [batch, classes], as the labels; each row sums to 1
    truncated: tf.Tensor  # bool [batch], whether the text was longer than the classifier's limit


class Ranking(NamedTuple):
    """All classes of each text of a batch, most likely first, as tensors."""

    labels: tf.Tensor  # string [batch, classes]
    probabilities: tf.Tensor  # float32 [batch, classes], descending; each row sums to 1
    truncated: tf.Tensor  # bool [batch], as in `Probabilities`


class _Names:
    """Allowed labels: names, such as a list of str."""

    def __str__(self):
        return "a list of str"

    def check(self, name, value):
        """Returns the names as a tuple; raises InputError if they are not a sequence of strings."""
        return tuple(as_strings(value, name))


@dataclasses.dataclass(frozen=True)
class ClassifierSettings(Settings):
    """The settings of a `Classifier`."""

    labels: tuple = setting(
        dataclasses.MISSING,
        _Names(),
        "List of str, the names of the model's classes in the order of its logits.",
    )
    max_source_length: int = setting(
        512,
        COUNT,
        "Maximum tokens of a text, including its end; the rest is dropped.",
    )


def _best(classifier, text):
    result = classifier.classify(text)
    return {"label": classifier.best(result.probabilities), **result._asdict()}


def _n_best(classifier, text):
    return classifier.rank(text)._asdict()


_ALL = RequestKind(_n_best, (TEXT,), (), "labels", "probabilities")
REQUESTS = {
    "serving_default": RequestKind(_best, (TEXT,), (), "label", "probabilities", ranking=_ALL),
    "n_best": ranked(_ALL),
}
"""{name: `RequestKind`}, those of `Classifier.requests`."""


@functools.partial(documented, settings=ClassifierSettings)
class Classifier(Predictor):
    """Classifies text with a model and a tokenizer.

    A text is encoded as its tokens and the end token. The Python methods run the same graph that is
    exported; `texts` are in the forms of `data.texts.as_list`. `encode` makes training data; for
    this, construct the classifier before training.

    Args:
        model: `TransformerClassifier`.
        tokenizer: `Tokenizer`.
        labels, **settings: see below. They are also attributes. Like the model they may be
            replaced; the next call then traces new graphs.

    Raises:
        InputError: if there is not one label for each class, max_source_length is below 1, or the
            vocabulary sizes of model and tokenizer differ. In a call: if texts is a single string,
            or an element is not a string.

    Example:
        >>> texts, labels = ["a fine film", "a dull film"] * 20, np.array([1, 0] * 20)
        >>> tokenizer = t2t.train_tokenizer("wordpiece", texts, vocab_size=280)
        >>> config = t2t.TransformerConfig.tiny(tokenizer.vocab_size, num_encoder_layers=1)
        >>> model = t2t.TransformerClassifier(config, classes=2)
        >>> classifier = t2t.Classifier(model, tokenizer, ["neg", "pos"])
        >>> loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        >>> model.compile(keras.optimizers.Adam(1e-3), loss)
        >>> history = model.fit(classifier.encode(texts), labels, epochs=20, verbose=0)
        >>> classifier(["a fine film", "a dull film"])
        ['pos', 'neg']
        >>> [[best]] = classifier.n_best(["a fine film"], 1)
        >>> best.label, best.probability > 0.9
        ('pos', True)
    """

    task = "classification"
    settings_type = ClassifierSettings
    requests = REQUESTS
    model_type = TransformerClassifier
    model_attributes = ("classes", "max_length")

    def check(self):
        super().check()
        labels, classes = self.settings.labels, self.model.classes
        if len(labels) != classes or len(set(labels)) != classes:
            raise InputError(
                f"labels are {list(labels)}: give {classes} different ones, one for each class of "
                "the model."
            )

    @property
    def sources(self):
        """The `Reader` of texts."""
        longest = self.settings.max_source_length
        return Reader(self.tokenizer, min(longest, self.model.max_length or longest))

    def __call__(self, texts: Texts) -> list[str]:
        """Returns the most likely label of each text."""
        return [best.label for (best,) in self.n_best(texts, 1)]

    def n_best(self, texts: Texts, n: int | None = None) -> list[list[Classification]]:
        """Returns the n most likely classes of each text, most likely first; n: None for all.

        Raises:
            InputError: if n is out of range, or as in a call.
        """
        n = self.check_n(n)
        ranking = Ranking(**self.run("n_best", text=as_tensor(texts)))
        warn_truncated(ranking.truncated)
        return [
            [Classification(as_str(label), float(p)) for label, p in zip(*row, strict=True)]
            for row in zip(
                ranking.labels[:, :n].numpy(), ranking.probabilities[:, :n].numpy(), strict=True
            )
        ]

    def check_n(self, n: int | None) -> int:
        """Returns n, or the number of classes for None; raises InputError if n is out of range."""
        count = len(self.settings.labels)
        n = count if n is None else n
        classes = "the number of classes"
        return Range(1, count, whole=True, most_name=classes).check("n", n)

    def probabilities(self, texts: Texts) -> np.ndarray:
        """Returns the probabilities of the labels, in their order, float32 [texts, classes]."""
        outputs = self.run("serving_default", text=as_tensor(texts))
        warn_truncated(outputs["truncated"])
        return outputs["probabilities"].numpy()

    def encode(self, texts: Texts) -> tf.Tensor:
        """Returns the ids of texts, as in a call or string [batch]: int32 [batch, length]."""
        return self.sources.encode(texts).ids

    def classify(self, texts: tf.Tensor) -> Probabilities:
        """Returns the `Probabilities` of texts string [batch], inside a graph."""
        sources = self.sources.encode(texts)
        logits = self.model({"source_ids": sources.ids}, training=False)
        return Probabilities(tf.nn.softmax(tf.cast(logits, tf.float32)), sources.truncated)

    def best(self, probabilities: tf.Tensor) -> tf.Tensor:
        """Returns the most likely labels, string [batch], of probabilities [batch, classes]."""
        return tf.gather(tf.constant(self.settings.labels), tf.argmax(probabilities, axis=1))

    def saved_call(self, text: tf.Tensor) -> dict:
        return self.rank(text)._asdict()

    def rank(self, texts: tf.Tensor) -> Ranking:
        """Returns the `Ranking` of texts string [batch], inside a graph."""
        result = self.classify(texts)
        names = self.settings.labels
        probabilities, indices = tf.math.top_k(result.probabilities, len(names))
        labels = tf.gather(tf.constant(names), indices)
        return Ranking(labels, probabilities, result.truncated)
