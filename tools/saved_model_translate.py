"""Translates standard input with an exported SavedModel, without importing t2t_keras.

Usage: python tools/saved_model_translate.py EXPORT/1 < sentences.txt
"""

import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops


def main(directory):
    for stream in (sys.stdin, sys.stdout):
        stream.reconfigure(encoding="utf-8", errors="surrogateescape")
    translate = tf.saved_model.load(directory).signatures["serving_default"]
    sentences = sys.stdin.read().splitlines()
    result = translate(text=tf.constant(sentences))
    rows = zip(sentences, result["translation"].numpy(), result["score"].numpy(), strict=True)
    for sentence, translation, score in rows:
        print(f"{sentence}\n    {translation.decode()}   (score {score:.2f})")
    assert "t2t_keras" not in sys.modules


if __name__ == "__main__":
    main(sys.argv[1])
