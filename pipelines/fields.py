"""The fields of a config: default, allowed values, meaning, and what may change on resuming.

Each part of a config is one or more dataclasses of settings; `FIELDS` says which, for each task.
The defaults are the values of the paper's base model. A config is the `ConfigDict` of
`make_config`; commands, flags and the page of `reference.py` read the table.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import NamedTuple

import ml_collections
from ml_collections import config_dict

from pipelines.corpora import Corpora, parse
from t2t_keras.data.files import read_json
from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig
from t2t_keras.settings import (
    MAX_PLACEHOLDERS,
    Choice,
    KNNSettings,
    Range,
    Setting,
    Switch,
    Text,
    setting,
    settings_of,
)
from t2t_keras.tasks.search_settings import ParserSettings, TranslatorSettings

_COUNT = Range(1, 2**31 - 1, whole=True)
_COUNT_OR_0 = dataclasses.replace(_COUNT, least=0)
_SEED = dataclasses.replace(_COUNT, least=0, most=2**32 - 1)
_RATE = Range(0, 1, exclude_most=True)
_SHARE = Range(0, 1, exclude_least=True)
_DECAY = Range(0, 0.99999)
_FROM_0 = Range(0, math.inf)
_POSITIVE = Range(0, math.inf, exclude_least=True)
_PLACEHOLDERS = dataclasses.replace(_COUNT, least=0, most=MAX_PLACEHOLDERS)
_ERRORS = Choice(("strict", "replace"))
_BATCHING = Choice(("auto", "buckets", "packed"))
_TAGS = Choice(("kept", "normalized"))
_OPTIMIZER = Choice(("adam", "muon"))
_PRECISION = Choice(("bfloat16", "float16", ""))


class MayChange(NamedTuple):
    """Whether a field may change between two starts of a run."""

    text: str
    must_stay: Callable = lambda value: None  # value → the part of it that may not change


YES = MayChange("yes")
ALWAYS = MayChange("yes; also a flag of `evaluate` and `visualize`")  # where the corpus is
NO = MayChange("no", lambda value: value)
NOT_TO_OR_FROM_0 = MayChange("not to or from 0", bool)
NOT_TO_OR_FROM_FLOAT16 = MayChange("not to or from float16", lambda value: value == "float16")
ITS_PATH = MayChange("its path, not to or from empty", bool)
ITS_FOLDERS = MayChange(
    "its folders, not its languages",
    lambda value: [direction.name for direction in parse(value or "")],
)


@dataclasses.dataclass
class Corpus:
    """Fields of config.data that every task has."""

    folder: str = setting(
        "", Text(), "Folder of the corpus's files; empty: the dataset that `tfds` names.", ALWAYS
    )
    train_split: str = setting("train", Text(), "Split to train on.")
    validation_split: str = setting("validation", Text(), "Split of the validations.", ALWAYS)
    test_split: str = setting("test", Text(), "Split that `--split=test` means.", ALWAYS)
    max_length: int = setting(
        256,
        _COUNT,
        "Maximum tokens of a side, end included; longer training pairs are dropped, texts to "
        "classify are truncated, and a stream has rows of this length.",
    )
    tokens_per_batch: int = setting(
        25_000, _COUNT_OR_0, "Maximum tokens of a side of a global batch, with padding; or 0.", YES
    )
    tokens_per_replica: int = setting(
        0, _COUNT_OR_0, "The same limit for each device; one of the two fields must be 0.", YES
    )


@dataclasses.dataclass
class Texts:
    """Fields of config.data for tasks whose sources are texts."""

    tfds: str = setting(
        "wmt14_translate/de-en", Text(), "Name of a TFDS dataset, used if `folder` is empty."
    )
    tfds_import: str = setting(
        "", Text(), "Module to import first, which registers a dataset; empty: none.", ALWAYS
    )
    tfds_data_dir: str = setting(
        "", Text(), "Folder where TFDS keeps its datasets; empty: TFDS's own default.", ALWAYS
    )
    errors: str = setting(
        "strict", _ERRORS, "strict: text that is not UTF-8 is an error; replace: U+FFFD.", YES
    )
    tokenizer: str = setting(
        "bpe",
        Text(),
        "Kind of the vocabulary to learn: bpe, unigram or wordpiece; or the path of a "
        "SentencePiece model to use, such as `spm.model`.",
    )
    bpe_dropout: float = setting(0.0, _RATE, "Fraction of merges left out in training; 0: none.")
    subword_copies: int = setting(
        1, _COUNT, "Copies of the training text, each with its own random segmentation."
    )


@dataclasses.dataclass
class Batching:
    """Fields of config.data for tasks that predict tokens."""

    batching: str = setting(
        "auto",
        _BATCHING,
        "buckets: similar lengths, padded; packed: several pairs a row; auto: packed where XLA "
        "compiles the steps (each shape, and packed rows have one) and each micro-batch has room "
        "for a row, else buckets.",
        YES,
    )


@dataclasses.dataclass
class Pairs(Batching):
    """Fields of config.data for tasks whose targets are sequences."""

    max_length_ratio: float = setting(
        4.0, _POSITIVE, "Maximum ratio of the tokens of both sides; other pairs are dropped."
    )


@dataclasses.dataclass
class Languages:
    """Fields of config.data for translation."""

    source_language: str = setting("en", Text(), "Ending of the source's files, or TFDS's feature.")
    target_language: str = setting("de", Text(), "Ending of the target's files, or TFDS's feature.")
    corpora: str = setting(
        "",
        Corpora(),
        "Several corpora in one model, in place of `folder` and `tfds`: each a folder or a TFDS "
        "dataset with its languages, such as `a:en=de,b:en-fr`; empty: one corpus.",
        ITS_FOLDERS,
    )
    sampling_temperature: float = setting(
        1.0,
        _POSITIVE,
        "T of `corpora`: a sentence pair comes from a direction with p ∝ size^(1/T) (Arivazhagan "
        "et al. 2019); 1: all corpora joined, 5: more of the small ones.",
    )
    placeholders: int = setting(
        0, _PLACEHOLDERS, "Ids of `model.vocab_size` for protected spans of documents; 0: none."
    )
    placeholder_fraction: float = setting(
        0.2, _SHARE, "Fraction of the training pairs that teach the placeholders, if there are any."
    )


@dataclasses.dataclass
class Trees:
    """Fields of config.data for parsing."""

    folder: str = setting("", Text(), "Folder of Penn Treebank files, SPLIT.mrg or .gz.", ALWAYS)
    train_share: float = setting(
        1.0, _SHARE, "Fraction of the training trees, for learning curves."
    )
    tags: str = setting("kept", _TAGS, "kept: part-of-speech tags as they are; normalized: XX.")
    echo: bool = setting(False, Switch(), "Whether the target repeats each word after its tag.")
    copies: int = setting(1, _COUNT, "Copies of each training tree, each augmented at random.")
    exchange: float = setting(
        0.0, Range(0, 1), "Fraction of constituents exchanged for others of their label; 0: none."
    )
    word_dropout_alpha: float = setting(
        0.8, _FROM_0, "α: in training a word seen n times becomes unknown at rate α / (α + n)."
    )
    parsed_trees: str = setting(
        "", Text(), "File of more trees to train on; empty: none.", ITS_PATH
    )


@dataclasses.dataclass
class SingleTexts:
    """Fields of config.data for tasks of single texts."""

    text_feature: str = setting("text", Text(), "TFDS's feature that holds the text.")


@dataclasses.dataclass
class PlainText(SingleTexts, Batching):
    """Fields of config.data for language models."""

    language: str = setting("", Text(), "Ending of the files; empty: a split has only one file.")
    rows: str = setting(
        "lines",
        Choice(("lines", "stream")),
        "lines: each text alone; stream: all texts, one after another, cut into rows of "
        "`max_length`.",
    )
    across_texts: bool = setting(
        True, Switch(), "Whether attention in a row of a stream sees the texts before."
    )


@dataclasses.dataclass
class Classes(SingleTexts):
    """Fields of config.data for classification."""

    labels: str = setting("neg,pos", Text(), "The classes, in the order of their probabilities.")
    label_feature: str = setting("label", Text(), "TFDS's feature that holds the class.")


@dataclasses.dataclass
class Head:
    """Fields of config.model for the classifier's head; the others are the encoder's."""

    pooling: str = setting(
        "mean", Choice(("mean", "max", "first", "attention")), "How positions become one vector."
    )
    head_dropout: float = setting(0.1, _RATE, "Dropout rate of the pooled vector; 0: none.")
    word_dropout: float = setting(0.0, _RATE, "Fraction of words dropped in training; 0: none.")


@dataclasses.dataclass
class Training:
    """Fields of config.train."""

    steps: int = setting(100_000, _COUNT, "Optimizer steps of the whole training.")
    seed: int = setting(1, _SEED, "Seed of weights, dropout, order of batches and augmentation.")
    warmup_steps: int = setting(
        4_000, _COUNT, "Steps in which the learning rate rises (equation 3)."
    )
    learning_rate_scale: float = setting(
        1.0, _POSITIVE, "Factor of equation 3, d_model^-0.5 · min(step^-0.5, …)."
    )
    decay_fraction: float = setting(
        0.0, Range(0, 1), "Last part of the steps, in which the rate decays linearly to 0; 0: none."
    )
    optimizer: str = setting(
        "adam", _OPTIMIZER, "adam, or muon: orthogonal updates for matrices of hidden layers.", NO
    )
    beta_1: float = setting(0.9, _DECAY, "β₁ of Adam, the decay of the mean gradient.")
    beta_2: float = setting(0.98, _DECAY, "β₂ of Adam, the decay of the mean squared gradient.")
    epsilon: float = setting(1e-9, Range(0, 1), "ε of Adam, added to the denominator.")
    weight_decay: float = setting(
        0.0, _FROM_0, "Decoupled (AdamW): a step subtracts rate · this · weight; 0: none."
    )
    global_clipnorm: float = setting(
        0.0, _FROM_0, "Gradient clipping: longer gradients are scaled down to this norm; 0: none."
    )
    ema_decay: float = setting(
        0.0, _RATE, "Decay of a moving average of the weights; 0: none.", NOT_TO_OR_FROM_0
    )
    micro_batches: int = setting(
        1, _COUNT, "Gradient accumulation: parts into which each device's batch is divided."
    )
    parallel_micro_batches: int = setting(
        1, _COUNT, "Micro-batches computed in parallel, for small models on CPUs."
    )
    label_smoothing: float = setting(
        0.1, _RATE, "ε_ls: targets are (1 - ε) · one-hot + ε / vocabulary (section 5.4); 0: none."
    )
    mixed_precision: str = setting(
        "",
        _PRECISION,
        "Format of matrix products; weights and loss stay float32. float16 has loss scaling, for "
        "GPUs without bfloat16 (V100, T4); empty: float32.",
        NOT_TO_OR_FROM_FLOAT16,
    )
    tf32: bool = setting(
        True, Switch(), "Whether GPUs may use TF32 (10 bits of mantissa) in float32 products."
    )
    xla: str = setting(
        "auto",
        Switch(auto=True),
        "Whether XLA compiles the steps, for at most 16 shapes of padded batches; auto: on one "
        "GPU, for models that it can compile.",
    )
    steps_per_execution: int = setting(
        1, _COUNT, "Steps of one call of the compiled function; more are faster on GPUs."
    )
    deterministic: bool = setting(
        False, Switch(), "Whether every run gives the same bits, at some cost in speed on GPUs."
    )
    stop_above_grad_norm: float = setting(
        1e4, _POSITIVE, "Norm of an unclipped gradient above which training ends with an error."
    )
    log_every: int = setting(100, _COUNT, "Steps between two rows of the log.")
    validate_every: int = setting(5_000, _COUNT, "Steps between two validations.")
    checkpoint_every: int = setting(1_000, _COUNT, "Steps between two checkpoints.")
    checkpoint_minutes: float = setting(
        10.0, Range(0, 1_000_000_000), "Minutes after which a checkpoint is due as well; 0: never."
    )
    keep_checkpoints: int = setting(20, _COUNT, "Checkpoints to keep, the newest ones.")
    average_checkpoints: int = setting(
        5, _COUNT_OR_0, "Checkpoints averaged at the end of training (section 6.1); 0: none."
    )


@dataclasses.dataclass
class Validations(Training):
    """Fields of config.train for tasks whose validations score outputs."""

    validation_sentences: int = setting(
        1_000, _COUNT_OR_0, "Sentences that a validation scores by BLEU or F1; 0: none."
    )


HEAD = settings_of(Head)
MODEL = settings_of(TransformerConfig)
MODEL["vocab_size"] = MODEL["vocab_size"]._replace(default=37_000)  # section 5.1
_OF_THE_DECODER = ("num_decoder_layers", "embedding_sharing", "output_bias", "source_vocab_size")
_OF_THE_ENCODER = ("num_encoder_layers", "source_vocab_size")
_KNN = settings_of(KNNSettings)
_KNN["k"] = Setting(
    0,
    dataclasses.replace(_KNN["k"].allowed, least=0),
    "kNN-MT (Khandelwal 2021): neighbors that predict each token; 0: none.",
)
_SEARCH = settings_of(TranslatorSettings, "max_source_length", "exhaustive", "text_language")
_OF_PARSING = "beam_size", "length_penalty", "max_extra_tokens"
_OF_GENERATION = *_OF_PARSING, "no_repeat_ngram_size", "repetition_penalty"
_SEQUENCES = {"model": MODEL, "train": settings_of(Validations), "knn": _KNN}
_CORPUS, _TEXTS, _PAIRS = map(settings_of, (Corpus, Texts, Pairs))
FIELDS = {
    "translation": _SEQUENCES
    | {"data": _CORPUS | _TEXTS | _PAIRS | settings_of(Languages), "decode": _SEARCH},
    "parsing": _SEQUENCES
    | {
        "data": _CORPUS | _PAIRS | settings_of(Trees),
        "decode": {name: _SEARCH[name] for name in _OF_PARSING}
        | {"constrained": settings_of(ParserSettings)["constrained"]},
    },
    "classification": {
        "model": {n: x for n, x in MODEL.items() if n not in _OF_THE_DECODER} | HEAD,
        "train": settings_of(Training),
        "knn": _KNN,
        "data": _CORPUS | _TEXTS | settings_of(Classes),
        "decode": {},
    },
    "language_model": {
        "model": {n: x for n, x in MODEL.items() if n not in _OF_THE_ENCODER},
        "train": settings_of(Training),
        "knn": _KNN,
        "data": _CORPUS | _TEXTS | settings_of(PlainText),
        "decode": {name: _SEARCH[name] for name in _OF_GENERATION},
    },
}
"""{task: {part of its config: {name: `Setting`}}}"""


def task_name(config):
    """Returns the name of a config's task; InputError if it is unknown."""
    name = config.get("task", "translation")
    if name not in FIELDS:
        raise InputError(f"task is {name!r}: give one of {', '.join(FIELDS)}.")
    return name


