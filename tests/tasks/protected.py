"""Texts with spans, and a translator whose vocabulary has placeholders for them."""

import collections
import functools
import random
import re

from t2t_keras.data.placeholders import mark_of
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

A, B, C = map(mark_of, (1, 2, 3))
SPANS = [
    "{name}",
    "%s",
    "<b>",
    "</b>",
    "&copy;",
    "https://example.com/a?b=1",
    "jo@x.org",
    A,
    "\ue0ff",
]


def decoded(tensor):
    return [text.decode() for text in tensor.numpy()]


@functools.cache
def tokenizer(placeholders=3, languages=()):
    size = tiny.tokenizer().vocab_size
    return train_tokenizer("bpe", tiny.LINES * 3, size, languages, placeholders=placeholders)


def make(placeholders=3, **settings):
    settings = {"max_extra_tokens": 8, "max_source_length": 40} | settings
    return Translator(tiny.model(), tokenizer(placeholders), **settings)


def texts_with_spans(count, most, seed=0):
    rng = random.Random(seed)
    for _ in range(count):
        words = rng.choice(tiny.LINES).split(" ")
        for _ in range(rng.randint(1, most)):
            span = rng.choice(SPANS)
            glue = span[0] in "<{&" and rng.random() < 0.4
            place = rng.randrange(len(words))
            words[place : place + glue] = [span + words[place]] if glue else [span]
        yield " ".join(words)


def spans_of(text):
    """How often a text has each span, whatever stands beside it."""
    return collections.Counter(re.findall("|".join(map(re.escape, SPANS)), text))
