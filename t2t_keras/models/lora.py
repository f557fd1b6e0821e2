"""LoRA: fine-tuning by a few weights (Hu et al. 2022, "Low-Rank Adaptation").

The weights of a trained model are frozen. Each `Linear` gets two small trainable matrices A and B,
whose product is added to its own matrix; searches, exports and `save` merge it.
"""

from typing import Any

import keras

from t2t_keras import keras_compat
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.layers.basic import Linear
from t2t_keras.models.trainable_model import TrainableModel


def enable_lora(model: keras.Model, rank: int, lora_alpha: float | None = None) -> None:
    """Freezes a trained model and adds two small trainable matrices to every `Linear`.

    x W becomes x (W + A B · α / rank), with A [width, rank] and B [rank, units] in float32. B
    begins with zeros, so that the model computes the same until it is trained. Embeddings, norms
    and biases are frozen as well. To train one of these layers, such as the `head` of a new
    classifier, set its `trainable`. Compile the model afterward.

    Args:
        model: any built Keras model with `Linear`s.
        rank: columns of A; 4 to 64 are usual.
        lora_alpha: α, the weight of A B is α / rank; rank if None.

    Raises:
        InputError: if the rank is less than 1, no layer is a `Linear`, or one has LoRA already.

    Example:
        >>> translator.save("trained")
        >>> tuned = t2t.load("trained")  # or t2t.load_marian("opus-mt-en-de")
        >>> t2t.models.enable_lora(tuned.model, rank=8)
        >>> tuned.model.compile(keras.optimizers.Adam(1e-3), t2t.LabelSmoothedCrossEntropy())
        >>> pairs = tf.data.Dataset.from_tensors(("The old man.", "Der alte Mann."))
        >>> batches = t2t.LengthBuckets(4096)(t2t.encode_pairs(pairs, tuned.tokenizer))
        >>> history = tuned.model.fit(batches, epochs=2, verbose=0)
        >>> tuned.save("tuned")  # A B is merged: a model without LoRA
        >>> t2t.load("tuned")(["The old man."]) == tuned(["The old man."])
        True
    """
    rank = require_whole_number("rank", rank)
    linears = [layer for layer in keras_compat.all_layers(model) if isinstance(layer, Linear)]
    if not linears:
        raise InputError(f"{model.name} has no Linear for LoRA: build the model first.")
    if any(layer.lora_enabled for layer in linears):
        raise InputError(f"{model.name} has LoRA already: merge_lora makes a model without it.")
    for weight in model.weights:
        weight.trainable = False
    for layer in keras_compat.all_layers(model):
        if not any(isinstance(part, Linear) for part in keras_compat.all_layers(layer)):
            layer.trainable = False  # so that a user can set it to True
    for layer in linears:
        layer.enable_lora(rank, lora_alpha)
    if isinstance(model, keras.Model):  # its optimizer and graphs know neither A nor B
        model.compiled, model.predict_function = False, None


def merge_lora(model: keras.Model) -> Any:
    """Returns a copy of a model whose matrices are W + A B · α / rank, without LoRA.

    It is of the same class, and the `model` itself if it has no LoRA.

    Raises:
        InputError: for a model with LoRA that is not one of this library's trainable models.

    Example:
        >>> model = t2t.Transformer(t2t.TransformerConfig.tiny(vocab_size=100))
        >>> t2t.models.enable_lora(model, rank=4)
        >>> t2t.models.merge_lora(model).count_params() < model.count_params()
        True
    """
    if not any(getattr(layer, "lora_enabled", False) for layer in keras_compat.all_layers(model)):
        return model
    if not isinstance(model, TrainableModel):
        raise InputError(f"a {type(model).__name__} can't be copied: merge the model inside it.")
    merged = type(model).from_config(model.get_config())
    merged.build_all_layers()
    layers = keras_compat.all_layers(model), keras_compat.all_layers(merged)
    for layer, new in zip(*layers, strict=True):
        weights = {}
        layer.save_own_variables(weights)  # a `Linear` saves its kernel with A B in it
        new.load_own_variables(weights)
    return merged
