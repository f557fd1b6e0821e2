"""The folder of a run: what lies where, and how its parts come back."""

import json
import os
import pathlib

import ml_collections

from pipelines import experiment, old_fields
from pipelines.configs import wmt14_en_de_base
from pipelines.knn import knn_settings, with_knn
from pipelines.tasks import make_task
from t2t_keras.data.tokenizers import tokenizer_exists
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import newest_weights
from t2t_keras.training.checkpoints import restore_weights

# A workdir keeps its vocabulary, tokens and weights: these parts of its config can't change.
_FIXED = ("model", "data")
# … but for fields that decide only where data lies and how the next batches are made.
_FREE = {
    "tfds_import",
    "tfds_data_dir",
    "batching",
    "tokens_per_batch",
    "validation_split",
    "test_split",
}
_MOST_STARTS = 5  # of several workers from one step, without a checkpoint in between
# What of the training's config decides which numbers an optimizer keeps.
_STATES = {"optimizer": str, "ema_decay": bool}
# Arguments of `load_predictor` that are fields of config.knn.
_KNN = {"knn_k": "k", "knn_temperature": "temperature", "knn_lambda": "interpolation"}


class Workdir:
    """A run's folder.

    Args:
        path: the folder; made by the first `save_config`.

    Attributes:
        vocabulary: folder of the tokenizer.
        tokens: folder of token shards, one folder for each split.
        checkpoints: folder of checkpoints, those of training and averages.
    """

    def __init__(self, path):
        self.path = pathlib.Path(path)
        self.vocabulary = self.path / "vocabulary"
        self.tokens = self.path / "tokens"
        self.checkpoints = self.path / "checkpoints"
        self._config = self.path / "config.json"
        self._starts = self.path / "starts.json"

    def save_config(self, config):
        """Keeps the config of a run; a later run in the same folder must fit what is made of it.

        Raises:
            InputError: if the folder holds a run of another model, of other data or of another
                optimizer.
        """
        if self._config.exists():
            old = self.load_config()
            if tokenizer_exists(self.vocabulary) or self.tokens.exists():
                self._check_unchanged(old, config)
            if any(self.checkpoints.glob("*")):
                self._check_state(old, config)
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self._config.with_suffix(".tmp")
        temporary.write_text(config.to_json(indent=2) + "\n")
        os.replace(temporary, self._config)

    def _check_unchanged(self, old, new):
        paper = wmt14_en_de_base.get_config()
        for part in _FIXED:
            for field, value in new[part].items():
                # A run from before there was such a field had the paper's value.
                held = old[part].get(field, paper[part].get(field))
                if field not in _FREE and held != value:
                    raise InputError(
                        f"{self.path} holds a run with {part}.{field} = {held!r}, "
                        f"not {value!r}: give another --workdir or the old value."
                    )

    def _check_state(self, old, new):
        """Refuses what the optimizer's part of the checkpoints has no numbers for."""
        paper = wmt14_en_de_base.get_config()
        for field, state in _STATES.items():
            held, value = (config.train.get(field, paper.train.get(field)) for config in (old, new))
            if state(held) != state(value):
                raise InputError(
                    f"{self.path} holds checkpoints of train.{field} = {held!r}, not {value!r}: "
                    "give another --workdir or the old value."
                )

    def count_start(self, step):
        """Counts the starts from a step, so that a failure is not restarted for ever.

        A scheduler restarts workers that lost another one. Where the reason is in the run itself,
        each start ends before its first checkpoint.

        Args:
            step: the step from which a run of several workers is about to train.

        Raises:
            InputError: at the start after `_MOST_STARTS` starts from the same step.
        """
        try:
            last = json.loads(self._starts.read_text())
        except (OSError, ValueError):  # the first start, or a file that a kill cut off
            last = {}
        count = last.get("starts", 0) + 1 if last.get("step") == step else 1
        if count > _MOST_STARTS:
            raise InputError(
                f"The last {_MOST_STARTS} starts from step {step} ended before their first "
                f"checkpoint: look for the reason in the workers' messages, delete {self._starts} "
                "and start again."
            )
        self._starts.write_text(json.dumps({"step": step, "starts": count}) + "\n")

    def load_config(self):
        """Returns the config that training kept here.

        Raises:
            InputError: if there is none, or it is damaged.
        """
        if not self._config.exists():
            raise InputError(
                f"{self.path} holds no config.json: give the --workdir of pipelines.train."
            )
        try:
            config = ml_collections.ConfigDict(json.loads(self._config.read_text()))
        except ValueError as error:
            raise InputError(
                f"{self._config} is damaged ({error}): copy it anew, or delete it and start the "
                "training with its old config."
            ) from error
        if "knn" not in config:  # a run of the first edition
            config.knn = wmt14_en_de_base.get_config().knn
        old_fields.translate(config)
        return config

    def newest_weights(self):
        """Returns the path of the newest weights, averaged ones before those of a step."""
        return newest_weights(self.checkpoints)

    def load_predictor(self, checkpoint=None, **decode):
        """Returns the trained model's `Translator`, `Parser` or `Classifier`, as its task has it.

        Args:
            checkpoint: path of a checkpoint; None: the newest, of one step the moving average
                before the average of checkpoints before the step's own.
            **decode: fields of config.decode to use instead of the config's, and of config.knn as
                knn_k, knn_temperature and knn_lambda; None leaves one.

        Raises:
            InputError: if a field is out of its range, or something is missing in the folder.
        """
        config = self.load_config()
        given = {name: value for name, value in decode.items() if value is not None}
        config.knn.update({field: given.pop(n) for n, field in _KNN.items() if n in given})
        config.decode.update(given)
        for name in ("knn_temperature", "knn_lambda"):
            if decode.get(name) is not None and not config.knn.k:
                raise InputError(f"--{name} is for kNN-MT: give --knn_k, too.")
        knn_settings(config)  # before the model is made
        model = experiment.make_model(config)
        restore_weights(model, checkpoint or self.newest_weights())
        model = with_knn(config, model, self.tokens)
        task = make_task(config)
        return task.make_predictor(model, task.load_tokenizer(self.vocabulary))
