"""Trained predictors as folders that load in one line.

`Predictor.save` writes a bundle, and `loading.load` reads it. `predictor.json` contains the task,
the model's config and settings, the folder `vocabulary` the tokenizer, and `weights` a checkpoint
of the weights. The workdir of a training contains the first two, and checkpoints instead of
`weights`. No file contains code, and loading runs none.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import functools
import os
from typing import Any, ClassVar

import tensorflow as tf

from t2t_keras import keras_compat, ops
from t2t_keras.data.base_tokenizer import Tokenizer, require_tokenizer
from t2t_keras.data.files import new_folder, write_json
from t2t_keras.data.texts import as_list
from t2t_keras.errors import InputError
from t2t_keras.graphs import kept_function
from t2t_keras.models.lora import merge_lora
from t2t_keras.models.trainable_model import TrainableModel
from t2t_keras.models.transformer import Transformer
from t2t_keras.settings import Settings
from t2t_keras.tasks.requests import TEXT, RequestKind
from t2t_keras.tasks.terms import ask
from t2t_keras.tasks.text_io import check_vocab_size, predict
from t2t_keras.training.checkpoint_files import write_checkpoint
from t2t_keras.training.checkpoints import weight_variables
from t2t_keras.types import StrPath, Texts

DESCRIPTION_FILE = "predictor.json"
VOCABULARY_FOLDER = "vocabulary"
WEIGHTS_FOLDER = "weights"
VERSION = 1

PREDICTORS = {}
"""{task: the class of `Predictor` that names it}, which `load` makes."""

_PARTS = {"model", "tokenizer", "settings"}
"""Attributes of a `Predictor` that must go together."""


class Predictor(keras_compat.SavedSignature, tf.Module):
    """A model with a tokenizer, from text to answers; base of `Translator` and others.

    Model, tokenizer and settings may be replaced at any time; the next call then traces new graphs.
    Each setting is also an attribute: `translator.beam_size = 8` replaces `translator.settings`. A
    name that nearly is one, such as beamsize, raises InputError, unless a class defines it.

    A subclass sets `task`, its name in a bundle, `settings_type`, a dataclass of `Settings`,
    `model_type`, the class of the model in a bundle, `model_attributes`, names that any model must
    have, and `requests`, {name: `RequestKind`}. If its graphs read variables outside the model,
    `tracked` lists them, and `export_record` describes them in export.json.

    Args:
        model, tokenizer: see the subclass.
        *values, **settings: arguments of the `settings_type`.

    Attributes:
        settings: instance of the `settings_type`.
        graphs: dict that calls keep until something is replaced: the traced functions, see
            `kept_function`, and `tasks.search.Searches`.
        reading: function that wraps each of these functions; an export sets it on a copy, so that
            they read the weights that it stores.
    """

    task = ""
    settings_type = Settings
    model_type = Transformer
    model_attributes = ()
    requests: ClassVar = {}
    reading = staticmethod(lambda function: function)
    tracked = ()
    export_record: ClassVar = {}

    def __init_subclass__(cls):
        super().__init_subclass__()
        if "task" in vars(cls):
            PREDICTORS[cls.task] = cls

    def __init__(self, model: Any, tokenizer: Tokenizer, *values, **settings):
        super().__init__(name=type(self).__name__.lower())
        self.model = model
        self.tokenizer = tokenizer
        self.settings = self.settings_type(*values, **settings)

    def __setattr__(self, name, value):
        names = _names_of(self.settings_type)
        is_own = name in {*_PARTS, *vars(self)} or hasattr(type(self), name)  # no getter is called
        if name in names:
            name, value = "settings", dataclasses.replace(self.settings, **{name: value})
        elif not (is_own or name.startswith("_")):
            for near in difflib.get_close_matches(name, names, 1, cutoff=0.8):
                raise InputError(
                    f"a {type(self).__name__} has no setting {name!r}: give {near}. An attribute "
                    "of your own with this name needs a default in its class."
                )
        if name in _PARTS and {name, *vars(self)} >= _PARTS:
            changed = copy.copy(self)
            vars(changed)[name] = value
            changed.check()
        super().__setattr__(name, value)
        vars(self)["graphs"] = {}  # not by setattr, which would have TensorFlow save them

    def __getattr__(self, name):
        if name in _names_of(type(self).settings_type):
            return getattr(self.settings, name)
        raise AttributeError(f"a {type(self).__name__} has no attribute {name!r}")

    def __getstate__(self):  # for copies and pickle
        return {
            # TensorFlow's lists of what an object tracks would be shared by its copies.
            name: copy.copy(value) if name.startswith("_self_") else value
            for name, value in vars(self).items()
        } | {"graphs": {}}

    def check(self):
        """Raises InputError if model, tokenizer and settings do not fit together."""
        require_tokenizer(self.tokenizer)
        for name in self.model_attributes:
            if not hasattr(self.model, name):
                raise InputError(
                    f"The model is a {type(self.model).__name__}, without {name!r}: give a "
                    f"{self.model_type.__name__}, or a model that has "
                    f"{', '.join(self.model_attributes)}."
                )
        for other in PREDICTORS.values():
            is_own = isinstance(self.model, self.model_type)
            if isinstance(self.model, other.model_type) and not is_own:
                raise InputError(
                    f"The model is a {type(self.model).__name__}, the model of a "
                    f"{other.__name__}: give a {self.model_type.__name__}."
                )
        check_vocab_size(self.model, self.tokenizer)

    @property
    def trace_key(self):
        """What distinguishes graphs of one method, a str: how they compute."""
        options = ops.options()
        return f"{options.device} {options.plain} {options.compiled_search}"

    def run(self, name: str, **inputs) -> dict:
        """Runs the graph of a request, which is traced once for inputs of these names and ranks.

        Args:
            name: one of `requests`.
            **inputs: tensors [batch, ...] by name; those that are None are left out.

        Returns:
            {output: tensor}, all outputs of the request's graph.

        Raises:
            InputError: if the graph refuses the terms.
        """
        inputs = {key: tf.convert_to_tensor(x) for key, x in inputs.items() if x is not None}
        names = tuple(inputs)

        def graph(self, *values):
            return self.requests[name].graph(self, **dict(zip(names, values, strict=True)))

        specs = [tf.TensorSpec([None] * x.shape.rank, x.dtype, key) for key, x in inputs.items()]
        key = " ".join([name, *(f"{x.name}:{x.shape.rank}" for x in specs)])

        def call():
            return kept_function(self, key, graph, specs)(*inputs.values())

        on_gpu = ops.visible_device() == "gpu" and tf.executing_eagerly()
        if on_gpu and self.requests[name].searches:
            return ask(self.run_on_gpu, call)
        return ask(call)

    def run_on_gpu(self, call):
        """Returns call(), the outputs of a request that `searches`; see `SearchPredictor`."""
        return call()

    def predict(self, texts: Texts, batch_size: int | None = None, verbose: int = 0) -> list:
        """Answers any number of texts, in the forms of a call and with its errors.

        Args:
            batch_size: texts of similar length that are computed together. None: 64 on CPUs; on
                GPUs as many as have 32,768 characters, up to 1,024.
            verbose: 1 shows a progress bar.
        """
        return predict(self, self.as_list(texts), batch_size, verbose)

    @staticmethod
    def as_list(texts):
        """Returns the texts of a call as a list of bytes."""
        return as_list(texts)

    @property
    def saved_inputs(self):
        text_alone = RequestKind(self.saved_call, (TEXT,))
        request = self.requests.get("serving_default", text_alone)
        return [x.spec for x in request.inputs_of(self)]

    def merged(self) -> Predictor:
        """Returns a predictor whose model has no LoRA, see `merge_lora`; itself if it has none."""
        is_trainer = isinstance(self.model, TrainableModel)  # others merge it when they are made
        model = merge_lora(self.model) if is_trainer else self.model
        if model is self.model:
            return self
        predictor = copy.copy(self)
        predictor.model = model
        return predictor

    def save(self, folder: StrPath) -> None:
        """Writes everything that `t2t_keras.load` needs: model, tokenizer, settings.

        The folder appears under its name when it is complete. LoRA is merged into the weights.

        Raises:
            InputError: if the folder exists and is not empty, or the model's class is not exactly
                `model_type`: it is an ensemble, kNN-MT or a subclass.

        Example:
            >>> translator.save("translator")
            >>> t2t_keras.load("translator")(["Hello world."])
        """
        with new_folder(folder, lambda: "give the name of a new folder") as path:
            write_description(path, self)
            self.tokenizer.save(os.path.join(path, VOCABULARY_FOLDER))
            weights = weight_variables(self.merged().model)
            write_checkpoint(
                os.path.join(path, WEIGHTS_FOLDER),
                {name: variable.value for name, variable in weights.items()},
            )


@functools.cache
def _names_of(settings_type):
    return frozenset(field.name for field in dataclasses.fields(settings_type))


def write_description(folder, predictor):
    """Writes the description of a `Predictor`, which `load` reads."""
    model = predictor.model
    require_savable(type(predictor), model)
    description = {
        "version": VERSION,
        "task": predictor.task,
        "model": dataclasses.asdict(model.config),
        "head": model.head_settings,
        "settings": dataclasses.asdict(predictor.settings),
    }
    write_json(os.path.join(folder, DESCRIPTION_FILE), description)


def require_savable(predictor, model):
    """Raises InputError if a predictor of this class with this model can't be saved."""
    if type(model) is not predictor.model_type:
        raise InputError(
            f"a {predictor.__name__} of a {type(model).__name__} can't be saved, only one of a "
            f"{predictor.model_type.__name__}: for kNN-MT and ensembles save each model."
        )
