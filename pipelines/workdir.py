"""The folder of a run: its layout, changes on resuming, and its trained predictor."""

import contextlib
import json
import os
import pathlib
import re

from absl import logging

from pipelines.base_tasks import tokens_per_batch
from pipelines.directions import parts_of, split_of
from pipelines.fields import fixed_fields, read_config, restored_config, task_name
from pipelines.tasks import make_task
from t2t_keras.data.batching import LengthBuckets
from t2t_keras.data.corpora import text_digests
from t2t_keras.data.files import (
    local_path,
    make_folder,
    read_json,
    remove_temporary_files,
    sha256_of,
    write_json,
)
from t2t_keras.data.locks import lock
from t2t_keras.data.streams import evaluation_batches
from t2t_keras.data.tokenizers import load_tokenizer, tokenizer_exists
from t2t_keras.errors import InputError
from t2t_keras.models.ensemble import Ensemble
from t2t_keras.models.knn import KNNTransformer, build_datastore
from t2t_keras.settings import ENSEMBLE_MEANS, settings_of
from t2t_keras.training.checkpoint_files import (
    checkpoint_paths,
    damaged_paths,
    initial_path,
    newest_weights,
    remove_unfinished,
)
from t2t_keras.training.checkpoints import restore_weights

_MAX_STARTS = 5  # of several workers from one step, without a checkpoint in between


