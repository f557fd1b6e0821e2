"""The tasks of the commands: translation, parsing, classification, language models.

`TASKS` is the table of `config.task`. A task has the methods of `TranslationTask`, some of them
inherited from `Task`, `TextTask` and `SequenceTask` in `base_tasks.py`. A new task is another class
and its entry in `TASKS`.
"""

import dataclasses
import itertools
import math
import os

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from pipelines.base_tasks import (
    SequenceTask,
    TextTask,
    batch_parts,
    examples_of,
    import_dataset,
    make_tokenizer,
    require_corpus,
    tokens_per_batch,
)
from pipelines.directions import DirectedCorpora, directions_of, text_pairs
from pipelines.fields import HEAD, task_name
from t2t_keras.data.base_tokenizer import is_blank
from t2t_keras.data.corpora import FolderCorpus, TFDSCorpus, aligned_files
from t2t_keras.data.files import local_path, nfc, read_lines, split_names
from t2t_keras.data.labeled_text import (
    LabeledBuckets,
    LabeledFolder,
    LabeledTFDS,
    LabelEncoder,
    text_lines,
)
from t2t_keras.data.placeholders import MarkedCorpus, MarkedTokenizer
from t2t_keras.data.plain_text import (
    NoTarget,
    TextBuckets,
    TextFilters,
    TextFolder,
    TextPacking,
    TextStream,
    TextTFDS,
    encode_texts,
)
from t2t_keras.data.shard_writing import Filters
from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.data.treebank import (
    TrainingTrees,
    TreeAugmentation,
    TreebankCorpus,
    normalize_tree,
    read_treebank,
)
from t2t_keras.errors import InputError, MissingTextError
from t2t_keras.evaluation.perplexity import perplexities
from t2t_keras.evaluation.text import bleu_tokenizer, corpus_scores, label_scores
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.language_model import TransformerLM
from t2t_keras.tasks.abbreviations import ABBREVIATIONS
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.generation import TextGenerator
from t2t_keras.tasks.parsing import Parser, score_parses
from t2t_keras.tasks.translation import Translator


