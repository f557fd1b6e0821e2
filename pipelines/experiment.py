"""An experiment: from the fields of a config to the library's objects, and the folder of a run.

`check` validates a config, `prepare` writes vocabulary and token shards, the `make_…` functions
build model, optimizer and loss, `config_diff` lists differences from the paper. `Workdir` is the
folder of a run: what is where, and how a trained model is loaded from it.
"""

import contextlib
import json
import os
import pathlib

import keras
import ml_collections
import tensorflow as tf
from absl import logging
from tqdm import tqdm

from pipelines import old_fields
from pipelines.configs import wmt14_en_de_base
from pipelines.knn import knn_settings, with_knn
from pipelines.tasks import make_task
from t2t_keras.data.corpora import text_digests
from t2t_keras.data.files import (
    lock,
    make_folder,
    read_json,
    remove_temporary_files,
    sha256_of,
    write_json,
)
from t2t_keras.data.shard_writing import BlockEncoder, write_examples
from t2t_keras.data.tokenizers import tokenizer_exists
from t2t_keras.errors import InputError
from t2t_keras.settings import Range
from t2t_keras.tasks.text_io import map_by_length
from t2t_keras.training.callbacks import PlateauMonitor, evaluate_on
from t2t_keras.training.checkpoint_files import (
    checkpoint_paths,
    damaged_paths,
    initial_path,
    newest_weights,
    remove_unfinished,
)
from t2t_keras.training.checkpoints import restore_weights
from t2t_keras.training.losses import LabelSmoothedCrossEntropy
from t2t_keras.training.optimizers import Adam, Muon
from t2t_keras.training.schedules import InverseSquareRoot, LinearDecayToZero

_COUNT = Range(1, 2**31 - 1, whole=True)
_COUNT_OR_NONE = Range(0, 2**31 - 1, whole=True)
_DECAY = Range(0, 0.99999)
_RANGES = {
    "data.tokens_per_batch": _COUNT_OR_NONE,
    "data.tokens_per_replica": _COUNT_OR_NONE,
    "data.max_length": _COUNT,
    "data.subword_copies": _COUNT,
    "train.seed": Range(0, 2**32 - 1, whole=True),
    "train.steps": _COUNT,
    "train.steps_per_execution": _COUNT,
    "train.log_every": _COUNT,
    "train.validate_every": _COUNT,
    "train.validation_sentences": _COUNT_OR_NONE,
    "train.checkpoint_every": _COUNT,
    "train.checkpoint_minutes": Range(0, 1_000_000_000),
    "train.keep_checkpoints": _COUNT,
    "train.average_checkpoints": _COUNT_OR_NONE,
    "train.micro_batches": _COUNT,
    "train.parallel_micro_batches": _COUNT,
    "train.beta_1": _DECAY,
    "train.beta_2": _DECAY,
    "train.epsilon": Range(0, 1),
}
"""{config field: its `Range`}, checked where a task has the field; see `DECODING` for others"""

_POLICIES = {"": "float32", "bfloat16": "mixed_bfloat16", "float16": "mixed_float16"}


def check(config):
    """Raises InputError for invalid or conflicting settings, before any work is done."""
    old_fields.check_config(config)
    task, train = make_task(config), config.train
    task.check()
    try:
        model = task.model_config()
    except TypeError as error:
        raise InputError(
            f"config.model: {error}; the fields are those of TransformerConfig."
        ) from error
    _check_ranges(config)
    task.predictor.check_settings(config.decode, "decode.")
    task.make_batcher(replicas=1)
    make_optimizer(config)
    if train.mixed_precision not in _POLICIES:
        raise InputError(
            f"train.mixed_precision is {train.mixed_precision!r}: give 'bfloat16', 'float16' or "
            "nothing, for float32."
        )
    knn_settings(config)
    make_loss(config)
    if train.parallel_micro_batches > train.micro_batches:
        raise InputError(
            f"train.parallel_micro_batches is {train.parallel_micro_batches}, more than "
            f"train.micro_batches {train.micro_batches}: give at most as many."
        )
    if train.keep_checkpoints < train.average_checkpoints:
        raise InputError(
            f"train.keep_checkpoints is {train.keep_checkpoints}, fewer than "
            f"train.average_checkpoints {train.average_checkpoints}: keep at least as many."
        )
    if model.position_embedding == "learned" and config.data.max_length > model.max_positions:
        raise InputError(
            f"data.max_length is {config.data.max_length}, more than model.max_positions "
            f"{model.max_positions}: raise max_positions or lower max_length."
        )


