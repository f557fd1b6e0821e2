"""What the tasks of the commands have in common: settings of batches, vocabularies, corpora.

`tasks.py` has the tasks.
"""

import functools
import importlib
import os

import numpy as np

from pipelines.directions import parts_of, text_pairs
from t2t_keras.data.batching import LengthBuckets, Packing
from t2t_keras.data.bpe_dropout import BpeDropout, RepeatedCorpus, check_bpe_dropout
from t2t_keras.data.bucket_shapes import bucket_lengths, bucket_shapes
from t2t_keras.data.files import decode
from t2t_keras.data.shard_writing import Filters
from t2t_keras.data.tokenizers import (
    TRAINABLE,
    load_tokenizer,
    read_sentencepiece,
    train_tokenizer,
)
from t2t_keras.errors import InputError
from t2t_keras.models.compiled_steps import is_default
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.training.metrics import Perplexity, TokenAccuracy


def tokens_per_batch(config, replicas=1):
    """Returns the tokens of a global batch; the config gives them, or the tokens of one replica."""
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


def batch_parts(config, replicas):
    """Returns the number of parts of a global batch: the micro-batches of all replicas."""
    return replicas * config.train.micro_batches


class Task:
    """A task, as the binaries use it.

    Attributes:
        metric: str, the key of `score` that validations watch.
        predictor: class of the task's `Predictor`, whose settings are the fields of config.decode.
        likelihood: name of the metric of the targets' likelihood; lower is better.
        monitor: (name, "min" or "max"), the scalar that decides which validation is best.
        lengths: int [pairs, 2], tokens of training pairs, for which XLA's batches get their shapes;
            None before the corpus is tokenized.
        buckets, packing: what `make_batcher` calls, with the arguments of `LengthBuckets` and of
            `Packing`; without a field data.batching only the first.
    """

    lengths = None

    def __init__(self, config):
        self.config = config

    def check(self):
        """Raises InputError for invalid settings, before any work is done."""
        self.make_corpus()

    def check_tokenizer(self):
        """Raises InputError if config.data would make `train_tokenizer` fail; reads no corpus.

        A task that overrides one of the two overrides both.
        """

    def has_split(self, split):
        """Returns whether the corpus has a split; raises InputError if its files are unreadable."""
        parts = parts_of(self.config, split)
        if not any(map(self.make_corpus().has_text, parts)):
            return False
        for part in parts:
            self.evaluation_examples(part, 1)
        return True

    def make_batcher(self, replicas):
        """Returns the `Batcher` that config.data.batching names, for a number of replicas."""
        config, longest = self.config, self.config.data.max_length
        tokens, parts = tokens_per_batch(config, replicas), batch_parts(config, replicas)
        batching, xla = config.data.get("batching", "buckets"), takes_xla(config, replicas)
        if batching == "auto":
            batching = "packed" if xla and tokens >= parts * longest else "buckets"
        if batching == "packed":
            return self.packing(tokens, longest, parts)
        if not xla:
            return self.buckets(tokens, batch_multiple=replicas)
        if self.lengths is None:
            shapes = bucket_lengths(longest)
        else:
            shapes = bucket_shapes(np.minimum(self.lengths, longest), longest)
        return self.buckets(tokens, batch_multiple=parts, bucket_lengths=shapes)

    def load_tokenizer(self, directory):
        return load_tokenizer(directory)

    def training_tokenizer(self, tokenizer):
        """Returns the tokenizer of the training split: `tokenizer`, or one that samples."""
        return tokenizer

    def outputs(self, predictor, inputs, answer, **options):
        """Returns an iterable of what `score` takes, of the inputs of `evaluation_examples`.

        answer(function, inputs) applies a function to batches of inputs, as `map_by_length` does;
        the options are those of a call of the predictor.
        """
        return answer(functools.partial(predictor, **options), inputs)

    def make_predictor(self, model, tokenizer):
        """Returns the task's predictor, which maps a list of str to a list of str."""
        return self.predictor(model, tokenizer, **self.config.decode)


class SequenceTask(Task):
    """A task with a `Transformer`: sources and targets are sequences over one vocabulary."""

    likelihood = "perplexity"
    monitor = ("validation_perplexity", "min")
    buckets, packing = LengthBuckets, Packing

    def model_config(self):
        return TransformerConfig.of(self.config.model.to_dict())

    def make_model(self):
        return Transformer(self.model_config())

    def make_metrics(self):
        return [Perplexity(), TokenAccuracy()]

    def make_filters(self):
        data = self.config.data
        return Filters(data.max_length, data.max_length_ratio)

    def target_tokenizer(self, tokenizer):
        """Returns the encoder of targets: the `tokenizer` of the sources if targets are text."""
        return getattr(tokenizer, "target", tokenizer)


def make_tokenizer(kind, lines, vocab_size, languages=(), placeholders=0):
    """Returns the tokenizer of a run: one learned from lines, or that of a SentencePiece model.

    The kind is one of `train_tokenizer`, with its other arguments, or the path of a `.model` file.
    """
    if kind in TRAINABLE:
        return train_tokenizer(kind, lines, vocab_size, languages, placeholders)
    if not os.path.exists(os.path.expanduser(kind)):
        raise InputError(
            f"data.tokenizer is {kind!r}: give {', '.join(TRAINABLE)} or the path of a "
            "SentencePiece model; there is no such file. A pretrained model's tokenizer is in its "
            "own workdir: give this as --workdir."
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

    def check_tokenizer(self):
        if self.config.data.tokenizer not in TRAINABLE:
            self._make_tokenizer(())  # which reads a file, not the texts

    def train_tokenizer(self, corpus):
        """Returns the tokenizer of a corpus, learned from its sources."""
        pairs = text_pairs(corpus.examples(self.config.data.train_split))
        return self._make_tokenizer(text for text, _ in pairs)

    def _make_tokenizer(self, lines):
        return make_tokenizer(self.config.data.tokenizer, lines, self.config.model.vocab_size)

    def training_corpus(self, corpus, tokenizer):
        """Returns the corpus to train on: the given one, or copies of it for BPE-dropout."""
        data = self.config.data
        if data.subword_copies == 1:
            return corpus
        return RepeatedCorpus(corpus, data.train_split, data.subword_copies)

    def training_tokenizer(self, tokenizer):
        rate = self.config.data.bpe_dropout
        return BpeDropout(tokenizer, rate, self.config.train.seed) if rate else tokenizer

    def evaluation_examples(self, split, limit=None):
        """Returns the inputs, a list of str, and references, as `score` takes them, of a split."""
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
    """Imports the module that registers a TFDS dataset; an empty name imports none."""
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
    """Returns the sources and the targets of a dataset of texts, two lists of str."""
    examples = list(examples.take(-1 if limit is None else limit).as_numpy_iterator())
    return tuple(
        [decode(row[side], f"{side} {n}", errors) for n, row in enumerate(examples, start=1)]
        for side in ("source", "target")
    )