class TranslationTask(TextTask, SequenceTask):
    """Translation, in one direction or in several."""

    metric = "bleu"
    predictor = Translator

    def check(self):
        super().check()
        data = self.config.data
        if not data.corpora:
            self._languages()
        if data.corpora and data.folder:
            raise InputError(
                f"data.folder is {data.folder!r}, and data.corpora is also given: give one of them."
            )

    def make_corpus(self):
        """Returns the corpus that config.data names: `examples(split)` gives its texts.

        For several corpora it is `DirectedCorpora`, which takes parts of a split, see `parts_of`.
        """
        data, directions = self.config.data, directions_of(self.config)
        if directions:
            return DirectedCorpora(
                {d.name: self.corpus_at(d.place, d.source, d.target) for d in directions}
            )
        require_corpus(data)
        if data.folder:
            return FolderCorpus(data.folder, *self._languages(), data.errors)
        import_dataset(data.tfds_import)
        return TFDSCorpus(data.tfds, *self._languages(), data_dir=data.tfds_data_dir or None)

    def _languages(self):
        """Returns the languages of the config's only corpus, source first."""
        data = self.config.data
        if not (data.source_language and data.target_language):
            raise InputError(
                "the config names no languages, as of a pretrained model: train with "
                "--config.data.source_language=… and --config.data.target_language=…, the endings "
                "of the files; evaluate takes --source and --reference."
            )
        return data.source_language, data.target_language

    def has_split(self, split):
        data = self.config.data
        # The folder of `evaluate`, whose languages are flags.
        if data.folder and (data.corpora or not data.source_language):
            return bool(split_names(local_path(data.folder), split))
        return super().has_split(split)

    def corpus_at(self, place, source, target):
        """Returns the corpus of a folder, or otherwise of a TFDS dataset, for two languages."""
        data = self.config.data
        import_dataset(data.tfds_import)
        if os.path.isdir(os.path.expanduser(place)):
            return FolderCorpus(place, source, target, data.errors)
        try:
            return TFDSCorpus(place, source, target, data_dir=data.tfds_data_dir or None)
        except InputError as error:
            raise type(error)(
                f"{place!r} is neither a folder nor a dataset with {source} and {target}: {error}"
            ) from error

    def direction_examples(self, split, direction, limit=None):
        """Returns the inputs and references of a split in the languages of a `Direction`.

        They come from data.folder, from the direction's place unless it is empty, or from the run's
        first place with both languages.
        """
        data = self.config.data
        places = [data.folder or direction.place]
        if not places[0]:
            require_corpus(data)
            places = dict.fromkeys(d.place for d in directions_of(self.config)) or [data.tfds]
        for place in places:
            try:
                corpus = self.corpus_at(place, direction.source, direction.target)
                return examples_of(corpus.examples(split), limit, data.errors)
            except MissingTextError as error:  # of one of the languages
                reason = error
        raise InputError(
            f"{reason}; for {direction.name} give --config.data.folder, or --source and --reference"
        )

    def training_corpus(self, corpus, tokenizer):
        if isinstance(corpus, DirectedCorpora):
            return corpus.map(lambda each: self.training_corpus(each, tokenizer))
        corpus, data = super().training_corpus(corpus, tokenizer), self.config.data
        if not data.placeholders:
            return corpus
        drawn = data.placeholders, data.placeholder_fraction, self.config.train.seed
        return MarkedCorpus(corpus, data.train_split, *drawn)

    def training_tokenizer(self, tokenizer):
        training, wanted = super().training_tokenizer(tokenizer), self.config.data.placeholders
        if not wanted:
            return training
        known = len(getattr(tokenizer, "placeholder_ids", ()))
        if wanted > known:
            raise InputError(
                f"data.placeholders is {wanted}, and the vocabulary of the run has "
                f"{known or 'none'}: give {known}, or a new --workdir."
            )
        return MarkedTokenizer(training, tokenizer.placeholder_ids)

    def train_tokenizer(self, corpus):
        data = self.config.data
        if directions_of(self.config):
            lines = corpus.sampled_lines(data.train_split, data.sampling_temperature)
        else:
            lines = itertools.chain.from_iterable(text_pairs(corpus.examples(data.train_split)))
        return self._make_tokenizer(lines)

    def _make_tokenizer(self, lines):
        data, size = self.config.data, self.config.model.vocab_size
        languages = {code for d in directions_of(self.config) for code in (d.source, d.target)}
        return make_tokenizer(data.tokenizer, lines, size, languages, data.placeholders)

    def make_predictor(self, model, tokenizer):
        language = self.config.data.source_language
        is_known = language in ABBREVIATIONS and tokenizer.languages is None
        language = language if is_known else ""
        return Translator(model, tokenizer, text_language=language, **self.config.decode)

    def examples_of_files(self, source, reference):
        """Returns inputs and references of two files; raises InputError if only one is named."""
        if not (source and reference):
            raise InputError("give both --source and --reference, or neither.")
        errors = self.config.data.errors
        return examples_of(aligned_files(source, reference, errors), errors=errors)

    def bleu_tokenizer(self, target_language=None):
        """Returns sacreBLEU's tokenizer for a target language, by default the config's."""
        return bleu_tokenizer(target_language or self.config.data.target_language)

    def score(self, outputs, references, **tokenization):
        """Returns the scores of outputs, a JSON-able dict.

        The references are a list, as `evaluation_examples` gives them, or a list of such lists;
        `tokenize`, by default that of the target language, and `lowercase` are for `corpus_scores`.
        """
        tokenization = {"tokenize": self.bleu_tokenizer()} | tokenization
        scores = corpus_scores(outputs, references, **tokenization)
        sets = [references] if isinstance(references[0], str) else references
        rows = zip(outputs, zip(*sets, strict=True), strict=True)
        exact = sum(nfc(output) in map(nfc, right) for output, right in rows)
        return dataclasses.asdict(scores) | {"exact": exact / len(outputs)}


