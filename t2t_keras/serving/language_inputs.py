"""The languages that an exported signature takes, on the side of the caller."""

import contextlib
import re

import tensorflow as tf

from t2t_keras.data.language_template import advised_codes
from t2t_keras.errors import InputError


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
def unknown_languages_refused():
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
