"""The tasks of the commands: translation, parsing, classification.

`TASKS` is the table of `config.task`. A task has the methods of `TranslationTask`, some of them
inherited from `Task`, `TextTask` and `SequenceTask`. A new task is another class and its entry in
`TASKS`.
"""

import dataclasses
import importlib
import itertools
import os

import keras
import numpy as np

from pipelines.directions import DirectedCorpora, directions_of, text_pairs
from pipelines.fields import HEAD, task_name
from t2t_keras.data.batching import LengthBuckets, Packing
from t2t_keras.data.bpe_dropout import BpeDropout, RepeatedCorpus, check_bpe_dropout
from t2t_keras.data.bucket_shapes import bucket_lengths, bucket_shapes
from t2t_keras.data.corpora import FolderCorpus, TFDSCorpus, aligned_files
from t2t_keras.data.files import decode, nfc
from t2t_keras.data.labeled_text import (
    LabeledBuckets,
    LabeledFolder,
    LabeledTFDS,
    LabelEncoder,
    text_lines,
)
from t2t_keras.data.placeholders import MarkedCorpus, MarkedTokenizer
from t2t_keras.data.shard_writing import Filters
from t2t_keras.data.tokenizers import (
    TRAINABLE,
    load_tokenizer,
    read_sentencepiece,
    train_tokenizer,
)
from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.data.treebank import (
    TrainingTrees,
    TreeAugmentation,
    TreebankCorpus,
    normalize_tree,
    read_treebank,
)
from t2t_keras.errors import InputError, MissingTextError
from t2t_keras.evaluation.text import bleu_tokenizer, corpus_scores, label_scores
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.compiled_steps import is_default
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.abbreviations import ABBREVIATIONS
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.parsing import Parser, score_parses
from t2t_keras.tasks.translation import Translator
from t2t_keras.training.metrics import Perplexity, TokenAccuracy


def tokens_per_batch(config, replicas=1):
    """Returns the tokens of a global batch; the config gives them, or the tokens of one replica.

    Raises:
        InputError: if the config gives both or none.
    """
    total, each = config.data.tokens_per_batch, config.data.get("tokens_per_replica", 0)
    if bool(total) == bool(each):
        raise InputError(
            f"data.tokens_per_batch is {total} and data.tokens_per_replica is {each}: give one of "
            "them, and 0 for the other."
        )
    return total or each * replicas


def takes_xla(config, replicas):
    """Whether XLA compiles the steps of a config, so that its batches need few shapes."""
    return is_default(replicas) if config.train.xla == "auto" else config.train.xla


def _shapes(config, replicas, lengths):
    """Returns the arguments of `LengthBuckets` that decide the shapes of batches."""
    if not takes_xla(config, replicas):
        return {"batch_multiple": replicas}
    longest = config.data.max_length
    if lengths is None:
        shapes = bucket_lengths(longest)
    else:
        shapes = bucket_shapes(np.minimum(lengths, longest), longest)
    return {"batch_multiple": _parts(config, replicas), "bucket_lengths": shapes}


def _parts(config, replicas):
    """Returns the number of parts of a global batch: the micro-batches of all replicas."""
    return replicas * config.train.micro_batches


class Task:
    """A task, as the binaries use it.

    Args:
        config: the experiment's config, which is also an attribute.

    Attributes:
        metric: str, the key of `score` that validations watch.
        predictor: class of the task's `Predictor`, whose settings are the fields of config.decode.
        likelihood: name of the metric of the targets' likelihood; lower is better.
        monitor: (name, "min" or "max"), the scalar that decides which validation is best.
        lengths: int [pairs, 2], tokens of training pairs, for which XLA's batches get their shapes;
            None before the corpus is tokenized.
    """

    lengths = None

    def __init__(self, config):
        self.config = config

    def check(self):
        """Raises InputError for invalid settings, before any work is done."""
        self.make_corpus()

    def load_tokenizer(self, directory):
        """Returns the tokenizer that was saved in a folder."""
        return load_tokenizer(directory)

    def training_tokenizer(self, tokenizer):
        """Returns the tokenizer of the training split: `tokenizer`, or one that samples."""
        return tokenizer


