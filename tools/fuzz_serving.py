"""Fuzz test of exports: odd strings and wrong shapes to every signature, from several threads.

python tools/fuzz_serving.py --requests=10000 --seed=0                 # four small random models
python tools/fuzz_serving.py --requests=10000 --saved_model=export/1   # an export of your own

Loads each SavedModel into a session, as a model server does. Requests are drawn from a grammar of
strings (`odd_text`) and of tensors (`Fuzzer.request`). What is checked:

- Each request gets an answer, or a status with a sentence that names the input and says what to
  give. Which of the two is known in advance.
- An answer has a row for each row of the request, valid UTF-8, and no score that is not a number.
  Spans are within their texts. A document keeps its line breaks and its placeholders.
- The answer to a plain request, asked again and again in between, is the same bit for bit. In a
  batch with odd texts a plain text has the same answer; its floats may differ by rounding, since
  the batch has another shape.
- Memory does not grow in the second half. It is measured without oneDNN, which keeps the kernels of
  a thousand shapes for each thread (see serving_load.py).

Prints a table in Markdown and ends with code 1 after a failure. Needs Linux.
"""

import collections
import ctypes
import itertools
import json
import os
import pathlib
import random
import re
import sys
import tempfile
import threading
import time

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "0")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers the tokenizer's ops
from absl import app, flags, logging
from tensorflow.core.protobuf import config_pb2

import t2t_keras as t2t
from t2t_keras.data.language_template import LanguageTemplate
from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.data.treebank import parse_trees
from t2t_keras.serving import export_saved_model
from t2t_keras.serving.signatures import signatures_of
from t2t_keras.tasks.parsing import Parser

SAVED_MODEL = flags.DEFINE_multi_string("saved_model", [], "Folder of an export; may be repeated.")
REQUESTS = flags.DEFINE_integer("requests", 10_000, "Requests, of all exports.", lower_bound=1)
SEED = flags.DEFINE_integer("seed", 0, "Another seed draws other requests.")
THREADS = flags.DEFINE_integer("threads", 4, "Clients at a time.", lower_bound=1)
GROWTH = flags.DEFINE_float("growth", 16, "MiB by which memory may grow in the second half.")
OUTPUT = flags.DEFINE_string("output", "", "JSON file for the figures; empty: none.")

PLAIN = [b"The old man sees a small dog .", b"It works ."]
_DOCUMENTS = "document", "document_terms"
_DOCUMENT = 20_000  # bytes of a document at most: all of it is translated
_TOLERANCE = 1e-4  # of floats, in a batch of another shape
_SAMPLES = 40  # of memory
_SENTENCE = re.compile(
    r"\w+ (has shape \[.*\]: give .*|has \d+ rows and \w+ has \d+: give .*"
    r"|holds the id -?\d+: ids are .*|holds .*: give .*"
    r"|has the line .*([:,] .*give .*|: the vocabulary has no tokens .*)"
    r"|of the text .* take \d+ tokens, .*: give .*)\."
)

# Inputs that are numbers: their type, those of the plain texts, others, and bad ones.
_NUMBERS = {
    "seed": (np.int32, [3, -4], [0, 1, -1, 2**31 - 1, -(2**31)], []),
    "temperature": (np.float32, [0.7, 2], [1, 1e-6, 1e6], [0, -1, np.nan, np.inf, 1e-9]),
    "top_k": (np.int32, [0, 5], [1, 2, 10**6], [-1, 2**31 - 1]),
    "top_p": (np.float32, [1, 0.9], [0.5, 1e-6], [0, -0.5, 1.01, np.nan]),
}

_LANGUAGES = ("source_language", "target_language")
_NO_CODES = [
    b"xx",
    b"DE",
    b"en ",
    b"\xff",
    b"\x00",
    b"a\nb",
    b"<2de>",
    b"x" * 5_000,
    "Ünï".encode(),
]
_PLACEHOLDERS = [b"{name}", b"{other}"]
_MARK = "\ue001".encode()  # of a protected span, which terms of documents may not have


# The grammar -------------------------------------------------------------------------------------

