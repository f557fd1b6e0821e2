"""An export needs no Python: a C program loads it and answers as the translator does."""

import os
import pathlib
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.marian import load_marian
from t2t_keras.serving.export import export_saved_model
from tests.interop import m2m100_folder, marian_folder
from tests.serving.session import GOOD, ODD, graph_of
from tests.tasks import tiny

SOURCE = pathlib.Path(__file__).parent / "native_client" / "client.c"
COMPILER = os.environ.get("CC", "cc")
# The ops of the tokenizers, which a model server has linked in.
OPS = pathlib.Path(tensorflow_text.__file__).parent / "python" / "ops"
OP_LIBRARIES = [
    OPS / "_sentencepiece_tokenizer.so", OPS / "_wordpiece_tokenizer.so", OPS / "_normalize_ops.so",
    OPS / "_regex_split_ops.so",
]  # fmt: skip

TEXTS = [GOOD.encode(), *ODD.values()]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not sys.platform.startswith("linux") or not shutil.which(COMPILER),
        reason=f"the native client needs Linux and a C compiler, and {COMPILER} is none",
    ),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    """Builds the client; gives a function of its arguments and standard input, to its run."""
    binary = tmp_path_factory.mktemp("native") / "client"
    library = tf.sysconfig.get_lib()
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-l:libtensorflow_cc.so.2"]
    flags += ["-l:libtensorflow_framework.so.2", f"-I{tf.sysconfig.get_include()}"]
    flags += [f"-L{library}", f"-Wl,-rpath,{library}"]
    subprocess.run([COMPILER, SOURCE, "-o", binary, *flags], check=True)

    def run(directory, *tensors, stdin=b""):
        # No Python can be found from here.
        return subprocess.run(
            [binary, directory, *OP_LIBRARIES, *tensors],
            input=stdin,
            capture_output=True,
            env={"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "-1"},
            check=False,
        )

    return run


def to_bytes(array):
    """Returns a tensor as the client reads it."""
    array = np.asarray(array, dtype=object if np.asarray(array).dtype.kind in "SO" else None)
    dtype = tf.string if array.dtype == object else tf.as_dtype(array.dtype)
    head = struct.pack(f"ii{array.ndim}q", dtype.as_datatype_enum, array.ndim, *array.shape)
    if dtype != tf.string:
        return head + array.tobytes()
    return head + b"".join(struct.pack("q", len(x)) + x for x in array.ravel())


def from_bytes(stdout):
    """Yields the tensors that the client wrote, as arrays."""
    at = 0

    def take(form):
        nonlocal at
        at += struct.calcsize(form)
        return struct.unpack_from(form, stdout, at - struct.calcsize(form))

    while at < len(stdout):
        dtype, rank = take("=ii")
        shape = take(f"={rank}q")
        count = int(np.prod(shape))
        if dtype == tf.string.as_datatype_enum:
            strings = [take(f"={length}s")[0] for (length,) in (take("=q") for _ in range(count))]
            # Objects, since NumPy's own strings lose NULs at their end.
            yield np.array([*strings, None], object)[:-1].reshape(shape)
        else:
            kind = tf.as_dtype(dtype).as_numpy_dtype
            yield np.frombuffer(stdout, kind, count, at).reshape(shape)
            at += count * np.dtype(kind).itemsize


def answers_of(client, directory, signature, requests):
    """Returns [{output: array}] of requests, each {input: array}, to one run of the client."""
    found = graph_of(directory).signature_def[signature]
    inputs, outputs = ({key: x.name for key, x in s.items()} for s in (found.inputs, found.outputs))
    stdin = b"".join(to_bytes(request[name]) for request in requests for name in inputs)
    tensors = ["--feed", *inputs.values(), "--fetch", *outputs.values()]
    run = client(directory, *tensors, stdin=stdin)
    assert run.returncode == 0, run.stderr
    arrays = [*from_bytes(run.stdout)]
    assert len(arrays) == len(outputs) * len(requests)
    arrays = iter(arrays)
    return [{name: next(arrays) for name in outputs} for _ in requests]


def batches(texts, size):
    return [{"text": texts[i : i + size]} for i in range(0, len(texts), size)]


def assert_equal(found, expected):
    """Compares an answer, a dict of arrays, with that of the live model, a dict of tensors."""
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].shape == tensor.shape
        if tensor.dtype.is_floating:
            np.testing.assert_allclose(found[name], tensor, 1e-4, 1e-5)
        else:
            np.testing.assert_array_equal(found[name], tensor.numpy())