class SequenceTask(Task):
    """A task with a `Transformer`: sources and targets are sequences over one vocabulary."""

    likelihood = "perplexity"
    monitor = ("validation_perplexity", "min")

    def model_config(self):
        """Returns the `TransformerConfig` of config.model."""
        return TransformerConfig(**self.config.model)

    def make_model(self):
        """Returns the model with new weights."""
        return Transformer(self.model_config())

    def make_metrics(self):
        """Returns the metrics of training, a list."""
        return [Perplexity(), TokenAccuracy()]

    def make_filters(self):
        """Returns the `Filters` of the training text."""
        data = self.config.data
        return Filters(data.max_length, data.max_length_ratio)

    def target_tokenizer(self, tokenizer):
        """Returns the encoder of targets: the `tokenizer` of the sources if targets are text."""
        return getattr(tokenizer, "target", tokenizer)

    def make_batcher(self, replicas):
        """Returns the `Batcher` that config.data.batching names, for a number of replicas."""
        data, tokens = self.config.data, tokens_per_batch(self.config, replicas)
        batching, parts = data.batching, _parts(self.config, replicas)
        if batching == "auto":
            pack = takes_xla(self.config, replicas) and tokens >= parts * data.max_length
            batching = "packed" if pack else "buckets"
        if batching == "packed":
            return Packing(tokens, data.max_length, parts)
        return LengthBuckets(tokens, **_shapes(self.config, replicas, self.lengths))


def make_tokenizer(kind, lines, vocab_size, languages=(), placeholders=0):
    """Returns the tokenizer of a run: one learned from lines, or that of a SentencePiece model.

    Args:
        kind: a kind of `train_tokenizer`, or the path of a `.model` file.
        lines, vocab_size, languages, placeholders: as for `train_tokenizer`.

    Raises:
        InputError: if vocab_size is not that of the file, or as `train_tokenizer` and
            `read_sentencepiece`.
    """
    if kind in TRAINABLE:
        return train_tokenizer(kind, lines, vocab_size, languages, placeholders)
    if not os.path.exists(os.path.expanduser(kind)):
        raise InputError(
            f"data.tokenizer is {kind!r}: give {', '.join(TRAINABLE)} or the path of a "
            "SentencePiece model; there is no such file."
        )
    tokenizer = read_sentencepiece(kind, languages, placeholders)
    if tokenizer.vocab_size != vocab_size:
        raise InputError(
            f"model.vocab_size is {vocab_size}, and {kind} has {tokenizer.vocab_size} ids, special "
            f"tokens included: give --config.model.vocab_size={tokenizer.vocab_size}."
        )
    return tokenizer


class TextTask(Task):
    """A task whose corpus gives `{"source": text, "target": text}`, in a learned vocabulary."""

    def check(self):
        data = self.config.data
        require_corpus(data)
        if data.bpe_dropout and data.tokenizer in TRAINABLE:  # a file's is checked when it is read
            check_bpe_dropout(data.tokenizer, data.bpe_dropout)

    def training_corpus(self, corpus, tokenizer):
        """Returns the corpus to train on: the given one, or copies of it for BPE-dropout."""
        del tokenizer
        data = self.config.data
        if data.subword_copies == 1:
            return corpus
        return RepeatedCorpus(corpus, data.train_split, data.subword_copies)

    def training_tokenizer(self, tokenizer):
        rate = self.config.data.bpe_dropout
        return BpeDropout(tokenizer, rate, self.config.train.seed) if rate else tokenizer

    def evaluation_examples(self, split, limit=None):
        """Returns the inputs and references of a split.

        Args:
            split: its name.
            limit: int, maximum number of examples; None for all.

        Returns:
            List of inputs, str, and list of references, as `score` takes them.
        """
        return examples_of(self.make_corpus().examples(split), limit, self.config.data.errors)


