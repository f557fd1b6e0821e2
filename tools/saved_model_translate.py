"""Translates standard input with an exported SavedModel, without importing t2t_keras.

Usage: python tools/saved_model_translate.py EXPORT/1 < sentences.txt
"""

import os
import pathlib
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops

_BATCH_SIZE = 64


def main(arguments):
    if len(arguments) != 1:
        sys.exit("error: give one folder: python tools/saved_model_translate.py EXPORT/1")
    folder = pathlib.Path(arguments[0])
    if not (folder / "saved_model.pb").is_file():
        inner = sorted(path.parent.name for path in folder.glob("*/saved_model.pb"))
        advice = f"one of its folders, {', '.join(inner)}" if inner else "an export, EXPORT/1"
        sys.exit(f"error: {folder} has no saved_model.pb: give {advice}.")
    try:
        _translate(str(folder))
    except BrokenPipeError:  # whoever reads the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError, TypeError, KeyError, tf.errors.OpError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        sys.exit(
            f"error: {folder} cannot translate this ({reason}): give an export of a bilingual "
            "translation model, with the signature serving_default, and lines of text."
        )
    assert "t2t_keras" not in sys.modules


def _translate(folder):
    translate = tf.saved_model.load(folder).signatures["serving_default"]
    # Only a line feed ends a line. The graph reads bytes that are not UTF-8 as U+FFFD.
    lines = sys.stdin.buffer.read().removesuffix(b"\n").split(b"\n")
    lines = [line.removesuffix(b"\r") for line in lines] if lines != [b""] else []
    for start in range(0, len(lines), _BATCH_SIZE):
        batch = lines[start : start + _BATCH_SIZE]
        outputs = translate(text=tf.constant(batch))
        rows = zip(batch, outputs["translation"].numpy(), outputs["score"].numpy(), strict=True)
        for line, translation, score in rows:
            sys.stdout.buffer.write(b"%s\n    %s   (score %.2f)\n" % (line, translation, score))
    sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
