"""An exported translator for the demo's server: loaded once, called from any thread."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the ops of an exported tokenizer

from t2t_keras.errors import InputError


class Found(NamedTuple):
    """The translations of one text.

    Attributes:
        translations: list of (str, float), texts and scores, best first.
        truncated: bool, whether the text exceeded the model's limit.
    """

    translations: list
    truncated: bool


class Alignment(NamedTuple):
    """The cross-attention of one translation.

    Attributes:
        source_pieces: list of str, tokens.
        target_pieces: list of str, tokens.
        attention: float32 [layers, heads, target, source]; row t predicts target token t.
    """

    source_pieces: list
    target_pieces: list
    attention: np.ndarray


class ExportedTranslator:
    """The signatures of a SavedModel as functions of Python strings.

    Args:
        directory: folder that `pipelines.export` wrote.

    Raises:
        InputError: if it is no SavedModel or lacks a signature that the page needs.

    Example:
        >>> ExportedTranslator("export/1").translate("Hello world.").translations
        [('Hallo Welt.', -0.3), ('Hallo, Welt.', -0.9)]
    """

    _NEEDED = ("serving_default", "n_best", "align")

    def __init__(self, directory):
        try:
            # Keeps the variables alive: signatures hold weak references only.
            self._model = tf.saved_model.load(directory)
        except (OSError, ValueError, tf.errors.OpError) as error:
            raise InputError(
                f"--saved_model={directory} is no SavedModel that loads ({error}): give the "
                "numbered folder that python -m pipelines.export printed."
            ) from error
        self._signatures = self._model.signatures
        if missing := [name for name in self._NEEDED if name not in self._signatures]:
            raise InputError(
                f"--saved_model={directory} has no signature {' and no '.join(missing)}: export "
                "the model again with python -m pipelines.export, which writes all of them unless "
                "told otherwise."
            )
        # The first run is slower, and a model that fails should fail at start-up.
        self.align("a", self.translate("a").translations[0][0])

    def translate(self, text):
        """Returns `Found` for a str."""
        text = _as_tensor(text)
        found = self._signatures["n_best"](text=text)
        texts, scores = found["translations"][0].numpy(), found["scores"][0].numpy()
        return Found(
            # A score of -inf means that there are no more.
            [(_as_str(t), float(s)) for t, s in zip(texts, scores, strict=True) if np.isfinite(s)],
            # n_best has no such output, so the flag costs a second search.
            bool(self._signatures["serving_default"](text=text)["truncated"][0]),
        )

    def align(self, text, translation):
        """Returns the `Alignment` of a text and a translation, both str."""
        translation = _as_tensor(translation)
        found = self._signatures["align"](text=_as_tensor(text), translation=translation)
        pieces = {
            name: [_as_str(piece) for piece in found[name][0].numpy()]
            for name in ("source_pieces", "target_pieces")
        }
        return Alignment(**pieces, attention=found["attention"][0].numpy())


def _as_tensor(text):
    return tf.constant([text.encode("utf-8", "replace")])


def _as_str(text):
    return text.decode("utf-8", "replace")