def _check_ranges(config):
    for name, allowed in _RANGES.items():
        part, field = name.split(".")
        if field in config[part]:
            allowed.check(name, config[part][field])


def set_numerics(config):
    """Sets seed, determinism and precision of this process.

    Training calls it after the preparation: generating or reading a corpus may draw from the global
    random state, from which Keras takes the seeds of weights and dropout.
    """
    keras.utils.set_random_seed(config.train.seed)
    if config.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    tf.config.experimental.enable_tensor_float_32_execution(config.train.tf32)
    keras.mixed_precision.set_global_policy(_POLICIES[config.train.mixed_precision])


def prepare(config, workdir, write=None):
    """Learns the vocabulary and writes the token shards of a workdir, where they are missing.

    Args:
        config: the experiment's config.
        workdir: `Workdir`.
        write: function of (config, workdir, split) that writes a split's shards; None: this process
            writes them.
    """
    task, data = make_task(config), config.data
    if not tokenizer_exists(workdir.vocabulary):
        logging.info("Learning a vocabulary of %d", config.model.vocab_size)
        task.train_tokenizer(task.make_corpus()).save(workdir.vocabulary)
    for split in (data.train_split, data.validation_split):
        if not (workdir.tokens / split).exists():
            (write or _write_split)(config, workdir, split)


def _corpus_digests(config):
    """Returns {(split, side): (SHA-256 of its texts, where they are)} for what training reads."""
    data, corpus = config.data, make_task(config).make_corpus()
    found = {}
    for split in (data.train_split, data.validation_split):
        digests = text_digests(corpus.examples(split))
        files = corpus.files(split) if hasattr(corpus, "files") else {}
        for side, digest in digests.items():
            place = files.get(side) or f"the {side}s of {data.folder or data.tfds}"
            found[split, side] = digest, place
    if data.get("parsed_trees"):
        found[data.train_split, "parsed_trees"] = sha256_of(data.parsed_trees), data.parsed_trees
    return found


def split_examples(config, workdir, split):
    """Returns the pairs of text of a split as training reads them, a dataset."""
    task = make_task(config)
    corpus = task.training_corpus(task.make_corpus(), task.load_tokenizer(workdir.vocabulary))
    return corpus.examples(split)


def split_encoder(config, workdir, split):
    """Returns the `BlockEncoder` of a split's pairs."""
    task = make_task(config)
    tokenizer = task.load_tokenizer(workdir.vocabulary)
    if split == config.data.train_split:
        tokenizer = task.training_tokenizer(tokenizer)
    return BlockEncoder(tokenizer, task.make_filters(), task.target_tokenizer(tokenizer))


def _write_split(config, workdir, split):
    with tqdm(desc=f"tokens of {split}", unit=" pairs", disable=None) as bar:
        write_examples(
            split_examples(config, workdir, split),
            split_encoder(config, workdir, split),
            workdir.tokens,
            split,
            progress=lambda pairs: bar.update(pairs - bar.n),
        )


def make_batcher(config, replicas=1):
    """Returns the `Batcher` of the config's task."""
    return make_task(config).make_batcher(replicas)


def make_model(config):
    """Returns the model of the config's task with new weights."""
    return make_task(config).make_model()


def make_optimizer(config):
    """Returns the optimizer with the paper's schedule, followed by a linear decay if configured."""
    train = config.train
    schedule = InverseSquareRoot(
        config.model.model_dim, train.warmup_steps, train.learning_rate_scale
    )
    if not 0 <= train.decay_fraction <= 1:
        raise InputError(f"train.decay_fraction is {train.decay_fraction}: give 0 to 1.")
    decay_steps = round(train.decay_fraction * train.steps)
    if decay_steps:
        schedule = LinearDecayToZero(schedule, train.steps, decay_steps)
    settings = {
        "epsilon": train.epsilon,
        "weight_decay": train.weight_decay or None,
        "global_clipnorm": train.global_clipnorm or None,
        "ema_decay": train.ema_decay or None,
    }
    if train.optimizer == "adam":
        return Adam(schedule, beta_1=train.beta_1, beta_2=train.beta_2, **settings)
    if train.optimizer == "muon":
        return Muon(
            schedule,
            adam_beta_1=train.beta_1,
            adam_beta_2=train.beta_2,
            split_kernels=_split_kernels(config.model),
            **settings,
        )
    raise InputError(f"train.optimizer is {train.optimizer!r}: give 'adam' or 'muon'.")


