"""An export on the side of the caller: loaded in Python and asked, in one pair of languages."""

import contextlib
import re

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of an exported tokenizer

from t2t_keras.data.files import check_checksums, tensorflow_path
from t2t_keras.data.language_template import advised_codes
from t2t_keras.errors import InputError
from t2t_keras.tasks.terms import ask


class LoadedExport:
    """The signatures of a SavedModel that `export_saved_model` wrote.

    Args:
        directory: its folder, the value of --saved_model.
        source_language, target_language: those of all texts, for an export of many languages.

    Attributes:
        signatures: {name: concrete function}.

    Raises:
        InputError: if the folder is damaged or holds no SavedModel.
    """

    def __init__(self, directory, source_language=None, target_language=None):
        check_checksums(directory)
        try:
            with tensorflow_path(directory) as path:
                # Keeps the variables alive: signatures hold weak references only.
                self._model = tf.saved_model.load(path)
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise InputError(
                f"--saved_model={directory} cannot be loaded as a SavedModel ({error}): give the "
                "numbered folder that pipelines.export printed."
            ) from error
        self.signatures = self._model.signatures
        self._languages = source_language, target_language

    def ask(self, name, **inputs):
        """Returns the outputs of a signature for inputs by name, `text` among them, [batch] each.

        Raises:
            InputError: if the signature refuses the terms or a language, needs a language that is
                missing, or takes none.
        """
        signature, count = self.signatures[name], len(inputs["text"])
        codes = language_inputs(signature, *self._languages)
        codes = {key: tf.fill([count], code) for key, code in codes.items()}
        with _unknown_languages_refused():
            return ask(signature, **inputs, **codes)


def language_inputs(signature, source_language, target_language):
    """Returns the languages that an exported signature takes, {name: code}; {} if bilingual.

    `signature` is one of a loaded SavedModel; source and target language are for all texts.

    Raises:
        InputError: if a language is missing, or is given to a bilingual model.
    """
    _, inputs = signature.structured_input_signature
    given = {"source_language": source_language, "target_language": target_language}
    for name, code in given.items():
        if code is not None and name not in inputs:
            raise InputError(
                f"{name} is {code!r}, and this export translates from one language into one other: "
                "leave it out."
            )
    if "target_language" in inputs and target_language is None:
        raise InputError("target_language is missing: this export has many languages; give one.")
    return {name: code or "" for name, code in given.items() if name in inputs}


@contextlib.contextmanager
def _unknown_languages_refused():
    """Turns the error of a signature that got an unknown language into an `InputError`."""
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        form = r'(\w+_language holds "?)(.*?)("?: )give one of (.*) for each text\.'
        if reason := re.search(form, error.message):
            *holds, codes = reason.groups()
            advice = advised_codes(holds[1], codes.split(", "))
            raise InputError(f"{''.join(holds)}{advice} for each text.") from error
        raise