class Workdir:
    """A run's folder, made by the first `save_config`.

    Its attributes are its folders: `vocabulary` of the tokenizer, `tokens` of shards, one folder
    for each split, and `checkpoints` of weights: of a pretrained model, of training, and averages.

    Raises:
        InputError: if the path is not valid UTF-8.
    """

    def __init__(self, path):
        self.path = pathlib.Path(local_path(path))
        try:
            os.fspath(path).encode()
        except UnicodeEncodeError as error:  # TensorFlow can't read the shards
            message = f"the folder {path!r} has a name that is not UTF-8: rename it."
            raise InputError(message) from error
        self.vocabulary = self.path / "vocabulary"
        self.tokens = self.path / "tokens"
        self.checkpoints = self.path / "checkpoints"
        self._config = self.path / "config.json"
        self._corpus = self.path / "corpus.json"
        self._lock = self.path / ".lock"
        self._starts = self.path / "starts.json"

    @contextlib.contextmanager
    def lock(self):
        """Keeps other processes from writing into the folder; InputError if one has the lock.

        Commands that write need it (with several workers, only the chief); readers do not.
        """
        is_run = self._config.exists() and self.load_config()  # of a run, or an error
        make_folder(self.path)
        with lock(self._lock, f"writing into {self.path}"):
            if is_run:
                own_folders = self.vocabulary, self.tokens, self.checkpoints
                remove_temporary_files(self.path, own_folders)
            yield

    def save_config(self, config):
        """Writes the config of a run, if it can resume the run in the folder.

        The caller holds the `lock`.

        Raises:
            InputError: if that has another model, other data or another optimizer.
        """
        self._check_config(config)
        write_json(self._config, json.loads(config.to_json()))

    def save_run(self, task, accept_corpus_changes=False):
        """Writes the config and the texts' checksums; in the folder of a run it checks both.

        The corpus may have moved: only its texts count. If they have changed, an InputError names
        the file, or, if the caller accepts that, a warning; vocabulary and shards are then kept.
        """
        self._check_config(task.config)
        if not tokenizer_exists(self.vocabulary):
            task.check_tokenizer()  # before the texts are read, or even downloaded
        digests = self._check_corpus(task, accept_corpus_changes)
        make_folder(self.path)
        write_json(self._corpus, digests)
        self.save_config(task.config)

    def difference_from_chief(self, task):
        """Returns how a worker's config or text differs from the chief's, or None.

        Only the chief reads the text for training, so a worker may lack it.
        """
        chief, own = self.load_config().to_dict(), restored_config(task.config.to_dict()).to_dict()
        for part, fields in own.items():
            for name, value in (fields if isinstance(fields, dict) else {}).items():
                if (saved := chief[part][name]) != value:
                    return f"config.{part}.{name} is {value!r} here and {saved!r} in the chief"
        try:
            digests = _corpus_digests(task)
        except (InputError, OSError) as error:
            logging.info("This worker cannot read the text, which only the chief needs: %s", error)
            return None
        saved = read_json(self._corpus)
        for (part, side), (digest, place) in digests.items():
            if saved.get(f"{part} {side}") != digest:
                return f"{place} has a text that differs from the chief's"
        return None

    def _check_config(self, config):
        if not self._config.exists():
            return
        old = self.load_config()
        tasks = [task_name(each) for each in (old, config)]
        if tasks[0] != tasks[1]:
            raise InputError(
                f"{self.path} holds a run of task {tasks[0]!r}, not {tasks[1]!r}: give another "
                "--workdir."
            )
        if tokenizer_exists(self.vocabulary) or self.tokens.exists():
            # A pretrained model comes with its tokenizer and without data.
            imported = initial_path(self.checkpoints).exists() and not self.tokens.exists()
            self._check_unchanged(old, config, "model", *([] if imported else ["data"]))
        remove_unfinished(self.checkpoints)
        if checkpoint_paths(self.checkpoints) or damaged_paths(self.checkpoints):
            self._check_unchanged(old, config, "train")

    def _check_unchanged(self, old, new, *parts):
        holder = "checkpoints of" if "train" in parts else "a run with"
        for name, held, value in fixed_fields(old, new, parts):
            raise InputError(
                f"{self.path} holds {holder} {name} = {held!r}, not {value!r}: give another "
                "--workdir or the old value."
            )

    def count_start(self, step):
        """Counts the starts of several workers from a step; InputError after `_MAX_STARTS`.

        It stops a loop: a scheduler restarts workers that lost another one, but if the run itself
        fails, each start ends before its first checkpoint.
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

    def _check_corpus(self, task, accept_changes):
        """Returns the checksums to keep; raises InputError if texts in use have changed."""
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
        is_ours = all(re.fullmatch("[0-9a-f]{64}", str(digest)) for digest in old.values())
        if not self._config.exists() and not is_ours:
            raise InputError(
                f"{self._corpus} does not belong to a run: move it, or give another --workdir."
            )
        # A pretrained model comes with its tokenizer, which is of no split.
        learned = tokenizer_exists(self.vocabulary) and not initial_path(self.checkpoints).exists()
        new = dict(old)
        for (part, side), (digest, place) in _corpus_digests(task).items():
            key, split = f"{part} {side}", split_of(part)
            is_in_use = (self.tokens / part).exists()
            is_in_use |= learned and split == task.config.data.train_split
            if is_in_use and old.get(key, digest) != digest:
                message = (
                    f"{place} (split {split!r}) has a text that differs from the one that "
                    f"{self.path} was prepared from"
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
        """Returns the config that training wrote here; InputError if none, or a damaged one."""
        if not self._config.exists():
            missing = f"{self.path} holds no config.json"
            if not self.path.exists():
                missing = f"there is no folder {self.path}"
            runs = sorted(path.parent.name for path in self.path.glob(f"*/{self._config.name}"))
            raise InputError(
                f"{missing}: give the --workdir that pipelines.train or pipelines.import_model "
                f"wrote{', such as one of its folders: ' * bool(runs)}{', '.join(runs)}."
            )
        return restored_config(read_config(self._config))

    def predictor_files(self, checkpoint=None):
        """Returns the paths of files and folders on which the output of a predictor depends."""
        reports = sorted(self.tokens.rglob("report.json"))  # of the shards, for kNN-MT
        members = [self._find_weights(path) for path in _as_list(checkpoint)]
        configs = [run._config for run, _ in members]
        return [*(weights for _, weights in members), *configs, self.vocabulary, *reports]

    def load_predictor(self, checkpoint=None, ensemble_mean=None, **decode):
        """Returns the trained model's predictor, for example a `Translator`.

        Args:
            checkpoint: path of a checkpoint; None: see `newest_weights`. A list of several makes an
                `Ensemble`; they may belong to other runs, and a run's folder means its newest
                weights.
            ensemble_mean: `mean` of the `Ensemble`; None: probabilities.
            **decode: fields of config.decode to use instead of the config's, and fields of
                config.knn with the prefix "knn_"; None keeps the config's.

        Raises:
            InputError: if a field is out of its range, something is missing in the folder, or an
                ensemble's runs have other tasks or vocabularies.
        """
        config = self.load_config()
        given = {name: value for name, value in decode.items() if value is not None}
        knn = {field: given.pop(f"knn_{field}") for field in config.knn if f"knn_{field}" in given}
        task = make_task(config)
        settings = task.predictor.settings_type
        given = settings.checked(given, "--")
        with config.ignore_type():  # of a config that holds a whole number for a float
            config.knn.update(knn)
            config.decode.update(given)
        if unknown := [x for x in config.decode if x not in settings_of(settings)]:
            raise InputError(
                f"{self._config} has decode.{unknown[0]}, which this version of t2t_keras does not "
                "know: use the version that wrote it."
            )
        for field in knn:
            if field != "k" and not config.knn.k:
                raise InputError(f"--knn_{field} is for kNN-MT: also give --knn_k.")
        members = _as_list(checkpoint)
        if len(members) == 1 and ensemble_mean:
            raise InputError("--ensemble_mean is for several models: also give --checkpoint=A,B.")
        if knn_settings(task) and len(members) > 1:  # before the model is made
            raise InputError("kNN-MT is for one checkpoint: give one, or leave --knn_k out.")
        models = [self._load_model(task, path) for path in members]
        if len(models) == 1:
            model = with_knn(task, models[0], self.tokens)
        else:
            model = Ensemble(models, ensemble_mean or ENSEMBLE_MEANS[0])
        return task.make_predictor(model, task.load_tokenizer(self.vocabulary))

    def _load_model(self, task, path):
        """Returns a model with the weights of `_find_weights`; `task` is this run's."""
        run, weights = self._find_weights(path)
        if run is not self:
            config = run.load_config()
            kinds = [task_name(c) for c in (task.config, config)]
            if kinds[0] != kinds[1]:
                raise InputError(
                    f"--checkpoint={path} is from a run of {kinds[1]}, and {self.path} is a run of "
                    f"{kinds[0]}: give runs of one task."
                )
            task = make_task(config)
            own, other = (load_tokenizer(r.vocabulary).fingerprint() for r in (self, run))
            if own != other:
                raise InputError(
                    f"--checkpoint={path} and {self.path} have different vocabularies: give runs "
                    "that learned them from the same text."
                )
        model = task.make_model()
        restore_weights(model, weights)
        return model

    def _find_weights(self, path):
        """Returns the `Workdir` of a checkpoint or run, None for this, and its weights' path."""
        if path is None:
            return self, newest_weights(self.checkpoints)
        path = pathlib.Path(path)
        is_run = (path / self._config.name).exists()
        folder = path if is_run else path.parent.parent
        if not (folder / self._config.name).exists() or folder.resolve() == self.path.resolve():
            run = self
        else:
            run = Workdir(folder)
        return run, newest_weights(run.checkpoints) if is_run else path