def test_translations_are_those_of_the_translator(client, exported_wordpiece):
    translator = tiny.translator(kind="wordpiece", beam_size=1)
    answers = answers_of(client, exported_wordpiece, "serving_default", batches(TEXTS, 4))
    found = [text.decode("utf-8", "replace") for a in answers for text in a["translation"]]
    assert found == translator(TEXTS)


@pytest.mark.parametrize("kind", ["marian", "m2m100"])
def test_a_pretrained_model_answers_as_its_translator(kind, client, tmp_path):
    if kind == "marian":
        translator = load_marian(marian_folder.write(tmp_path / "hf", separate=True))
    else:
        translator = load_m2m100(m2m100_folder.write(tmp_path / "hf", "m2m100"))
    export_saved_model(translator, tmp_path / "1", signatures=["serving_default"], verify=False)
    texts = [*TEXTS, b">>deu<< The dog.", b">>xyz<<", ">>fra<<\n é".encode(), b"__de__ The dog."]
    codes, languages = getattr(translator.languages, "codes", ()), {}
    if codes:
        for name, sign in (("source_language", 1), ("target_language", -1)):
            languages[name] = [codes[sign * i % len(codes)] for i in range(len(texts))]
    inputs = {"text": texts} | {k: [c.encode() for c in v] for k, v in languages.items()}
    (answer,) = answers_of(client, tmp_path / "1", "serving_default", [inputs])
    found = [text.decode("utf-8", "replace") for text in answer["translation"]]
    assert found == translator(texts, **languages)


def test_batches_of_any_size_are_translated_as_alone(client, exported, live):
    requests = [*batches(TEXTS, 4), {"text": np.zeros([0], object)}, {"text": TEXTS}]
    *some, none, found = answers_of(client, exported, "serving_default", requests)
    assert none and all(len(output) == 0 for output in none.values())
    alone = [live("serving_default")(tf.constant([text])) for text in TEXTS]
    expected = {name: tf.concat([answer[name] for answer in alone], axis=0) for name in found}
    assert_equal(found, expected)
    for name in ("translation", "truncated"):
        assert [x for answer in some for x in answer[name]] == found[name].tolist()
    truncated = {text for text, cut in zip(TEXTS, found["truncated"], strict=True) if cut}
    assert truncated == {text for text in TEXTS if len(text) > 100}


INPUTS = {
    "n_best": {"text": TEXTS},
    "prefix": {"text": [b"The dog", b"", b"\0", b"The man"], "prefix": [b"Der", b"Der \xff", b"",
     b"Der\tHund"]},
    "score": {"text": [b"The dog", b"", "😀".encode()], "translation": [b"Der Hund", b"",
     b"Der\t\0"]},
    "align": {"text": [b"The dog", b"", "e\u0301 😀".encode()], "translation": [b"Der Hund", b"",
     b"Der \xff"]},
    "n_best_tokens": {"text": TEXTS},
    "sample": {"text": [b"The dog", b"", b"\xff", b"The man"], "seed": np.array([-1, 0, 7,
     2**31 - 1], np.int32), "temperature": np.array([1, 1, 0.5, 2], np.float32),
     "top_k": np.array([0, 5, 0, 9], np.int32), "top_p": np.array([1, 1, 0.9, 0.5], np.float32)},
    "decode_ids": {"source_ids": np.array([[70, 71, 72, 1], [0] * 4, [0] * 4, [99, 0, 0, 0]],
     np.int32)},
}  # fmt: skip


@pytest.mark.parametrize("signature", INPUTS)
def test_each_signature_answers_as_the_live_one(served, live, signature):
    inputs = {name: tf.constant(value) for name, value in INPUTS[signature].items()}
    expected = live(signature).get_concrete_function()(**inputs)
    assert_equal(served(signature, **INPUTS[signature]), expected)


def test_an_error_ends_with_a_message_and_code_1(client, tmp_path):
    (tmp_path / "saved_model.pb").write_bytes(b"\x0a\xff no protobuf")
    for name in (".", "missing"):
        run = client(tmp_path / name, "--feed", "a:0", "--fetch", "b:0")
        assert (run.returncode, run.stdout) == (1, b"")
        assert b"error: " in run.stderr