class ParsingTask(SequenceTask):
    """Parsing for the commands; methods as in `TranslationTask`."""

    metric = "f1"
    predictor = Parser

    def make_corpus(self):
        data = self.config.data
        require_corpus(data)
        return TreebankCorpus(data.folder, data.tags, data.echo)

    def train_tokenizer(self, corpus):
        trees, data = self._training_trees(corpus) + self._parsed_trees(), self.config.data
        return TreeTokenizer.train(trees, self.config.model.vocab_size, data.tags, data.echo)

    def training_corpus(self, corpus, tokenizer):
        data = self.config.data
        trees, parsed = (
            [normalize_tree(tree, data.tags) for tree in trees]
            for trees in (self._training_trees(corpus), self._parsed_trees())
        )
        augmentation = TreeAugmentation(trees, tokenizer, data.exchange, data.word_dropout_alpha)
        return TrainingTrees(
            corpus, data.train_split, augmentation, data.copies, self.config.train.seed, parsed
        )

    def _training_trees(self, corpus):
        share = self.config.data.train_share
        trees = corpus.trees(self.config.data.train_split)
        count = round(share * len(trees))
        if not count:
            raise InputError(
                f"data.train_share is {share}, which leaves none of the {len(trees)} trees: give "
                f"at least {1 / len(trees):.2g}."
            )
        return [trees[int(index / share)] for index in range(count)]

    def _parsed_trees(self):
        path = self.config.data.parsed_trees
        return read_treebank(path) if path else []

    def evaluation_examples(self, split, limit=None):
        return _words_and_trees(self.make_corpus().trees(split, keep_empty=True)[:limit])

    def examples_of_files(self, source, reference):
        if source or not reference:
            raise InputError("give the trees as --reference; the sentences are their words.")
        return _words_and_trees(read_treebank(reference, keep_empty=True))

    def score(self, outputs, references, parameters=None, **_):
        return score_parses(outputs, references, parameters)


def _words_and_trees(trees):
    return [" ".join(tree.words()) for tree in trees], trees


class ClassificationTask(TextTask):
    """Classification for the commands; methods as in `TranslationTask`."""

    metric = "accuracy"
    predictor = Classifier
    likelihood = "cross_entropy"
    monitor = ("validation_accuracy", "max")

    def __init__(self, config):
        super().__init__(config)
        self._labels = LabelEncoder([name.strip() for name in config.data.labels.split(",")])

    def check(self):
        super().check()
        self.make_corpus()
        self.make_model()

    def model_config(self):
        model = self.config.model.items()
        return TransformerConfig.of({name: value for name, value in model if name not in HEAD})

    def make_model(self):
        head = {name: self.config.model[name] for name in HEAD}
        return TransformerClassifier(self.model_config(), len(self._labels.names), **head)

    def make_metrics(self):
        return [
            keras.metrics.SparseCategoricalAccuracy("accuracy"),
            keras.metrics.SparseCategoricalCrossentropy("cross_entropy", from_logits=True),
        ]

    def make_filters(self):
        return Filters()  # longer texts are truncated, not dropped

    def target_tokenizer(self, tokenizer):
        return self._labels

    def buckets(self, tokens, **shapes):
        return LabeledBuckets(tokens, self.config.data.max_length, **shapes)

    def make_corpus(self):
        data = self.config.data
        if data.folder:
            return LabeledFolder(data.folder, self._labels, data.errors)
        import_dataset(data.tfds_import)
        return LabeledTFDS(
            data.tfds,
            self._labels,
            data.text_feature,
            data.label_feature,
            data_dir=data.tfds_data_dir or None,
        )

    def make_predictor(self, model, tokenizer):
        settings = {"max_source_length": self.config.data.max_length} | dict(self.config.decode)
        return Classifier(model, tokenizer, self._labels.names, **settings)

    def examples_of_files(self, source, reference):
        if not (source and reference):
            raise InputError("give texts as --source and their labels as --reference.")
        texts, labels = (text_lines(path, self.config.data.errors) for path in (source, reference))
        if len(texts) != len(labels):
            raise InputError(
                f"{source} has {len(texts)} lines and {reference} has {len(labels)}: give one "
                "label for each line of text, in the same order."
            )
        for number, label in enumerate(labels, start=1):
            self._labels.check(label, f"{reference} line {number}")
        return texts, labels

    def score(self, outputs, references, **_):
        return label_scores(outputs, references, self._labels.names)


