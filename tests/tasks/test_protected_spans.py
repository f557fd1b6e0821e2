"""Placeholders, markup, links and addresses come through a translation unchanged, each once."""

import random
import re
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.tasks.protected_spans import (
    MARK,
    SpanPattern,
    WordAlignment,
    mask_spans,
    translate_around,
    unmask_spans,
)
from tests.tasks import tiny

SPANS = {
    "Hello {name}, {{ user.age }} ${x} #{y} %(count)s.": [
        "{name}", "{{ user.age }}", "${x}", "#{y}", "%(count)s",
    ],
    "%s has %1$d of %-5.2f%% and %lu, %@.": ["%s", "%1$d", "%-5.2f%%", "%lu", "%@"],
    "100% sure, 50 % of it, 5 %, 3%.": [],
    'Click <a href="x. Y">here</a><br/> &amp; &#39; <!-- no --> a < b > c & d;': [
        '<a href="x. Y">', "</a><br/>", "&amp;", "&#39;", "<!-- no -->",
    ],
    "See (https://example.com/a?b=c#d), www.example.org. Or write to jo+x@mail.example.com!": [
        "https://example.com/a?b=c#d", "www.example.org", "jo+x@mail.example.com",
    ],
    "Müller: müller@straße.de, jo@müller.de, mu\u0308ller@x.org, иван@почта.рф; %(größe)s": [
        "müller@straße.de", "jo@müller.de", "mu\u0308ller@x.org", "иван@почта.рф", "%(größe)s",
    ],
    "请写信给jo@example.com。주소는 jo@example.com으로": ["jo@example.com"] * 2,
    f"A {MARK} of the text itself": [MARK],
    "": [],
    "{": [],
}  # fmt: skip


def decoded(tensor):
    return [text.decode() for text in tensor.numpy()]


def test_spans_are_found_and_put_back():
    masked, spans = mask_spans(tf.constant([*SPANS]))
    found = [[span.decode() for span in row] for row in spans.to_list()]
    assert found == [*SPANS.values()]
    assert [text.count(MARK) for text in decoded(masked)] == [len(row) for row in found]
    assert decoded(unmask_spans(masked, spans)) == [*SPANS]


def test_any_text_has_its_spans_put_back():
    rng = random.Random(0)
    fragments = [*SPANS, *"<>{}%&;@ \n$s1a.", "\r\n", "\u2028", "</b>", "%%"]
    texts = ["".join(rng.choices(fragments, k=8)) for _ in range(300)]
    for pattern in ("", r"\d+|a\.", r"(?i)[A-Z]+-(\d+)"):
        masked, spans = mask_spans(tf.constant(texts), pattern)
        assert decoded(unmask_spans(masked, spans)) == texts
    masked, spans = mask_spans(tf.constant([], tf.string))
    assert decoded(unmask_spans(masked, spans)) == []


def test_a_pattern_of_ones_own_is_protected_too():
    masked, spans = mask_spans(tf.constant(["Order SKU-17 for {x} kg (SKU-204)."]), r"SKU-\d+")
    assert decoded(masked) == [f"Order {MARK} for {MARK} kg ({MARK})."]
    assert spans.to_list() == [[b"SKU-17", b"{x}", b"SKU-204"]]


def test_a_pattern_sees_what_is_beside_a_span():
    masked, spans = mask_spans(tf.constant(["aX X{y}X ^X"]), r"\BX|^q")
    assert decoded(masked) == [f"a{MARK} X{MARK}X ^X"]
    assert spans.to_list() == [[b"X", b"{y}"]]


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", r"is '\(', which is not a pattern in RE2's syntax \(missing \)\): see"),
        ("(?=x)", r"not a pattern in RE2's syntax \(invalid [^{}]*\): see"),
        ("a{1001}", r"RE2's syntax \(invalid repetition size: \{1001\}\): see"),
        ("a*", "matches the empty text: let it match more"),
        (r"\b\d*", "matches the empty text"),
        (r"\b[A-Z]*\b", "matches the empty text"),
        (r"x|\Bx*", "matches the empty text"),
        ("(?m)^#*|x", "matches the empty text"),
        (r"(?m)\b\d*$", "matches the empty text"),
        (".+", "protects all words of 'The old man sees 2 dogs.'"),
        (r"\w+", "protects all words of 'The old man"),
        (r"\p{Cyrillic}+", "protects all words of 'Собака"),
        ("\ud800", "not a pattern"),
        (3, "give a pattern in RE2's syntax"),
    ],
)
def test_a_pattern_that_cannot_be_meant_is_refused(pattern, message):
    with pytest.raises(t2t.InputError, match=message):
        SpanPattern().check("protected_pattern", pattern)


