"""Trained predictors as folders that load in one line.

`Predictor.save` writes a bundle, and `loading.load` reads it. `predictor.json` has the task, the
model's config and settings, the folder `vocabulary` the tokenizer, and `weights` a checkpoint of
the weights. The workdir of a training has the first two, and checkpoints instead of `weights`. No
file is code, and loading runs none.
"""

import copy
import dataclasses
import os
import shutil
from typing import ClassVar

import tensorflow as tf

from t2t_keras.data.files import replace, write_json
from t2t_keras.errors import InputError
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.lora import merge_lora
from t2t_keras.models.trainable_model import TrainableModel
from t2t_keras.models.transformer import Transformer
from t2t_keras.settings import DECODING
from t2t_keras.tasks.text_io import as_list, predict
from t2t_keras.training.checkpoint_files import write_checkpoint
from t2t_keras.training.checkpoints import weight_variables

DESCRIPTION_FILE = "predictor.json"
VOCABULARY_FOLDER = "vocabulary"
WEIGHTS_FOLDER = "weights"
VERSION = 1


class Predictor(tf.Module):
    """A model with a tokenizer, from text to answers; base of `Translator`, `Parser`, `Classifier`.

    A subclass sets `task` and `setting_names`, the arguments of its constructor that are attributes
    of the same name, and `setting_ranges` where their ranges are not those of `DECODING`. If its
    graphs read variables besides those of the model, `tracked` lists them, and `export_record` is
    what export.json says about them.
    """

    task = ""
    setting_names = ()
    setting_ranges: ClassVar = {}
    tracked = ()
    export_record: ClassVar = {}

    @classmethod
    def check_settings(cls, settings, prefix=""):
        """Checks arguments of the constructor.

        Args:
            settings: {name: value}.
            prefix: str before the names in messages, such as "--".

        Returns:
            {name: value}, numbers as those of Python.

        Raises:
            InputError: if a name is not a setting, or a value is out of its range.
        """
        ranges = DECODING | cls.setting_ranges
        checked = {}
        for name, value in settings.items():
            if name not in cls.setting_names:
                raise InputError(
                    f"{prefix}{name} is not a setting of a {cls.__name__}: leave it out, or give "
                    f"one of {', '.join(cls.setting_names)}."
                )
            checked[name] = ranges[name].check(prefix + name, value) if name in ranges else value
        return checked

    @property
    def settings(self):
        """The arguments of the constructor except model and tokenizer, a dict."""
        return {name: getattr(self, name) for name in self.setting_names}

    def predict(self, texts, batch_size=64, verbose=0):
        """Returns what a call returns, for any number of texts.

        Args:
            texts: as in a call.
            batch_size: int, texts that are computed together, those of similar length.
            verbose: 1 shows a progress bar.

        Returns:
            List of str, in the order of the texts.

        Raises:
            InputError: as in a call.
        """
        return predict(self, self.as_list(texts), batch_size, verbose)

    @staticmethod
    def as_list(texts):
        """Returns the texts of a call as a list of bytes."""
        return as_list(texts)

    def merged(self):
        """Returns a predictor whose model has no LoRA, see `merge_lora`; itself if it has none."""
        is_trainer = isinstance(self.model, TrainableModel)  # kNN-MT keeps A and B
        model = merge_lora(self.model) if is_trainer else self.model
        if model is self.model:
            return self
        predictor = copy.copy(self)
        predictor.model = model
        return predictor

    def save(self, folder):
        """Writes everything that `t2t_keras.load` needs: model, tokenizer, settings.

        The folder appears under its name when it is complete. LoRA is merged into the weights.

        Args:
            folder: the folder to make.

        Raises:
            InputError: if the folder exists and is not empty, or the model is not one of this
                library's own classes.

        Example:
            >>> translator.save("translator")
            >>> t2t_keras.load("translator")(["Hello world."])
        """
        folder = os.path.realpath(folder)
        if os.path.exists(folder) and (not os.path.isdir(folder) or os.listdir(folder)):
            raise InputError(f"{folder} exists already: give the name of a new folder.")
        temporary = f"{folder}.{os.getpid()}.tmp"
        shutil.rmtree(temporary, ignore_errors=True)
        try:
            write_description(temporary, self)
            self.tokenizer.save(os.path.join(temporary, VOCABULARY_FOLDER))
            weights = weight_variables(self.merged().model)
            write_checkpoint(
                os.path.join(temporary, WEIGHTS_FOLDER),
                {name: variable.value for name, variable in weights.items()},
            )
            if os.path.isdir(folder):
                os.rmdir(folder)
            replace(temporary, folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)


def write_description(folder, predictor):
    """Writes the description of a `Predictor`, with which its folder can be loaded."""
    write_json(os.path.join(folder, DESCRIPTION_FILE), _description(predictor))


def _description(predictor):
    model = predictor.model
    if type(model) not in (Transformer, TransformerClassifier):
        raise InputError(
            f"a {type(predictor).__name__} of a {type(model).__name__} can't be saved: only of a "
            "Transformer or TransformerClassifier; of kNN-MT and ensembles save the models alone."
        )
    return {
        "version": VERSION,
        "task": predictor.task,
        "model": dataclasses.asdict(model.config),
        "head": model.head_settings if type(model) is TransformerClassifier else {},
        "settings": predictor.settings,
    }