_FRAGMENTS = [
    b"", b" ", b"\t", b"\n", b"\r\n", b"\x00", b"\x7f", b"\xc2\x85",
    "\u00a0\u2028\u3000".encode(), "\u200b\u200d\ufeff".encode(),
    "\u202eאבג\u202c مرحبا".encode(), "👨\u200d👩\u200d👧 🇩🇪 😀".encode(),
    "Z\u0351\u036b\u0343 q\u0323\u0307 \u1112\u1161\u11ab".encode(),
    "\ufdd0\uffff\U0010ffff".encode(), "𒀀 ꙮ 𐌰𐌱".encode(), b"\xff\xfe", b"\xe2\x82",
    b"\xed\xa0\x80", b"\xf0\x9f", b"\xc0\xaf", "▁▁".encode(), b"##ing",
    b"<pad> <unk> <s> </s>", b"<0x41>", b"(S (NP", b") ) )", b"-LRB- -RRB-", b"-NONE-",
    b"12.5 %", b"&lt;b&gt;", b"<b>", "\ue001\ue000 \ue080 \ue0ff".encode(),
    b"{}[]\\\"'", b"dog", b"Hund", b"The old man", b"bad", *_PLACEHOLDERS,
    b"a" * 300, b"works . " * 40, ("e" + "\u0301" * 200).encode(), b"x" * 5_000, b" " * 3_000,
]  # fmt: skip