def _split_kernels(model):
    """Returns the widths of the matrices that the model's attention fuses, as `Muon` takes them."""
    if not model.fused_qkv:
        return {}
    key_dim = model.get("key_dim") or model.model_dim // model.num_heads
    key, value = model.num_heads * key_dim, model.num_heads * (model.get("value_dim") or key_dim)
    return {"qkv_projection": [key, key, value], "kv_projection": [key, value]}


def make_loss(config):
    """Returns the loss, label-smoothed cross-entropy."""
    return LabelSmoothedCrossEntropy(config.train.label_smoothing)


def compile_model(config, model):
    """Gives the model its optimizer, its loss and the metrics of training.

    Args:
        config: the experiment's config.
        model: the model of its task.
    """
    model.micro_batches = config.train.micro_batches
    model.parallel_micro_batches = config.train.parallel_micro_batches
    model.compile(
        make_optimizer(config),
        make_loss(config),
        weighted_metrics=make_task(config).make_metrics(),  # rows of padding have no weight
        steps_per_execution=config.train.steps_per_execution,
        jit_compile=config.train.xla or "auto",
    )


def make_validation(config, model, tokenizer, batches):
    """Returns the function that a validation calls: (model, step) → {name: float}.

    Args:
        config: the experiment's config.
        model: the compiled model.
        tokenizer: `Tokenizer`.
        batches: dataset of the validation split, as `fit` takes it.
    """
    evaluate = evaluate_on(batches)
    task, split = make_task(config), config.data.validation_split
    predict = task.make_predictor(model, tokenizer)
    # A task that needs no predictions, since its metrics suffice, has no such field.
    inputs, references = task.evaluation_examples(
        split, config.train.get("validation_sentences", 0)
    )

    def measure(model, step):
        scalars = evaluate(model, step)
        if inputs:
            score = task.score(list(map_by_length(predict, inputs)), references)
            scalars[f"validation_{task.metric}"] = score[task.metric]
        return scalars

    return measure


def make_plateau_monitors(config, log):
    """Returns the `PlateauMonitor`s of the validations in a `MetricsLog`."""
    task = make_task(config)
    return [
        PlateauMonitor(log, f"validation_{task.likelihood}", "min", training=task.likelihood),
        PlateauMonitor(log, f"validation_{task.metric}", "max"),
    ]


def config_diff(config):
    """Returns one line for each field that differs from the paper's base model, a list of str."""
    paper = wmt14_en_de_base.get_config()
    return [
        f"{part}.{field} = {value!r} (the paper's base model: {paper[part].get(field)!r})"
        for part in paper
        if part != "task"
        for field, value in config[part].items()
        if value != paper[part].get(field)
    ]


def choose_split(config, split):
    """Returns the corpus' name of the split "train", "validation" or "test"; others unchanged.

    Raises:
        InputError: if the config names another split for it, and the corpus has this one, too.
    """
    field = f"{split}_split"
    named = config.data.get(field, split)
    if named != split:
        try:
            make_task(config).evaluation_examples(split, 1)
        except InputError:  # no such split
            return named
        raise InputError(
            f"--split={split} may be the corpus' own split {split!r} or {named!r}, which "
            f"data.{field} names: give --config.data.{field}={split} for the first, or "
            f"--split={named} for the other."
        )
    return named


# The folder of a run -----------------------------------------------------------------------------

# The vocabulary, tokens and weights of a workdir depend on these parts of its config.
_FIXED = ("model", "data")
# Fields of these parts that may change: they decide only where data is and how it is batched. What
# the data holds may not, see `save_run`.
FREE_DATA = ("folder", "tfds_import", "tfds_data_dir", "validation_split", "test_split")
_FREE = {
    *FREE_DATA,
    "errors",
    "parsed_trees",
    "batching",
    "tokens_per_batch",
    "tokens_per_replica",
}
_MAX_STARTS = 5  # of several workers from one step, without a checkpoint in between
# Fields of config.train that decide which variables an optimizer has.
_STATES = {"optimizer": str, "ema_decay": bool, "mixed_precision": lambda kind: kind == "float16"}
# Arguments of `load_predictor` that are fields of config.knn.
_KNN = {"knn_k": "k", "knn_temperature": "temperature", "knn_lambda": "interpolation"}