def make_config(task="translation"):
    """Returns the config of a task with all its fields, a `ConfigDict`: the paper's base model."""
    parts = {
        part: {name: _value(field) for name, field in fields.items()}
        for part, fields in FIELDS[task].items()
    }
    return ml_collections.ConfigDict({"task": task, **parts})


def _value(field):
    if field.default == "auto" and isinstance(field.allowed, Switch):  # or a bool
        return config_dict.FieldReference("auto", field_type=object)
    return config_dict.placeholder(int) if field.default is None else field.default


def read_config(path):
    """Returns the fields of a run's config.json, a dict; InputError if it is damaged, or none."""
    try:
        saved = read_json(path)
    except ValueError as error:
        raise InputError(
            f"{path} is damaged ({error}): copy it again, or delete it and start the training with "
            "its old config. If you edited it, undo that: fields that may change are flags, such "
            "as --config.data.test_split=… of pipelines.evaluate."
        ) from error
    parts = ("model", "data", "train")
    if not isinstance(saved, dict) or not all(isinstance(saved.get(p), dict) for p in parts):
        raise InputError(f"{path} is not the config of a run: give another one.")
    return saved


def restored_config(saved):
    """Returns the config of a run, a `ConfigDict`, from {part: {field: value}}.

    A field that is missing, because the run is older than the field, gets the paper's value.
    """
    config = make_config(task_name(saved))
    with config.ignore_type():  # of a config that holds a whole number for a float
        config.update(saved)
    return config


