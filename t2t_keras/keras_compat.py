"""Private names of Keras, TensorFlow and tensorflow-text that the library touches.

Nothing else in the library touches one. Each function says why it is needed and which test fails
on the day it can go.
"""

import hashlib

import tensorflow as tf
from tensorflow_text.python.ops import sentencepiece_tokenizer


def share_sentencepiece_resource(tokenizer, model):
    """Gives a SentencePiece tokenizer a resource that survives `tf.random.set_seed`.

    Setting a seed drops TensorFlow's cached kernels. A resource without a name of its own goes with
    the kernel that made it, and tensorflow-text 2.21 gives its resources no name: the tokenizer
    then fails with a lookup error. See `test_seeds_set_later_do_no_harm`.

    Args:
        tokenizer: `tf_text.SentencepieceTokenizer`.
        model: bytes that it was made from.
    """
    with tf.init_scope():
        tokenizer._model_resource._resource_handle = (
            sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(
                model=model, shared_name=f"sentencepiece_{hashlib.sha256(model).hexdigest()}"
            )
        )
