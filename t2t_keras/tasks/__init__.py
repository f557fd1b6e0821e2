"""Tasks: translation, parsing, classification, generation; from text to text."""

from t2t_keras.tasks.results import Translation
from t2t_keras.tasks.text_io import map_by_length
from t2t_keras.tasks.translation import Translator

__all__ = ["Translation", "Translator", "map_by_length"]