class LanguageModelTask(TextTask, SequenceTask):
    """Language models for the commands; methods as in `TranslationTask`."""

    metric = "perplexity"
    predictor = TextGenerator
    buckets, packing = TextBuckets, TextPacking

    def check(self):
        super().check()
        self.make_corpus()

    def make_model(self):
        return TransformerLM(self.model_config())

    def make_filters(self):
        data = self.config.data
        return TextFilters(data.max_length if data.rows == "lines" else None)  # a stream is cut

    def target_tokenizer(self, tokenizer):
        return NoTarget()

    def make_batcher(self, replicas):
        if self.config.data.rows == "lines":
            return super().make_batcher(replicas)
        tokens, parts = tokens_per_batch(self.config, replicas), batch_parts(self.config, replicas)
        return self._stream(tokens, batch_multiple=parts)

    def _stream(self, tokens, **options):
        data = self.config.data
        across = data.rows == "stream" and data.across_texts
        return TextStream(tokens, data.max_length, across_texts=across, **options)

    def make_corpus(self):
        data = self.config.data
        require_corpus(data)
        if data.folder:
            return TextFolder(data.folder, data.language, data.errors)
        import_dataset(data.tfds_import)
        return TextTFDS(data.tfds, data.text_feature, data.tfds_data_dir or None)

    def make_predictor(self, model, tokenizer):
        settings = {"max_source_length": self.config.data.max_length} | dict(self.config.decode)
        return TextGenerator(model, tokenizer, **settings)

    def evaluation_examples(self, split, limit=None):
        return _kept_texts(super().evaluation_examples(split, limit)[0], f"split {split!r}")

    def examples_of_files(self, source, reference):
        if source or not reference:
            raise InputError("give the texts as --reference, without --source.")
        lines = read_lines(reference, self.config.data.errors)
        return _kept_texts([line.decode() for line in lines] or [""], reference)

    def outputs(self, predictor, inputs, answer, stride=None):
        """Returns (log P, tokens) of each text; of a stream, or with a stride, of each row."""
        data = self.config.data
        if data.rows == "lines" and stride is None:
            return answer(lambda texts: list(zip(*predictor.score(texts), strict=True)), inputs)
        batcher = self._stream(data.max_length, stride=stride)
        batches = batcher(encode_texts(inputs, predictor.tokenizer))
        rows = list(batches.unbatch().as_numpy_iterator())

        def score(rows):
            batch = tf.nest.map_structure(lambda *column: np.stack(column), *rows)
            return list(zip(*predictor.score_rows(*batch), strict=True))

        return answer(score, rows)

    def score(self, outputs, references, **_):
        scores = dataclasses.asdict(perplexities(references, *zip(*outputs, strict=True)))
        # JSON has no infinity, such as the perplexity by word of a text without spaces.
        return {name: x if math.isfinite(x) else None for name, x in scores.items()}


def _kept_texts(texts, place):
    """Returns the texts that are not blank, twice; training leaves blank ones out as well."""
    blank = is_blank(texts).numpy() if texts else ()
    kept = [text for text, is_empty in zip(texts, blank, strict=True) if not is_empty]
    if texts and not kept:
        raise InputError(f"{place} has no text: give at least one line with a word.")
    if len(kept) < len(texts):
        logging.warning("%d blank texts are left out", len(texts) - len(kept))
    return kept, kept


TASKS = {
    "translation": TranslationTask,
    "parsing": ParsingTask,
    "classification": ClassificationTask,
    "language_model": LanguageModelTask,
}


def make_task(config):
    """Returns the task that config.task names; InputError if the name is unknown."""
    return TASKS[task_name(config)](config)
