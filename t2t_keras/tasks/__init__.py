"""Where text meets model: how an example becomes tokens, and an output text."""

from t2t_keras.tasks.lines import in_order_of_length
from t2t_keras.tasks.translation import Translation, Translator

__all__ = ["Translation", "Translator", "in_order_of_length"]