def require_corpus(data):
    """Raises InputError if config.data names no corpus."""
    if data.folder or data.get("tfds") or data.get("corpora"):
        return
    other = " or --config.data.tfds=NAME of TensorFlow Datasets" if "tfds" in data else ""
    raise InputError(
        f"data.folder is empty: give --config.data.folder=FOLDER{other}; the file of the config "
        "says what the folder holds. evaluate and visualize take --source and --reference instead."
    )


def import_dataset(module):
    """Imports the module that registers a TFDS dataset; an empty name imports none.

    Raises:
        InputError: if there is no such module.
    """
    if not module:
        return
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"data.tfds_import is {module!r}, which cannot be imported ({error}): give a module "
            "that registers the dataset of data.tfds, or leave it empty for one of TFDS's own."
        ) from error


def examples_of(examples, limit=None, errors="strict"):
    """Returns the sources and the targets of a dataset of texts, two lists of str.

    Raises:
        InputError: for a text that is not UTF-8, unless errors is "replace".
    """
    examples = list(examples.take(-1 if limit is None else limit).as_numpy_iterator())
    return tuple(
        [decode(row[side], f"{side} {n}", errors) for n, row in enumerate(examples, start=1)]
        for side in ("source", "target")
    )


class TranslationTask(TextTask, SequenceTask):
    """Translation, in one direction or in several."""

    metric = "bleu"
    predictor = Translator

    def check(self):
        super().check()
        data = self.config.data
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
        languages = data.source_language, data.target_language
        if data.folder:
            return FolderCorpus(data.folder, *languages, data.errors)
        import_dataset(data.tfds_import)
        return TFDSCorpus(data.tfds, *languages, data_dir=data.tfds_data_dir or None)

    def corpus_at(self, place, source, target):
        """Returns the corpus of a folder, or otherwise of a TFDS dataset, for two languages.

        Raises:
            InputError: if the place is neither, or the dataset lacks a language.
        """
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

        They come from data.folder, from the direction's place, or from the run's first place with
        both languages.

        Args:
            split: its name.
            direction: `Direction`; its place may be empty.
            limit: int, maximum number of examples; None for all.

        Raises:
            InputError: if there is no text in both languages.
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
        """Returns the tokenizer of a corpus."""
        data, directions = self.config.data, directions_of(self.config)
        if directions:
            lines = corpus.sampled_lines(data.train_split, data.sampling_temperature)
        else:
            lines = itertools.chain.from_iterable(text_pairs(corpus.examples(data.train_split)))
        languages = {code for d in directions for code in (d.source, d.target)}
        size = self.config.model.vocab_size
        return make_tokenizer(data.tokenizer, lines, size, languages, data.placeholders)

    def make_predictor(self, model, tokenizer):
        """Returns the task's predictor, which maps a list of str to a list of str."""
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

        Args:
            outputs: list of str.
            references: list, as `evaluation_examples` gives them, or a list of such lists.
            **tokenization: `tokenize` and `lowercase` of `corpus_scores`; by default the tokenizer
                of the target language.
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

    def make_predictor(self, model, tokenizer):
        return Parser(model, tokenizer, **self.config.decode)

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
        return TransformerConfig(**{name: value for name, value in model if name not in HEAD})

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
        del tokenizer
        return self._labels

    def make_batcher(self, replicas):
        tokens, longest = tokens_per_batch(self.config, replicas), self.config.data.max_length
        shapes = _shapes(self.config, replicas, self.lengths)
        return LabeledBuckets(tokens, longest, **shapes)

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

    def train_tokenizer(self, corpus):
        data = self.config.data
        texts = (text for text, _ in text_pairs(corpus.examples(data.train_split)))
        return make_tokenizer(data.tokenizer, texts, self.config.model.vocab_size)

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


TASKS = {
    "translation": TranslationTask,
    "parsing": ParsingTask,
    "classification": ClassificationTask,
}


def make_task(config):
    """Returns the task that config.task names.

    Raises:
        InputError: if the name is unknown.
    """
    return TASKS[task_name(config)](config)
