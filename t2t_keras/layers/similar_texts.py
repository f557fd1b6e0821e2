"""Which of many texts have most words in common, the rarer ones counting more (tf-idf)."""

import keras
import numpy as np
import tensorflow as tf

from t2t_keras.layers.fixed_weight import add_fixed


class SimilarTexts(keras.layers.Layer):
    """Texts as bags of ids, to be found by others that have the same ids.

    An id weighs log(texts / texts that have it), however often a text has it, and a text's weights
    have the length 1 (Spärck Jones 1972; Salton and Buckley 1988). Weights are vectors only, of as
    many numbers as there are ids in texts.

    Args:
        ids: list of int arrays, the ids of each text; 0 is none.
        vocab_size: int.
    """

    def __init__(self, ids, vocab_size, **kwargs):
        super().__init__(trainable=False, **kwargs)
        self.count = len(ids)
        self.vocab_size = vocab_size
        texts = np.repeat(np.arange(len(ids)), [len(text) for text in ids])
        met = np.unique(np.stack([texts, np.concatenate(ids)], axis=1), axis=0)
        texts, words = met[met[:, 1] != 0].T
        in_texts = np.bincount(words, minlength=vocab_size)
        rarity = np.log(self.count / np.maximum(in_texts, 1)) * (in_texts > 0)
        lengths = np.sqrt(np.bincount(texts, rarity[words] ** 2, minlength=self.count))
        shares = rarity[words] / np.maximum(lengths[texts], 1e-9)
        self.texts = add_fixed(self, "texts", texts, "int32")
        self.words = add_fixed(self, "words", words, "int32")
        self.shares = add_fixed(self, "shares", shares, "float32")
        self.rarity = add_fixed(self, "rarity", rarity, "float32")
        self.built = True

    def find(self, ids, count):
        """Finds the most similar texts.

        Args:
            ids: int32 [batch, length], 0 is none.
            count: int, at most how many there are.

        Returns:
            The texts' numbers, int32 [batch, count], most similar first, of equal ones the earlier.
        """
        batch, length = tf.unstack(tf.shape(ids))
        rows = tf.tile(tf.range(batch)[:, tf.newaxis], [1, length])
        queries = tf.tensor_scatter_nd_max(  # an id counts once
            tf.zeros([batch, self.vocab_size]),
            tf.stack([rows, ids], axis=2),
            tf.gather(tf.convert_to_tensor(self.rarity), ids),
        )
        places = tf.stack([tf.convert_to_tensor(self.texts), tf.convert_to_tensor(self.words)], 1)
        matrix = tf.SparseTensor(
            tf.cast(places, tf.int64),
            tf.convert_to_tensor(self.shares),
            [self.count, self.vocab_size],
        )
        scores = tf.sparse.sparse_dense_matmul(matrix, queries, adjoint_b=True)  # [texts, batch]
        return tf.math.top_k(tf.transpose(scores), count).indices
