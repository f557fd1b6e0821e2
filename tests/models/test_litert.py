"""Models run in LiteRT's interpreter (TensorFlow Lite) with its own operations alone."""

import numpy as np
import tensorflow as tf

import t2t_keras as t2t

CONFIG = t2t.TransformerConfig(30, 1, 1, model_dim=8, feed_forward_dim=12, num_heads=2)
IDS = np.array([[5, 8, 9, 2], [7, 2, 0, 0]], np.int32)


BEAMS = 2


def spec(name, value):
    """The type of an input whose sizes are unknown, but for beams, heads and widths."""
    sizes = [None] * len(value.shape)
    if len(sizes) == 4 and value.dtype != tf.bool:  # [batch, heads, length, width]
        sizes[1], sizes[3] = value.shape[1], value.shape[3]
    elif len(sizes) == 4:  # [batch, 1, 1, source]
        sizes[1:3] = 1, 1
    elif sizes and (len(sizes) == 3 or value.shape[1] == BEAMS):  # [batch, beams, …]
        sizes[1] = BEAMS
    return tf.TensorSpec(sizes, value.dtype, name)


def assert_same_in_litert(function, *nests):
    """Compares LiteRT's results with TensorFlow's, of a function of nests of tensors."""
    values = tf.nest.flatten(nests)

    def flat(*tensors):
        return tf.nest.flatten(function(*tf.nest.pack_sequence_as(nests, tensors)))

    specs = [spec(f"input_{i}", value) for i, value in enumerate(values)]
    concrete = tf.function(flat, autograph=False).get_concrete_function(*specs)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([concrete], tf.Module())
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS]
    interpreter = tf.lite.Interpreter(
        model_content=converter.convert(),
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF,
    )
    numbers = {details["name"]: details["index"] for details in interpreter.get_input_details()}
    inputs = {numbers[s.name]: value for s, value in zip(specs, values, strict=True)}
    for number, value in inputs.items():
        interpreter.resize_tensor_input(number, value.shape)
    interpreter.allocate_tensors()
    for number, value in inputs.items():
        interpreter.set_tensor(number, value)
    interpreter.invoke()
    for details, expected in zip(interpreter.get_output_details(), flat(*values), strict=True):
        np.testing.assert_allclose(interpreter.get_tensor(details["index"]), expected, atol=1e-5)


def test_the_encoder_and_a_decoder_step_run_in_litert():
    model, ids = t2t.Transformer(CONFIG), tf.constant(IDS)
    assert_same_in_litert(model.encode, ids)
    state = model.initial_state(model.encode(ids), BEAMS)
    _, state = model.step(tf.constant([[3, 4], [3, 6]]), state)
    assert_same_in_litert(model.step, tf.constant([[5, 9], [2, 7]]), state)


def test_a_classifier_runs_in_litert():
    model = t2t.TransformerClassifier(CONFIG, classes=3)
    assert_same_in_litert(model, tf.constant(IDS))


def test_logits_are_the_same_in_litert():
    model = t2t.Transformer(CONFIG)

    def logits(source, target):
        return model({"source_ids": source, "target_ids": target})

    assert_same_in_litert(logits, tf.constant(IDS), tf.constant(IDS))
