"""Loading trained predictors, such as a `Translator`, from a folder."""

import os
from typing import Any

from t2t_keras.data.files import local_path, read_json, visible_names
from t2t_keras.data.tokenizers import load_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig
from t2t_keras.tasks import classification, parsing, translation  # noqa: F401  in PREDICTORS
from t2t_keras.tasks.bundles import (
    DESCRIPTION_FILE,
    PREDICTORS,
    VERSION,
    VOCABULARY_FOLDER,
    WEIGHTS_FOLDER,
)
from t2t_keras.training.checkpoint_files import newest_weights
from t2t_keras.training.checkpoints import restore_weights
from t2t_keras.types import StrPath


def load(folder: StrPath) -> Any:
    """Loads a predictor from a folder that `save` wrote, or from the workdir of a training.

    Nothing in the folder is run as code. From a workdir the weights of the newest step are
    loaded: EMA, average or checkpoint, without kNN-MT.

    Returns:
        `Translator`, `TextGenerator`, `Parser`, `Classifier`, or a `Predictor` of your own whose
        module is imported.

    Raises:
        InputError: if the folder is not one of these, or is damaged.
    """
    folder = local_path(folder)
    path = os.path.join(folder, DESCRIPTION_FILE)
    if not os.path.exists(path):
        raise InputError(_why_not(folder))
    try:
        description = read_json(path)
        if description["version"] != VERSION:
            raise InputError(
                f"{path} has version {description['version']}, and this library reads {VERSION}: "
                "load it with the version of t2t_keras that wrote it."
            )
        if description["task"] not in PREDICTORS:
            raise InputError(
                f"{path} has the task {description['task']!r}, not one of {', '.join(PREDICTORS)}: "
                "import the module of its predictor first."
            )
        kind, settings = PREDICTORS[description["task"]], description["settings"]
        config, head = TransformerConfig.of(description["model"]), description["head"]
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}): copy the folder again.") from error
    try:
        tokenizer = load_tokenizer(os.path.join(folder, VOCABULARY_FOLDER))
        model = kind.model_type(config, **head)
        predictor = kind(model, tokenizer, **settings)
    except TypeError as error:  # an unknown setting
        raise InputError(
            f"{path} does not fit this version of t2t_keras ({error}): load it with the version "
            "that wrote it."
        ) from error
    weights = os.path.join(folder, WEIGHTS_FOLDER)
    if not os.path.isdir(weights):
        weights = newest_weights(os.path.join(folder, "checkpoints"))
    restore_weights(model, weights)
    return predictor


def _why_not(folder):
    """Returns a sentence that explains why a path is not a saved predictor, and the fix."""
    if not os.path.isdir(folder):
        what = "is a file" if os.path.exists(folder) else "does not exist"
        return f"the folder {folder!r} {what}: give one that save or pipelines.train wrote."
    for name, advice in (
        ("saved_model.pb", "it is an export, which pipelines.translate --saved_model reads"),
        ("model.bin", "import it by pipelines.import_model"),
        ("tokenizer_config.json", "import it by pipelines.import_model"),
        ("config.json", "where an earlier version trained it, start the same training again"),
    ):
        if os.path.exists(os.path.join(folder, name)):
            return f"{folder} has no {DESCRIPTION_FILE}: {advice}."
    inner = [n for n in visible_names(folder) if os.path.exists(f"{folder}/{n}/{DESCRIPTION_FILE}")]
    advice = f": give one of its folders, {', '.join(inner)}" if inner else ""
    return f"{folder} has no {DESCRIPTION_FILE}, it is not a saved predictor{advice}."