class Workdir:
    """A run's folder.

    Args:
        path: the folder; made by the first `save_config`.

    Attributes:
        vocabulary: folder of the tokenizer.
        tokens: folder of token shards, one folder for each split.
        checkpoints: folder of checkpoints: the weights of a pretrained model, those of training and
            averages.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        try:
            os.fspath(path).encode()
        except UnicodeEncodeError as error:  # TensorFlow can't read the shards
            raise InputError(
                f"the folder {path!r} has a name that is not UTF-8: rename it."
            ) from error
        self.vocabulary = self.path / "vocabulary"
        self.tokens = self.path / "tokens"
        self.checkpoints = self.path / "checkpoints"
        self._config = self.path / "config.json"
        self._corpus = self.path / "corpus.json"
        self._lock = self.path / ".lock"
        self._starts = self.path / "starts.json"

    @contextlib.contextmanager
    def lock(self):
        """Keeps other processes from writing into the folder while the block runs.

        Commands that write take it, of several workers the chief; those that only read do not.

        Raises:
            InputError: if another process holds the lock.
        """
        make_folder(self.path)
        with lock(self._lock, f"writing into {self.path}"):
            remove_temporary_files(self.path)
            yield

    def save_config(self, config):
        """Writes the config of a run, or checks that it can resume the run in the folder.

        No other process may be writing there; see `lock`.

        Raises:
            InputError: if the folder holds a run with another model, other data or another
                optimizer.
        """
        self._check_config(config)
        write_json(self._config, json.loads(config.to_json()))

    def save_run(self, config, accept_corpus_changes=False):
        """Does what `save_config` does, and the same with checksums of the corpus' texts.

        The corpus may be elsewhere than it was: only its texts count, not its path.

        Args:
            config: the run's config.
            accept_corpus_changes: whether vocabulary and shards are kept, with a warning, where the
                texts that they were made of have changed.

        Raises:
            InputError: as `save_config`, and if the texts have changed; it names the file.
        """
        self._check_config(config)
        digests = self._check_corpus(config, accept_corpus_changes)
        make_folder(self.path)
        write_json(self._corpus, digests)
        write_json(self._config, json.loads(config.to_json()))

    def _check_config(self, config):
        if self._config.exists():
            old = self.load_config()
            if tokenizer_exists(self.vocabulary) or self.tokens.exists():
                # A pretrained model comes with its tokenizer and without data.
                imported = initial_path(self.checkpoints).exists() and not self.tokens.exists()
                self._check_unchanged(old, config, ("model",) if imported else _FIXED)
            remove_unfinished(self.checkpoints)
            if checkpoint_paths(self.checkpoints) or damaged_paths(self.checkpoints):
                self._check_state(old, config)

    def _check_unchanged(self, old, new, parts):
        paper = wmt14_en_de_base.get_config()
        for part in parts:
            for field, value in new[part].items():
                # A run that is older than the field had the paper's value.
                held = old[part].get(field, paper[part].get(field))
                if field not in _FREE and held != value:
                    raise InputError(
                        f"{self.path} holds a run with {part}.{field} = {held!r}, "
                        f"not {value!r}: give another --workdir or the old value."
                    )

    def _check_state(self, old, new):
        """Raises InputError if the checkpoints lack variables of the optimizer."""
        paper = wmt14_en_de_base.get_config()
        for field, state in _STATES.items():
            held, value = (config.train.get(field, paper.train.get(field)) for config in (old, new))
            if state(held) != state(value):
                raise InputError(
                    f"{self.path} holds checkpoints of train.{field} = {held!r}, not {value!r}: "
                    "give another --workdir or the old value."
                )

    def count_start(self, step):
        """Counts the starts from a step, to end a loop of failures and restarts.

        A scheduler restarts workers that lost another one. If the run itself fails, each start ends
        before its first checkpoint.

        Args:
            step: the step from which a run of several workers is about to train.

        Raises:
            InputError: at the start after `_MAX_STARTS` starts from the same step.
        """
        try:
            last = read_json(self._starts)
        except (OSError, ValueError):  # the first start, or a damaged file
            last = {}
        count = last.get("starts", 0) + 1 if last.get("step") == step else 1
        if count > _MAX_STARTS:
            raise InputError(
                f"The last {_MAX_STARTS} starts from step {step} ended before their first "
                f"checkpoint: look for the reason in the workers' messages, delete {self._starts} "
                "and start again."
            )
        write_json(self._starts, {"step": step, "starts": count})

    def _check_corpus(self, config, accept_changes):
        """Returns the checksums to keep; raises InputError if what is in use has changed."""
        try:
            old = read_json(self._corpus)
        except FileNotFoundError:
            old = {}  # new, or made before there were checksums
        except ValueError as error:
            if not accept_changes:
                raise InputError(
                    f"{self._corpus} is damaged ({error}): copy it again, or accept the corpus as "
                    "it is with --accept_corpus_changes."
                ) from error
            old = {}
        # A pretrained model comes with its tokenizer, which is of no split.
        learned = tokenizer_exists(self.vocabulary) and not initial_path(self.checkpoints).exists()
        new = dict(old)
        for (split, side), (digest, place) in _corpus_digests(config).items():
            key = f"{split} {side}"
            is_in_use = (self.tokens / split).exists()
            is_in_use |= learned and split == config.data.train_split
            if is_in_use and old.get(key, digest) != digest:
                message = (
                    f"{place} (split {split!r}) has another text than the one that {self.path} "
                    "was prepared from"
                )
                if not accept_changes:
                    raise InputError(
                        f"{message}: put the old text back, give another --workdir, or keep the "
                        "vocabulary and the tokens of the old one with --accept_corpus_changes."
                    )
                logging.warning("%s, whose vocabulary and tokens are kept", message)
            new[key] = digest
        return new

    def load_config(self):
        """Returns the config that training wrote here.

        Raises:
            InputError: if there is none, or it is damaged.
        """
        if not self._config.exists():
            missing = f"{self.path} holds no config.json"
            if not self.path.exists():
                missing = f"there is no folder {self.path}"
            raise InputError(
                f"{missing}: give the --workdir that pipelines.train or pipelines.import_model "
                "wrote."
            )
        try:
            config = ml_collections.ConfigDict(read_json(self._config))
        except ValueError as error:
            raise InputError(
                f"{self._config} is damaged ({error}): copy it again, or delete it and start the "
                "training with its old config. If you edited it, undo that: fields that may change "
                "are flags, such as --config.data.test_split=… of pipelines.evaluate."
            ) from error
        if "knn" not in config:  # a run of the first edition
            config.knn = wmt14_en_de_base.get_config().knn
        old_fields.translate(config)
        return config

    def predictor_files(self, checkpoint=None):
        """Returns the paths of files and folders on which the output of a predictor depends.

        Args:
            checkpoint: as `load_predictor` takes it.
        """
        reports = sorted(self.tokens.glob("*/report.json"))  # of the shards, for kNN-MT
        weights = checkpoint or self.newest_weights()
        return [weights, self._config, self.vocabulary, *reports]

    def newest_weights(self):
        """Returns the path of the newest weights, averaged ones before those of a step."""
        return newest_weights(self.checkpoints)

    def load_predictor(self, checkpoint=None, **decode):
        """Returns the trained model's predictor: a `Translator`, `Parser` or `Classifier`.

        Args:
            checkpoint: path of a checkpoint; None: the newest, of one step the moving average
                before the average of checkpoints before the step's own.
            **decode: fields of config.decode to use instead of the config's, and of
                config.knn as knn_k, knn_temperature and knn_lambda; None leaves one.

        Raises:
            InputError: if a field is out of its range, or something is missing in the folder.
        """
        config = self.load_config()
        given = {name: value for name, value in decode.items() if value is not None}
        knn = {field: given.pop(n) for n, field in _KNN.items() if n in given}
        task = make_task(config)
        given = task.predictor.check_settings(given, "--")
        with config.ignore_type():  # of a config that holds a whole number for a float
            config.knn.update(knn)
            config.decode.update(given)
        for name in ("knn_temperature", "knn_lambda"):
            if decode.get(name) is not None and not config.knn.k:
                raise InputError(f"--{name} is for kNN-MT: give --knn_k, too.")
        knn_settings(config)  # before the model is made
        model = make_model(config)
        restore_weights(model, checkpoint or self.newest_weights())
        model = with_knn(config, model, self.tokens)
        return task.make_predictor(model, task.load_tokenizer(self.vocabulary))