def test_patterns_that_match_some_or_nothing_are_taken():
    for pattern in ("", r"SKU-\d+", "[^\\s\\S]", "(?i)gmbh|ag", r"\d+", r"\b\d+\b", "(?m)^#.*$"):
        assert SpanPattern().check("protected_pattern", pattern) == pattern


class Stub:
    """A translator that knows some sentences, and which words are the translations of which."""

    known: ClassVar = {
        "Click here now.": ("Jetzt hier klicken.", {0: 2, 1: 1, 2: 0, 3: 3}),
        "Hello, you have new mail.": ("Hallo, Sie haben neue Post.", range(7)),
        "has mail": ("hat Post", range(2)),
        "first second": ("erstes zweites", range(2)),
        "he came home": ("er ist heimgekommen", {0: 0, 2: 2, 1: 2}),
        "我爱你": ("I love you", range(3)),
        "nothing": ("", {}),
    }

    def translate(self, texts):
        self.asked = decoded(texts)
        return tf.constant([self.known[text][0] for text in self.asked], tf.string)

    def align(self, texts, translations):
        starts, ends, spans = [], [], []
        for source, target in zip(decoded(texts), decoded(translations), strict=True):
            words, tokens = (list(re.finditer(r"[一-鿿]|\w+|[^\w\s]", x)) for x in (source, target))
            pairs = self.known[source][1]
            pairs = pairs if isinstance(pairs, dict) else {n: n for n in pairs}
            of_target = {t: words[s].span() for s, t in pairs.items()}
            starts.append([token.start() for token in tokens] + [0])
            ends.append([token.end() for token in tokens] + [0])
            spans.append([of_target.get(n, (0, 0)) for n in range(len(tokens))] + [(0, 0)])
        most = max(map(len, starts))
        starts, ends = (np.int32([[*x, *[0] * (most - len(x))] for x in y]) for y in (starts, ends))
        spans = np.int32([[*x, *[(0, 0)] * (most - len(x))] for x in spans])
        return WordAlignment(*map(tf.constant, (starts, ends, spans)))


@pytest.mark.parametrize(
    ("sentence", "translation"),
    [
        ("Click _here_ now.", "Jetzt _hier_ klicken."),
        ("_Click here now._", "_Jetzt hier klicken._"),
        ("Click here _now_.", "_Jetzt_ hier klicken."),
        ("_Click_ here _now_.", "_Jetzt hier klicken_ __."),  # in order
        ("Hello _, you have _ new mail.", "Hallo _, Sie haben _ neue Post."),
        ("_ has mail", "_ hat Post"),
        ("has mail _", "hat Post _"),
        ("has _ _ mail _", "hat _ _ Post _"),
        ("first_second", "erstes_ zweites"),
        ("he _came_ home", "er ist _heimgekommen_"),
        ("我_爱_你", "I_ love_ you"),
        ("nothing _", "_"),
        ("has mail", "hat Post"),
    ],
)
def test_marks_go_where_the_words_beside_them_went(sentence, translation):
    stub = Stub()
    [found] = decoded(
        translate_around(tf.constant([sentence.replace("_", MARK)]), stub.translate, stub.align)
    )
    assert found.replace(MARK, "_") == translation


def test_sentences_of_a_batch_do_not_change_one_another():
    sentences = ["has mail", "Click _here_ now.", "_ has mail", "nothing _"]
    marked = [sentence.replace("_", MARK) for sentence in sentences]
    stub = Stub()
    together = decoded(translate_around(tf.constant(marked), stub.translate, stub.align))
    assert stub.asked == ["has mail", "Click here now.", "has mail", "nothing"]
    for text, found in zip(marked, together, strict=True):
        assert [found] == decoded(translate_around(tf.constant([text]), stub.translate, stub.align))
    assert decoded(translate_around(tf.constant([], tf.string), stub.translate, stub.align)) == []


def test_each_span_of_a_document_comes_through_once():
    translator = tiny.translator(protected_pattern=r"Nr\. \d+")
    spans = [span for row in SPANS.values() for span in row] + ["Nr. 7"]
    rng = random.Random(0)
    texts = []
    for _ in range(60):
        words = rng.choice(tiny.LINES).split(" ")
        for _ in range(rng.randint(1, 4)):
            words.insert(rng.randrange(len(words) + 1), rng.choice(spans))
        texts.append(" ".join(words))
    texts += ["<b></b>", "{x}\n\n%s", "", f"{MARK}. {MARK}"]
    found = translator.documents(texts)
    wanted, spans = (mask_spans(tf.constant(x), r"Nr\. \d+")[1] for x in (texts, found))
    assert spans.to_list() == wanted.to_list()
    assert translator.documents(texts[-4:]) == texts[-4:]