def knn_settings(task):
    """Returns the settings of `KNNTransformer`, a dict; None if config.knn.k is 0."""
    settings = dict(task.config.knn)
    if not settings["k"]:
        return None
    if task.metric != "bleu":
        raise InputError(f"knn.k is {settings['k']}: give 0, kNN-MT is for translation.")
    if task.config.data.get("corpora"):
        raise InputError(f"knn.k is {settings['k']}: give 0, kNN-MT is for one corpus.")
    return settings


def with_knn(task, model, tokens):
    """Returns the `KNNTransformer` of the training shards; the model itself if config.knn.k is 0.

    Raises:
        InputError: if `tokens`, their folder, has none, or a field is out of its range.
    """
    settings = knn_settings(task)
    if settings is None:
        return model
    # Each pair in a row of its own, whatever the batching of the training.
    batcher = LengthBuckets(tokens_per_batch(task.config))
    try:
        batches = evaluation_batches(tokens, task.config.data.train_split, batcher)
    except InputError as error:
        raise InputError(f"kNN-MT: {error}, or give --knn_k=0") from error
    return KNNTransformer(model, build_datastore(model, batches), **settings)


def _as_list(checkpoint):
    return (list(checkpoint) or [None]) if isinstance(checkpoint, list | tuple) else [checkpoint]


def _corpus_digests(task):
    """Returns {(part, side): (SHA-256 of its texts, their place)} for the texts of training."""
    data, corpus = task.config.data, task.make_corpus()
    by_side = {}
    name = data.get("corpora") or data.folder or data.get("tfds")
    splits = data.train_split, data.validation_split
    for part in (part for split in splits for part in parts_of(task.config, split)):
        digests = text_digests(corpus.examples(part))
        files = corpus.files(part) if hasattr(corpus, "files") else {}
        for side, digest in digests.items():
            by_side[part, side] = digest, files.get(side) or f"the {side}s of {name}"
    if path := data.get("parsed_trees"):
        by_side[data.train_split, "parsed_trees"] = sha256_of(local_path(path)), path
    return by_side
