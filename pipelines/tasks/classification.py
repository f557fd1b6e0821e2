"""Classification: labelled text, learned pieces, accuracy."""

import keras

from pipelines.tasks.text import TextTask, import_dataset
from t2t_keras.data.labelled_text import (
    LabelEncoder,
    LabelledBuckets,
    LabelledFolder,
    LabelledTFDS,
    text_lines,
)
from t2t_keras.data.shard_writing import Filters
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.evaluation.text import label_scores
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.config import TransformerConfig
from t2t_keras.tasks.classification import Classifier

_HEAD = ("pooling", "head_dropout", "word_dropout")
"""The fields of config.model that the classifier has beside those of the encoder."""


class Task(TextTask):
    """Classification as the binaries see it; the methods are those of `translation.Task`."""

    metric = "accuracy"
    likelihood = "cross_entropy"
    monitor = ("validation_accuracy", "max")

    def __init__(self, config):
        self._config = config
        self._labels = LabelEncoder([name.strip() for name in config.data.labels.split(",")])

    def check(self):
        super().check()
        self.make_corpus()
        self.make_model()

    def model_config(self):
        return TransformerConfig(**{k: v for k, v in self._config.model.items() if k not in _HEAD})

    def make_model(self):
        head = {name: self._config.model[name] for name in _HEAD}
        return TransformerClassifier(self.model_config(), len(self._labels.names), **head)

    def make_metrics(self):
        return [
            keras.metrics.SparseCategoricalAccuracy("accuracy"),
            keras.metrics.SparseCategoricalCrossentropy("cross_entropy", from_logits=True),
        ]

    def make_filters(self):
        return Filters()  # longer texts are not dropped but cut

    def target_tokenizer(self, tokenizer):
        del tokenizer
        return self._labels

    def make_batcher(self, replicas):
        data = self._config.data
        return LabelledBuckets(data.tokens_per_batch, data.max_length, batch_multiple=replicas)

    def make_corpus(self):
        data = self._config.data
        if data.folder:
            return LabelledFolder(data.folder, self._labels)
        import_dataset(data.get("tfds_import"))
        return LabelledTFDS(
            data.tfds,
            self._labels,
            data.text_feature,
            data.label_feature,
            data_dir=data.tfds_data_dir or None,
        )

    def train_tokenizer(self, corpus):
        data = self._config.data
        texts = (pair["source"] for pair in corpus.examples(data.train_split).as_numpy_iterator())
        return train_tokenizer(data.tokenizer, texts, self._config.model.vocab_size)

    def make_predictor(self, model, tokenizer):
        settings = {"max_source_length": self._config.data.max_length} | dict(self._config.decode)
        for name in settings.keys() - {"max_source_length"}:
            raise InputError(f"--{name} is for tasks that search: leave it out.")
        return Classifier(model, tokenizer, self._labels.names, **settings)

    def questions_of_files(self, source, reference):
        if not (source and reference):
            raise InputError("give texts as --source and their labels as --reference.")
        texts, labels = text_lines(source), text_lines(reference)
        if len(texts) != len(labels):
            raise InputError(
                f"{source} has {len(texts)} lines and {reference} has {len(labels)}; line n of one "
                "must be the label of line n of the other"
            )
        for number, label in enumerate(labels, start=1):
            self._labels.check(label, f"{reference} line {number}")
        return texts, labels

    def score(self, outputs, references, **_):
        return label_scores(outputs, references, self._labels.names)