def odd_text(rng):
    """Draws bytes: fragments in a row, random bytes, or a plain text with bytes changed."""
    kind = rng.random()
    if kind < 0.1:
        return rng.randbytes(rng.randrange(60))
    if kind < 0.3:
        text = bytearray(rng.choice(PLAIN))
        for _ in range(rng.randint(1, 4)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        return bytes(text)
    if kind < 0.305:
        return rng.choice(_FRAGMENTS) * rng.randrange(2_000)
    separator = rng.choice([b"", b" "])
    return separator.join(rng.choices(_FRAGMENTS, k=rng.randint(1, 6)))


def _array(key, values):
    if key in _NUMBERS:
        return np.array(values, _NUMBERS[key][0])
    return np.array([*values, None], object)[:-1]  # one of no text is of strings, too


def _arrays(inputs):
    return {key: _array(key, values) for key, values in inputs.items()}


_TERMS = [b"small dog\tHund", b""]  # of the plain texts
_SOURCES = [b"sees", b"small", b"It"]  # which no fragment repeats: the demands stay few
_TARGETS = [
    b"Hund",
    "süße Hunde".encode(),
    " 😀".encode(),
    b"\xff works",
    b"a",
    "猫".encode(),
    _MARK,
]
_NO_TERMS = [b"sees", b"\tHund", b"It\t", b"small\t\x00", b"a\tb\tc", b"sees\tHund\n dog"]
_IMPOSSIBLE = [b"sees\tHund\r\nsees\ta", b"sees\t" + b"Hund " * 3_000]
"""Of the first plain text: two targets of one word, and more tokens than a translation may have."""


def odd_terms(rng):
    """Draws terms, bytes; returns them, and whether they must be refused."""
    if rng.random() < 0.1:
        return rng.choice(_NO_TERMS), True
    lines = [
        b"\t".join([rng.choice([b"", b" "]) + source, rng.choice(_TARGETS)])
        for source in rng.sample(_SOURCES, rng.randint(0, 3))
    ]
    return rng.choice([b"\n", b"\r\n", b"\n \n"]).join(lines), False


class Fuzzer:
    """Draws requests to one export and judges the answers.

    Args:
        name: str, for the table.
        directory: folder of the SavedModel.
    """

    def __init__(self, name, directory):
        self.name = name
        self._session = tf.compat.v1.Session(graph=tf.Graph())
        with self._session.graph.as_default():
            meta_graph = tf.compat.v1.saved_model.load(self._session, ["serve"], directory)
        self.signatures = {
            name: signature
            for name, signature in meta_graph.signature_def.items()
            if signature.inputs and not name.startswith("__")
        }
        self._functions = {name: self._function(name) for name in self.signatures}
        self.codes, self._language_ids = [b""], {}
        known = self._refusal("target_language", b"?", r"give one of (.*) for each text")
        self.codes = known.encode().split(b", ") if known else self.codes
        self._language_ids = self._needed_ids()
        self._plain = {name: self.ask(name, self._plain_inputs(name)) for name in self.signatures}
        largest = self._refusal("source_ids", -1, r"ids are 0 to (\d+)")
        self.vocab_size = int(largest) + 1 if largest else None

    def _needed_ids(self):
        """Returns {code: id} of the languages with which ids begin; empty if they need not."""
        if "decode_ids" not in self.signatures:
            return {}
        inputs = {"source_ids": np.array([[5, 1]], np.int32)}
        if "target_language" in self.signatures["decode_ids"].inputs:
            inputs["target_language"] = _array("target_language", self.codes[:1])
        try:
            self.ask("decode_ids", inputs)
        except tf.errors.InvalidArgumentError as error:
            known = re.search(r"give one of (.*) as its first", error.message)[1]
            return {code.encode(): int(i) for i, code in re.findall(r"(\d+) \((.*?)\)", known)}
        return {}

    def _function(self, name):
        # `Session.run` would itself refuse shapes that do not fit; a model server does not.
        signature = self.signatures[name]
        options = config_pb2.CallableOptions(
            feed=[tensor.name for tensor in signature.inputs.values()],
            fetch=[tensor.name for tensor in signature.outputs.values()],
        )
        return self._session._make_callable_from_options(options)

    def ask(self, name, inputs):
        """Returns {output: array}.

        Raises:
            tf.errors.OpError: if the request is refused.
        """
        arrays = [inputs[key] for key in self.signatures[name].inputs]
        return dict(zip(self.signatures[name].outputs, self._functions[name](*arrays), strict=True))

    def _plain_inputs(self, name):
        return {key: self._plain_input(key) for key in self.signatures[name].inputs}

    def _plain_input(self, key):
        if key == "source_ids":
            first, second = (self._language_ids.get(self.codes[i], 5) for i in (0, -1))
            return np.array([[first, 6, 7, 1], [second, 8, 1, 0]], np.int32)
        if key in _NUMBERS:
            return np.array(_NUMBERS[key][1], _NUMBERS[key][0])
        if key in _LANGUAGES:
            return np.array([self.codes[0], self.codes[-1]], object)
        return np.array(_TERMS if key == "terms" else PLAIN, object)

    def _refusal(self, key, bad, pattern):
        """Returns what the refusal of a value says, by a pattern; None if no signature reads it."""
        for name, signature in self.signatures.items():
            if key not in signature.inputs or ("source_ids" in signature.inputs) != (
                key == "source_ids"
            ):
                continue
            inputs = self._plain_inputs(name)
            inputs[key] = np.full_like(inputs[key], bad)
            try:
                self.ask(name, inputs)
            except tf.errors.InvalidArgumentError as error:
                return re.search(pattern, error.message)[1]
            raise AssertionError(f"{name}: {key} {bad!r} was accepted")
        return None

    def _odd_value(self, key, rng):
        """Draws an allowed value of a row of an input."""
        if key in _LANGUAGES:
            return rng.choice(self.codes)
        if key in _NUMBERS:
            return rng.choice([*_NUMBERS[key][1], *_NUMBERS[key][2]])
        return odd_text(rng)

    @staticmethod
    def _bad_values(key):
        """Returns values of an input that must be refused."""
        return _NO_CODES if key in _LANGUAGES else _NUMBERS.get(key, [[]])[-1]

    def request(self, rng):
        """Draws a request.

        Returns:
            (name of the signature, inputs, rows that hold plain texts, whether it must be refused).
        """
        name = rng.choice(sorted(self.signatures))
        keys = sorted(self.signatures[name].inputs)
        if "source_ids" in keys:
            return name, *self._request_of_ids(keys, rng)
        size = rng.choice([0, 1, 1, 2, 3, 5, 8])
        inputs = {key: [self._odd_value(key, rng) for _ in range(size)] for key in keys}
        if name in _DOCUMENTS:
            inputs["text"] = [text[:_DOCUMENT] for text in inputs["text"]]
        refused = [False] * size
        if "terms" in keys:
            drawn = [odd_terms(rng) for _ in range(size)]
            inputs["terms"], refused = ([pair[i] for pair in drawn] for i in range(2))
            if name in _DOCUMENTS:
                refused = [x or _MARK in y for x, y in zip(refused, inputs["terms"], strict=True)]
        plain = {}
        for row in range(size):
            if rng.random() < 0.4:
                plain[row], refused[row] = rng.randrange(len(PLAIN)), False
                for key in keys:
                    inputs[key][row] = self._plain_input(key)[plain[row]]
        if "terms" in keys and plain and rng.random() < 0.1:
            row = plain.popitem()[0]
            inputs["text"][row], inputs["terms"][row] = PLAIN[0], rng.choice(_IMPOSSIBLE)
            refused[row] = True
        inputs = _arrays(inputs)
        if rng.random() < 0.75:
            return name, inputs, plain, any(refused)
        key = rng.choice(keys)
        bad = self._bad_values(key)
        if size and bad and rng.random() < 0.5:
            inputs[key][rng.randrange(size)] = rng.choice(bad)
        elif len(keys) > 1 and rng.random() < 0.5:
            more = [self._odd_value(key, rng)] * rng.randint(1, 3)
            inputs[key] = _array(key, [*inputs[key], *more])
        else:
            shape = rng.choice(
                [(), (1, 1), (2, 1), (1, 2), (0, 3), (3, 0), (1, 1, 1), (2, 2, 2, 1)]
            )
            inputs[key] = np.full(shape, self._odd_value(key, rng), inputs[key].dtype)
        return name, inputs, {}, True

    def _request_of_ids(self, keys, rng):
        """Draws what `request` returns, but the name, for a signature with `source_ids`."""
        ids, is_refused = self._ids(rng)
        size = len(ids) if ids.ndim else 1
        inputs = {key: [self._odd_value(key, rng) for _ in range(size)] for key in keys[1:]}
        if self._language_ids and ids.size and not is_refused:
            codes = inputs.get("target_language", self.codes[:1] * size)
            ids[:, 0] = [self._language_ids[code] for code in codes]
            if rng.random() < 0.2:
                ids[rng.randrange(size), 0], is_refused = 5, True  # a token of a text
        kind = rng.random()
        if "target_language" in keys and size and kind < 0.2:
            codes, is_refused = inputs["target_language"], True
            if kind < 0.1:
                codes.append(codes[0])
            else:
                codes[rng.randrange(size)] = rng.choice(_NO_CODES)
        return _arrays(inputs) | {"source_ids": ids}, {}, is_refused

    def _ids(self, rng):
        shape = rng.choice([(1, 4), (2, 7), (3, 1), (0, 5), (2, 0), (5, 60), (1, 500)])
        ids = np.array(rng.choices(range(self.vocab_size), k=int(np.prod(shape))), np.int32)
        ids, kind = ids.reshape(shape), rng.random()
        if kind < 0.15:
            shape = rng.choice([(), (4,), (1, 1, 1), (0, 1, 2), (2, 2, 2, 2)])
            return np.full(shape, rng.randrange(self.vocab_size), np.int32), True
        if kind < 0.4 and ids.size:
            bad = rng.choice([-1, self.vocab_size, 2**31 - 1, -(2**31)])
            ids.flat[rng.randrange(ids.size)] = bad
            return ids, True
        if kind < 0.6:
            ids[:, rng.randrange(4) :] = 0
        return ids, False

    def judge(self, rng):
        """Draws a request and asks it.

        Returns:
            (what came of it, "answered" or "refused"; largest difference of a plain text's float).

        Raises:
            AssertionError: with what is wrong.
        """
        name, inputs, plain, refused = self.request(rng)
        try:
            answer = self.ask(name, inputs)
        except tf.errors.InvalidArgumentError as error:
            sentence = error.message.strip().splitlines()[0]
            assert refused, f"{name} {_shown(inputs)} is refused: {sentence}"
            assert _SENTENCE.search(sentence), f"{name} {_shown(inputs)}: no sentence: {sentence}"
            return "refused", 0.0
        except tf.errors.OpError as error:
            raise AssertionError(f"{name} {_shown(inputs)}: {error!r}") from error
        assert not refused, f"{name} {_shown(inputs)} is not refused"
        rows = len(next(iter(inputs.values())))
        difference = 0.0
        for key, value in answer.items():
            assert len(value) == rows, f"{name} {_shown(inputs)}: {key} has {len(value)} rows"
            if value.dtype == object:
                for text in value.flat:
                    text.decode()
            elif value.dtype.kind == "f":
                assert not np.isnan(value).any(), f"{name} {_shown(inputs)}: {key} is nan"
            for row, number in plain.items():
                found, expected = _trimmed(
                    value[row : row + 1], self._plain[name][key][number : number + 1]
                )
                if value.dtype.kind == "f":
                    close = np.allclose(found, expected, _TOLERANCE, _TOLERANCE)
                    finite = np.isfinite(found) & np.isfinite(expected)
                    difference = max(difference, np.abs(found - expected)[finite].max(initial=0))
                else:
                    close = np.array_equal(found, expected)
                assert close, (
                    f"{name} {_shown(inputs)}: {key} of row {row} is {found}, not {expected}"
                )
        _check_spans(inputs, answer)
        for row in range(rows if name in _DOCUMENTS else 0):
            text, translation = inputs["text"][row], answer["translation"][row]
            for kept in (b"\n", *_PLACEHOLDERS):
                found, wanted = translation.count(kept), text.count(kept)
                is_kept = found >= wanted if kept == b"\n" else found == wanted
                assert is_kept, f"{name} {text[:500]}: {kept} is other in {translation[:500]}"
        return "answered", float(difference)

    def check_plain(self, rng):
        """Asks a plain request, whose answer must be that of the start, bit for bit."""
        name = rng.choice(sorted(self.signatures))
        answer = self.ask(name, self._plain_inputs(name))
        for key, value in answer.items():
            expected = self._plain[name][key]
            same = value.shape == expected.shape and value.tobytes() == expected.tobytes()
            if value.dtype == object:
                same = np.array_equal(value, expected)
            assert same, f"{name}: {key} is {value}, not {expected}"
        return "plain", 0.0


def _check_spans(inputs, answer):
    """Raises AssertionError if the spans of an answer are not within the texts that they are of."""
    texts = {"source_spans": inputs.get("text"), "spans": answer.get("translations")}
    if "target_pieces" in answer:  # of `align`
        texts["spans"] = inputs["text"]
    for key in texts.keys() & answer.keys():
        spans, of_texts = answer[key], texts[key]
        for row in np.ndindex(spans.shape[:-2]):
            text = of_texts[row[: of_texts.ndim]].decode("utf-8", "replace")
            within = (spans[row] >= 0) & (spans[row] <= len(text))
            ordered = spans[row][:, 0] <= spans[row][:, 1]
            assert within.all() and ordered.all(), f"{_shown(inputs)}: {key} {spans[row].tolist()}"


def _trimmed(found, expected):
    """Cuts or pads `found`, whose padding depends on its batch, to the shape of `expected`."""
    if found.shape == expected.shape or found.ndim != expected.ndim:
        return found, expected
    empty = b"" if found.dtype == object else 0
    sizes = [max(pair) for pair in zip(found.shape, expected.shape, strict=True)]
    return tuple(
        np.pad(x, [(0, size - n) for size, n in zip(sizes, x.shape, strict=True)],
               constant_values=empty)
        for x in (found, expected)
    )  # fmt: skip


def _shown(inputs):
    return str({key: (value.shape, value.tolist()) for key, value in inputs.items()})[:500]


# The run -----------------------------------------------------------------------------------------


def fuzz(fuzzers, requests, seed, threads):
    """Asks from several threads; every fourth request is a plain one.

    Returns:
        ({(fuzzer, what came of it): count}, largest difference of floats, failures, a list of str,
        MiB in use at even steps).
    """
    counts, differences = collections.Counter(), [0.0]
    failures, memory, numbers, lock = [], [], itertools.count(), threading.Lock()

    def client():
        while (number := next(numbers)) < requests and len(failures) < 20:
            rng = random.Random(f"{seed}/{number}")
            fuzzer = rng.choice(fuzzers)
            try:
                kind, difference = (fuzzer.judge if number % 4 else fuzzer.check_plain)(rng)
            except Exception as error:
                kind, difference = "failed", 0.0
                failures.append(f"request {number} to {fuzzer.name}: {error}")
            with lock:
                counts[fuzzer.name, kind] += 1
                differences.append(difference)
                if number % max(1, requests // _SAMPLES) == 0:
                    memory.append(memory_in_use())

    clients = [threading.Thread(target=client) for _ in range(threads)]
    for each in clients:
        each.start()
    for each in clients:
        each.join()
    return counts, max(differences), failures, memory


def memory_in_use():
    """Returns the resident memory of this process in MiB, without what is free for reuse."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


def export_small_models(folder):
    """Exports translators, a classifier and a parser of random weights; returns {name: folder}."""
    texts = [text.decode() for text in PLAIN] * 10
    tokenizer = t2t.train_tokenizer("bpe", texts, 294, placeholders=4)
    of_many = t2t.train_tokenizer("bpe", texts, 293, languages=["de", "en", "fr"])
    both = LanguageTemplate(of_many.languages.ids, source="source", forces_target=True)
    of_many = type(of_many)("bpe", of_many.model_bytes, languages=both)
    trees = list(
        parse_trees(
            """(S (NP (DT The) (JJ old) (NN man)) (VP (VBZ sees) (NP (DT a) (NN dog))) (. .))
            (S (NP (PRP It)) (VP (VBZ works) (, ,) (ADVP (RB well))) (. .))""".splitlines()
        )
    )
    tree_tokenizer = TreeTokenizer.train(trees, 30)
    limits = {"max_source_length": 40, "max_extra_tokens": 8}
    classifier = t2t.TransformerClassifier(_sizes(tokenizer), classes=3)
    made = {
        "translator": t2t.Translator(_model(tokenizer), tokenizer, **limits),
        "many languages": t2t.Translator(_model(of_many), of_many, **limits),
        "classifier": t2t.Classifier(_random(classifier), tokenizer, ["bad", "good", "süß"]),
        "parser": Parser(_model(tree_tokenizer), tree_tokenizer, beam_size=3, max_extra_tokens=16),
    }
    for name, predictor in made.items():
        signatures = list(signatures_of(predictor)[0])
        export_saved_model(
            predictor, os.path.join(folder, name), signatures=signatures, verify=False
        )
    return {name: os.path.join(folder, name) for name in made}


def _sizes(tokenizer):
    return t2t.TransformerConfig.tiny(
        tokenizer.vocab_size,
        num_encoder_layers=1,
        num_decoder_layers=1,
        model_dim=16,
        feed_forward_dim=24,
        num_heads=2,
    )


def _model(tokenizer):
    return _random(t2t.Transformer(_sizes(tokenizer)))


def _random(model):
    rng = np.random.default_rng(1)
    for weight in model.weights:
        if len(weight.shape) > 1:  # sharp enough that texts and hypotheses differ
            weight.assign(rng.normal(0, 0.5, weight.shape))
    return model


def main(_):
    logging.set_verbosity(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        exports = {path: path for path in SAVED_MODEL.value} or export_small_models(folder)
        fuzzers = [Fuzzer(name, path) for name, path in exports.items()]
        started = time.monotonic()
        counts, difference, failures, memory = fuzz(
            fuzzers, REQUESTS.value, SEED.value, THREADS.value
        )
    seconds = time.monotonic() - started
    print("| export | signatures | answered | refused | plain, bit for bit | failed |")
    print("| --- | --- | --- | --- | --- | --- |")
    for fuzzer in fuzzers:
        kinds = [counts[fuzzer.name, kind] for kind in ("answered", "refused", "plain", "failed")]
        print("|", " | ".join(map(str, [fuzzer.name, len(fuzzer.signatures), *kinds])), "|")
    half = len(memory) // 2
    growth = max(memory[half:]) - max(memory[:half] or memory)
    print(
        f"\nseed {SEED.value}, {sum(counts.values())} requests, {THREADS.value} threads, "
        f"{seconds:.0f} s; memory {memory[0]:.0f} to {memory[-1]:.0f} MiB, highest of the second "
        f"half {growth:+.1f} MiB; largest difference of a plain text's floats {difference:.1e}"
    )
    if OUTPUT.value:
        figures = {f"{name} {kind}": count for (name, kind), count in counts.items()}
        figures |= {"difference": difference, "memory": memory, "failures": failures}
        pathlib.Path(OUTPUT.value).write_text(json.dumps(figures, indent=1))
    for failure in failures:
        print("error:", failure, file=sys.stderr)
    if growth > GROWTH.value:
        sys.exit(f"error: memory grew by {growth:.1f} MiB in the second half")
    sys.exit(bool(failures))


if __name__ == "__main__":
    app.run(main)
