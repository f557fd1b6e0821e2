"""A clean process: loads a SavedModel as a model server does, with TensorFlow only, and answers.

Run as a script. It reads a pickled (directory, requests) from standard input, each request a pair
(signature, inputs), and writes the pickled answers to standard output: for each request a dict of
arrays, or a str with an error message.
"""

import os
import pickle
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops


def main():
    # Standard output is for the answers; prints of libraries are redirected to standard error.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    directory, requests = pickle.load(sys.stdin.buffer)
    with tf.compat.v1.Session(graph=tf.Graph()) as session:
        graph = tf.compat.v1.saved_model.load(session, ["serve"], directory)
        answers = [_answer(session, graph.signature_def, *request) for request in requests]
    libraries = {module.partition(".")[0] for module in sys.modules}
    assert not libraries & {"t2t_keras", "pipelines"}, "this process may import TensorFlow only"
    pickle.dump(answers, output)
    output.close()


def _answer(session, signatures, name, inputs):
    if name not in signatures:
        return f"there is no signature {name!r}, only {', '.join(signatures)}"
    signature = signatures[name]
    feed = {signature.inputs[key].name: value for key, value in inputs.items()}
    try:
        return session.run({key: out.name for key, out in signature.outputs.items()}, feed)
    except (ValueError, TypeError, tf.errors.OpError) as error:
        return str(error).partition("\n")[0]


if __name__ == "__main__":
    main()
