"""Loading trained predictors: `load` makes a `Translator`, `Parser` or `Classifier` of a folder."""

import os

from t2t_keras.data.files import read_json
from t2t_keras.data.tokenizers import load_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.models.classifier import TransformerClassifier
from t2t_keras.models.config import TransformerConfig
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.bundles import DESCRIPTION_FILE, VERSION, VOCABULARY_FOLDER, WEIGHTS_FOLDER
from t2t_keras.tasks.classification import Classifier
from t2t_keras.tasks.parsing import Parser
from t2t_keras.tasks.translation import Translator
from t2t_keras.training.checkpoint_files import newest_weights
from t2t_keras.training.checkpoints import restore_weights

_PREDICTORS = {kind.task: kind for kind in (Translator, Parser, Classifier)}


def load(folder):
    """Loads a predictor from a folder that `save` wrote, or from the workdir of a training.

    Nothing in the folder is run as code.

    Args:
        folder: the folder. Of a workdir the newest weights are taken, averaged ones first, and
            kNN-MT is left out.

    Returns:
        `Translator`, `Parser` or `Classifier`.

    Raises:
        InputError: if the folder is not one of these, or is damaged.

    Example:
        >>> translator.save("translator")
        >>> t2t.load("translator")(["The old man."]) == translator(["The old man."])
        True
    """
    folder = os.fspath(folder)
    path = os.path.join(folder, DESCRIPTION_FILE)
    if not os.path.exists(path):
        hint = ""
        if os.path.exists(os.path.join(folder, "config.json")):
            hint = "; where an earlier version trained it, start the same training again"
        raise InputError(f"{folder} has no {DESCRIPTION_FILE}: it is not a saved predictor{hint}.")
    try:
        description = read_json(path)
        if description["version"] != VERSION:
            raise InputError(
                f"{path} has version {description['version']}, and this library reads {VERSION}."
            )
        kind, settings = _PREDICTORS[description["task"]], description["settings"]
        config, head = TransformerConfig.of(description["model"]), description["head"]
    except InputError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise InputError(f"{path} is damaged ({error}): copy the folder again.") from error
    try:
        tokenizer = load_tokenizer(os.path.join(folder, VOCABULARY_FOLDER))
        is_classifier = kind is Classifier
        model = TransformerClassifier(config, **head) if is_classifier else Transformer(config)
        predictor = kind(model, tokenizer, **settings)
    except TypeError as error:  # an unknown setting
        raise InputError(f"{path} is damaged ({error}): copy the folder again.") from error
    weights = os.path.join(folder, WEIGHTS_FOLDER)
    if not os.path.isdir(weights):
        weights = newest_weights(os.path.join(folder, "checkpoints"))
    restore_weights(model, weights)
    return predictor
