"""The sum of a shared matrix's gradients, against the same sum in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import LabelSmoothedCrossEntropy, Transformer, TransformerConfig
from t2t_keras.layers.embedding import SharedEmbedding
from t2t_keras.layers.readings import readings

rng = np.random.default_rng(5)


@pytest.mark.parametrize("decorate", [lambda f: f, tf.function], ids=["eager", "graph"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0)])
@pytest.mark.parametrize("read_whole", [True, False])
def test_gradients_of_rows_and_of_the_whole_add_up(decorate, order, read_whole):
    matrix = tf.Variable(rng.normal(size=(6, 3)).astype("float32"))
    factors = rng.normal(size=(6, 3)).astype("float32") * read_whole
    rows = [[4, 4, 0], [4, 5, 1]]  # one occurs twice in one reading and once in another

    @decorate
    def gradient():
        with tf.GradientTape() as tape:
            read = readings(matrix, 4)  # the last one is read by nobody
            first, second, whole = (read[place] for place in order)
            loss = tf.reduce_sum(tf.gather(first, rows[0]) * 2)
            loss += tf.reduce_sum(tf.gather(second, rows[1]) * 3)
            if read_whole:
                loss += tf.reduce_sum(whole * factors)
        return tape.gradient(loss, matrix)

    expected = factors.copy()
    np.add.at(expected, rows[0], 2)
    np.add.at(expected, rows[1], 3)
    for _ in range(2):  # nothing is left over from the first time
        np.testing.assert_allclose(gradient(), expected, rtol=1e-6)


def test_a_frequent_words_gradient_is_added_up_in_float32():
    """In bfloat16 a sum of ones ends at 256."""
    layer = SharedEmbedding(3, 16, dtype="mixed_bfloat16")
    layer.build()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tf.cast(layer(tf.ones([2, 500], tf.int32)), tf.float32))
    gradient = tf.convert_to_tensor(tape.gradient(loss, layer.matrix.value))
    np.testing.assert_array_equal(gradient, np.outer([0, 1, 0], np.full(16, 1000 * 4.0)))


def test_a_training_step_makes_no_matrix_of_a_few_rows_gradient():
    """TensorFlow would add them up in one of the matrix's shape by UnsortedSegmentSum."""
    model = Transformer(TransformerConfig.tiny(50, num_encoder_layers=1, num_decoder_layers=1))
    model.compile(keras.optimizers.SGD(1.0), LabelSmoothedCrossEntropy(0.1))
    ids = tf.ones([2, 3], tf.int32)
    batch = {"source_ids": ids, "target_ids": ids}, ids, tf.ones([2, 3])
    graph = tf.function(model.train_step).get_concrete_function(batch).graph
    found = {node.type for node in graph.get_operations()}
    assert "TensorScatterAdd" in found
    assert "UnsortedSegmentSum" not in found
