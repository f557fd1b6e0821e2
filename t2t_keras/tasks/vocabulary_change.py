"""Another vocabulary for a trained translator, before it is trained further.

Start with `change_vocabulary`.
"""

import dataclasses

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras.data.base_tokenizer import BOS_ID, Tokenizer
from t2t_keras.errors import InputError
from t2t_keras.models.lora import merge_lora
from t2t_keras.models.transformer import Transformer
from t2t_keras.tasks.translation import Translator
from t2t_keras.training.checkpoints import weight_variables


def change_vocabulary(translator: Translator, tokenizer: Tokenizer) -> Translator:
    """Returns a translator with another tokenizer and a new model, to be trained further.

    Tokens that both vocabularies have keep their rows of the embeddings, of the output projection
    and of its bias; the rows of the others are initialized as in a new model. All other weights, of
    which LoRA becomes a part, and the settings stay. How many rows are kept is logged.

    Args:
        translator: of a `Transformer`; it is not changed.
        tokenizer: with one vocabulary where the model shares one, else one for each side.

    Raises:
        InputError: if the model is not a `Transformer`, one of the tokenizers has language tokens,
            or the model shares one vocabulary and the new tokenizer has one for each side.

    Example:
        >>> tokenizer = t2t.train_tokenizer("bpe", texts, vocab_size=8_000)
        >>> translator = change_vocabulary(translator, tokenizer)
    """
    old, old_tokenizer = translator.model, translator.tokenizer
    if type(old) is not Transformer:
        raise InputError(
            f"the model is a {type(old).__name__}: give a translator of a Transformer."
        )
    old = merge_lora(old)
    if getattr(old_tokenizer, "languages", None) or getattr(tokenizer, "languages", None):
        raise InputError("a vocabulary with language tokens cannot be changed: keep the model's.")
    shared = old.config.source_vocab_size is None
    if shared and tokenizer.target is not tokenizer:
        raise InputError(
            "the model shares one vocabulary, and the new tokenizer has one for each side: give a "
            "tokenizer with one shared vocabulary."
        )
    sizes = {"vocab_size": tokenizer.target.vocab_size}
    if not shared:
        sizes["source_vocab_size"] = tokenizer.vocab_size
    model = Transformer(dataclasses.replace(old.config, **sizes), dtype=old.dtype_policy)
    target = _equal_tokens(old_tokenizer.target, tokenizer.target, "target" if not shared else "")
    source = target if shared else _equal_tokens(old_tokenizer, tokenizer, "source")
    rows = {id(model.source_embedding.matrix): source, id(model.embedding.matrix): target}
    rows[id(model.output_projection.matrix)] = target
    if model.output_bias is not None:
        rows[id(model.output_bias)] = target
    weights = weight_variables(old)
    for name, variable in weight_variables(model).items():
        value = weights[name].numpy()
        if id(variable) in rows:
            ids, old_ids = rows[id(variable)]
            changed = variable.numpy()
            changed[ids] = value[old_ids]
            value = changed
        variable.assign(value)
    return Translator(model, tokenizer, **vars(translator.settings))


def _equal_tokens(old, new, side):
    """Returns the ids in `new` of the tokens that `old` has, too, and their ids there."""
    known = {piece: i for i, piece in reversed([*enumerate(_pieces(old))]) if i > BOS_ID}
    pairs = [(i, i) for i in range(BOS_ID + 1)]  # padding, end, unknown, start
    pieces = _pieces(new)
    pairs += [(i, known[p]) for i, p in enumerate(pieces) if i > BOS_ID and p in known]
    logging.info(
        "Vocabulary%s: %d of %d tokens keep their weights, %d are initialized",
        f" of the {side}" if side else "",
        len(pairs),
        len(pieces),
        len(pieces) - len(pairs),
    )
    return np.array(pairs).T


def _pieces(tokenizer):
    return tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy().tolist()
