"""The folder of a run: what lies where, and how its parts come back."""

import json
import os
import pathlib

import ml_collections

from pipelines import experiment
from pipelines.configs import wmt14_en_de_base
from pipelines.knn import knn_settings, with_knn
from pipelines.tasks import make_task
from t2t_keras.data.tokenizers import holds_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import newest_weights
from t2t_keras.training.checkpointing import restore_weights

# A workdir keeps its vocabulary, tokens and weights: these parts of its config can't change.
_FIXED = ("model", "data")
# … but for fields that decide only where data lies and how the next batches are made.
_FREE = {"tfds_data_dir", "batching", "tokens_per_batch", "validation_split", "test_split"}
# What of the training's config decides which numbers an optimizer keeps.
_STATES = {"optimizer": str, "ema_decay": bool}
# Arguments of `load_predictor` that are fields of config.knn.
_KNN = {"knn_k": "k", "knn_temperature": "temperature", "knn_lambda": "interpolation"}
# The fields of config.knn as config.neighbours had them in runs of the first edition.
_OLD_KNN = {
    "k": "count",
    "temperature": "temperature",
    "interpolation": "share",
    "subset_size": "entries",
}


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

    def save_config(self, config):
        """Keeps the config of a run; a later run in the same folder must fit what is made of it.

        Raises:
            InputError: if the folder holds a run of another model, of other data or of another
                optimizer.
        """
        if self._config.exists():
            old = self.load_config()
            if holds_tokenizer(self.vocabulary) or self.tokens.exists():
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
        if "neighbours" in config:
            config.knn.update({new: config.neighbours[old] for new, old in _OLD_KNN.items()})
            del config.neighbours
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
