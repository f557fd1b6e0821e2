"""A translator as a SavedModel: text in, text out, no Python behind it."""

import os

import tensorflow as tf

from t2t_keras.data.files import new_folder
from t2t_keras.errors import InputError
from t2t_keras.serving.signatures import SIGNATURES


def export_saved_model(translator, directory):
    """Writes a translator, its tokenizer included, as a SavedModel.

    Its signatures are those of `t2t_keras.serving.signatures`; they run the very graph of the
    translator. The folder appears under its name only when it is complete, so that a model server
    that watches its parent never sees half a version.

    Args:
        translator: `Translator`.
        directory: folder to make, as a rule a version number inside the model's own folder.

    Raises:
        InputError: if the folder exists and holds something.

    Example:
        >>> export_saved_model(translator, next_version("export"))  # export/1
        >>> loaded = tf.saved_model.load("export/1")
        >>> loaded.signatures["serving_default"](tf.constant(["Hello world."]))["translation"]
    """
    directory = os.path.abspath(directory)
    if os.path.exists(directory) and (not os.path.isdir(directory) or os.listdir(directory)):
        base = os.path.dirname(directory) if _is_version(directory) else directory
        raise InputError(f"{directory} exists already: export to {next_version(base)} instead.")
    with new_folder(directory) as folder:
        tf.saved_model.save(
            _Exported(translator),
            folder,
            signatures={name: make(translator) for name, make in SIGNATURES.items()},
        )


def next_version(base):
    """Returns the path of the first version number in folder `base` above all that it holds."""
    entries = os.listdir(base) if os.path.isdir(base) else []
    versions = [int(entry) for entry in entries if _is_version(entry)]
    return os.path.join(base, str(max(versions, default=0) + 1))


class _Exported(tf.Module):
    """What the signatures read; all else of the translator stays behind.

    Weights stay variables: as constants they would have to fit, once for each signature, into
    the 2 GB that a graph may have.
    """

    def __init__(self, translator):
        super().__init__()
        self.tokenizer = translator.tokenizer
        self.weights = [weight.value for weight in translator.model.weights]


def _is_version(path):
    name = os.path.basename(path)
    return name.isascii() and name.isdigit()