def check_fields(config):
    """Raises InputError if the value of a field is not allowed, or a part has an unknown field.

    The fields of config.decode are the settings of the task's predictor, which checks them.
    """
    for part, fields in FIELDS[task_name(config)].items():
        for name, value in config[part].items() if part != "decode" else ():
            if name not in fields:
                raise InputError(f"config.{part} has no field {name!r}: leave it out.")
            fields[name].allowed.check(f"{part}.{name}", value)


def fixed_fields(old, new, parts):
    """Yields (name, old value, new value) for each forbidden change of a field in some parts."""
    for part in parts:
        for name, field in FIELDS[task_name(new)][part].items():
            held, value = old[part].get(name), new[part].get(name)
            must_stay = may_change(part, field).must_stay
            if name in new[part] and must_stay(held) != must_stay(value):
                yield f"{part}.{name}", held, value


def may_change(part, field):
    return field.may_change or (NO if part in ("model", "data") else YES)


def config_diff(config):
    """Returns one line for each field that differs from the paper's base model, a list of str."""
    lines = []
    for part, fields in FIELDS[task_name(config)].items():
        paper = fields | FIELDS["translation"][part]
        for name, value in config[part].items():
            default = paper[name].default if name in paper else None
            if value != default:
                lines.append(f"{part}.{name} = {value!r} (the paper's base model: {default!r})")
    return lines
