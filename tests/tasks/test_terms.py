"""Terms: where they stand in a text, and that their targets take the place of the right words."""

import functools
import pathlib
import re
import unicodedata

import pytest
import tensorflow as tf

from t2t_keras.decoding.hypotheses import Hypotheses
from t2t_keras.errors import InputError
from t2t_keras.tasks.protection import WordAlignment, put_terms
from t2t_keras.tasks.shortlist import ShortlistTranslator
from t2t_keras.tasks.terms import TermIndex, Terms, ask
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny
from tests.tasks.tiny import shortlist

TERMS = {"small dog": "Zugtier", "train": "Hund Mann", "dog": "Mann", "old": "kleinen"}


def lines(terms):
    return "\n".join("\t".join(pair) for pair in terms)


def found(texts, terms):
    """The terms found in each text: [(part of the text, target)]."""
    matches = TermIndex(tf.constant(terms)).find(tf.constant(texts), tf.range(len(texts)))
    return [
        [(text[start:end], target.decode()) for start, end, target in zip(*row, strict=True)]
        for text, *row in zip(texts, *(x.to_list() for x in matches), strict=True)
    ]


@pytest.mark.parametrize(("text", "sources", "expected"), [
    ("The dog sees a dog.", ["dog"], ["dog", "dog"]),
    ("Dogs and dogged hotdog dog's", ["dog"], ["dog"]),  # "dog", an apostrophe, "s"
    ("DOG Dog dog", ["dog"], ["DOG", "Dog", "dog"]),
    ("DOG Dog dog", ["Dog"], ["Dog"]),
    ("Dog dog", ["dog", "Dog"], ["Dog", "dog"]),  # the one with the same capitals counts
    ("in New York and York", ["York", "New York"], ["New York", "York"]),
    ("a New  \u00a0York, new york", ["New York"], ["New  \u00a0York"]),
    ("New York City", ["New York", "York City"], ["New York"]),  # the first of equal ones
    ("a small dog", ["small dog", "dog", "a small"], ["a small", "dog"]),
    ("a a a a b", ["a a"], ["a a", "a a"]),
    ("the end", ["the end ."], []),
    ("the end.", ["end."], ["end."]),
    ("黑猫坐下 cat猫", ["猫", "cat"], ["猫", "cat", "猫"]),
    ("خانه\u200cها خانه", ["خانه"], ["خانه"]),
    ("dic\xadtionary", ["dictionary"], ["dic\xadtionary"]),
    (
        "Cafe\u0301 d'e\u0301te\u0301",
        ["caf\u00e9", "\u00e9t\u00e9"],
        ["Cafe\u0301", "e\u0301te\u0301"],
    ),
    ("ÄPFEL", ["äpfel"], ["ÄPFEL"]),
    ("C++ and C# or C", ["C++", "C#", "C"], ["C++", "C#", "C"]),
    ("C++, C# 1.5 12:30 15 1,5", ["C", "5", "12", "1"], []),
    ("5, (5) 5% C. C/C++", ["C", "5"], ["5", "5", "5", "C", "C"]),
    ("", ["dog"], []),
    ("dog\x00dog", ["dog"], ["dog", "dog"]),
    ("Η ΟΔΟΣ.Α", ["οδος"], ["ΟΔΟΣ"]),
])  # fmt: skip
def test_a_source_phrase_stands_in_a_text_as_whole_words(text, sources, expected):
    terms = lines((source, f"<{source}>") for source in sources)
    [pairs] = found([text], [terms])
    assert [part for part, _ in pairs] == expected
    # What Python leaves out stands nowhere.
    assert found([text], Terms({s: f"<{s}>" for s in sources}).rows([text.encode()])) == [pairs]


def test_each_text_has_its_own_terms():
    texts = ["a dog, a hound", "a dog", "", "a dog"]
    terms = ["dog\tHund\r\n\nhound\t Hund \ndog\tHund", "cat\tKatze", "dog\tHund", "dog\tTier"]
    assert found(texts, terms) == [[("dog", "Hund"), ("hound", "Hund")], [], [], [("dog", "Tier")]]


def aligned(source, target, pairs):
    """The alignment of words that pairs of words tell, {word of the target: {source: weight}}."""
    words, others = (
        [(w[0], *w.span()) for w in re.finditer(r"\w+", x)] + [("", 0, 0)] for x in (target, source)
    )
    weights = [[pairs.get(w, {}).get(o, 0.1) for o, *_ in others] for w, *_ in words]
    (starts, ends), (source_starts, source_ends) = (
        [tf.constant([[w[i] for w in x]]) for i in (1, 2)] for x in (words, others)
    )
    spans = tf.zeros([1, len(words), 2], tf.int32)
    return WordAlignment(starts, ends, spans, tf.constant([weights]), source_starts, source_ends)


PAIRS = {
    "Der": {"the": 0.5, "old": 0.2, "dog": 0.4},
    "alte": {"old": 0.8, "dog": 0.1},
    "Hund": {"dog": 0.6, "old": 0.3},
    "Wachhund": {"guard": 0.5, "dog": 0.5},
    "Sieben": {"seventy": 0.4, "nine": 0.5},
    "zig": {"seventy": 0.9, "nine": 0.05},
}


@pytest.mark.parametrize(("source", "target", "terms", "expected"), [
    ("the old dog", "Der alte Hund.", {"dog": "Dackel"}, "Der alte Dackel."),
    ("the old dog", "Der alte Hund.", {"dog": "A", "old": "B C"}, "Der B C A."),
    ("the old dog", "Der alte Hund.", {"old dog": "Greis"}, "Der Greis."),
    ("the guard dog", "Wachhund!", {"dog": "Hund", "guard": "Wache"}, "Wache! Hund"),
    ("seventy nine", "Sieben zig", {"seventy nine": "79"}, "79"),
    ("the old dog", "", {"dog": "Dackel"}, "Dackel"),
])  # fmt: skip
def test_a_target_takes_the_place_of_the_words_that_its_source_became(
    source, target, terms, expected
):
    others = {word: f"{word}s" for word in source.split()}  # of a row with more terms
    rows = [lines(x.items()) for x in (terms, others)]
    matches = TermIndex(tf.constant(rows)).find(tf.constant([source] * 2), [0, 1])
    alignment = WordAlignment(*(tf.repeat(x, 2, axis=0) for x in aligned(source, target, PAIRS)))
    [text, _], moved = put_terms(tf.constant([target] * 2), alignment, *matches)
    assert text.numpy().decode() == expected
    kept = [w for w in re.findall(r"\w+", target) if w in expected]
    parts = [expected[a:b] for a, b in zip(*(x[0].numpy() for x in moved[:2]), strict=True)]
    assert [part for part in parts if part in kept] == kept


@pytest.mark.parametrize("prefix", [
    "Der Hund",
    "  Der   alte  Hund  ",
    "\u00a0Der\u00a0 Hund",
    "\u3000Der\u2003\u3000Hund\u2003",
    "Der\tHund\t",
    "De\u0301r e\u0301te\u0301 Hu",  # composed, and a part of a word
    "😀  ꙮ 猫  Der",  # bytes, not tokens
    "",
    " \u00a0\u200b",
])  # fmt: skip
def test_the_first_word_after_a_prefix_is_replaced(prefix):
    class Continued(Translator):
        """Continues each prefix by the same words, and aligns all words alike."""

        def find(self, *, prefix_ids, **others):
            ids = tf.ragged.boolean_mask(prefix_ids, prefix_ids > self.tokenizer.eos_id)
            ids = tf.concat([ids, self.tokenizer.encode([" alte Mann."] * 2)], 1)
            ids = ids.to_tensor()[:, tf.newaxis]
            return Hypotheses(ids, ids[..., 0], *[tf.zeros([2, 1])] * 2)

        def align_words(self, *inputs):
            found = super().align_words(*inputs)
            return found._replace(weights=tf.ones_like(found.weights))

    translator = Continued(tiny.model(), tiny.tokenizer(), max_extra_tokens=20)
    found = translator.translate(["The old dog."] * 2, [prefix, "Der " * 4], 1, ["dog\tHund"] * 2)
    blank = not re.search(r"[^\s\u200b]", prefix)
    kept = "" if blank else re.sub(" +", " ", unicodedata.normalize("NFC", prefix)).strip(" \t")
    assert [text.decode() for [text] in found.texts.numpy()] == [
        f"{kept} Hund Mann.".lstrip(" "),
        "Der Der Der Der Hund Mann.",
    ]


@pytest.mark.parametrize(("phrase", "text"), [
    ("old dog", "The <b>old</b> dog."),
    ("old dog", "The old&nbsp;dog, an o&#108;d {x} d<!-- > -->o<i>g</i>"),
    ("king's dog", "The king&#39;s dog"),
    ("Über", "&Uuml;ber U&#x308;ber &lt;b&gt;&#220;ber"),
    ("老狗", "看老<b>狗</b>"),
    ("C++", "C<b>++</b>"),
    ("dictionary", "dic&shy;tion&shy;ary"),
])  # fmt: skip
def test_a_document_has_terms_where_markup_is_inside_of_a_phrase(phrase, text):
    terms = Terms({phrase: "Ziel", "cat": "Katze"})
    assert terms.rows([text.encode(), b"Plain."]) == [f"{phrase}\tZiel".encode(), b""]


@pytest.mark.slow
def test_translations_have_the_targets_of_terms_and_others_are_unchanged(translator):
    texts = ["A small dog.", "She sees it.", "The old dog sees a train, a train!", "", "Old."]
    rows, plain = translator.n_best(texts, 3, terms=TERMS), translator.n_best(texts, 3)
    assert rows[1] == plain[1] and rows[3] == plain[3]
    assert [[t.score for t in row] for row in rows] == [[t.score for t in row] for row in plain]
    for row, wanted in ((0, ["Zugtier"]), (2, ["kleinen", "Mann", "Hund Mann"]), (4, ["kleinen"])):
        for translation in rows[row]:
            assert all(target in translation.text for target in wanted)
    assert all(t.text.count("Hund Mann") >= 2 for t in rows[2])
    [prefixed] = translator(["A dog."], prefix=["Der Zug"], terms={"dog": "alte Mann"})
    assert prefixed.startswith("Der Zug") and "alte Mann" in prefixed
    # In any batch
    together = translator.n_best([*tiny.LINES, *tiny.ODD], 2, terms=TERMS)
    for row, text in enumerate([*tiny.LINES, *tiny.ODD]):
        [alone] = translator.n_best([text], 2, terms=TERMS)
        assert [t.text for t in alone] == [t.text for t in together[row]]


@pytest.mark.parametrize(("terms", "message"), [
    (["dog"], r"terms is a list: give a dict"),
    ({"dog": 3}, r"terms has the term 'dog' with the translation 3: give each as one line"),
    ({"dog": " "}, r"terms has the term 'dog' with the translation ' ': give each"),
    ({"cat": "\0"}, r"terms has the term 'cat' with the translation '\\x00': give each"),
    ({"dog\tcat": "Hund"}, r"terms has 'dog\\tcat': leave the tab out"),
    ({"dog\n": "Hund"}, r"terms has the term 'dog\\n' with the translation 'Hund': give each"),
    ({"dog": "Hund\nMann"}, r"translation 'Hund\\nMann': give each as one line"),
    (
        {"dog": "a\ue000b"},
        r"terms has 'a\\ue000b': leave out the characters U\+E000 to U\+E0FF",
    ),
])  # fmt: skip
def test_invalid_terms_are_refused_in_one_sentence(translator, terms, message):
    with pytest.raises(InputError, match=message) as caught:
        translator(["A dog."], terms=terms)
    assert "\n" not in str(caught.value) and str(caught.value).endswith(".")


def test_a_message_has_the_beginning_of_a_long_line():
    swapped = tf.constant(["The old man. " * 9_000])  # a text in the place of terms
    demanded = tf.function(lambda terms: TermIndex(terms).keys, autograph=False)
    with pytest.raises(InputError) as caught:
        ask(demanded, swapped)
    beginning = ("The old man. " * 9)[:60]
    assert str(caught.value) == (
        f"terms has the line “{beginning}”: give a source phrase, a tab and a target phrase."
    )
    with pytest.raises(InputError, match="terms has the line “dog → Hund”, and another target"):
        ask(demanded, tf.constant(["dog\tHund\n dog \tMann"]))


def peak_memory(function):
    """Returns the most memory that this process has while it calls a function, in MiB above now."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")

    def now(name):
        return int(re.search(rf"{name}:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])

    before = now("VmRSS")
    function()
    return (now("VmHWM") - before) / 1024


def test_long_phrases_and_many_terms_take_little_memory():
    text = " ".join(f"w{i}" for i in range(6000))
    terms = lines([(text, "Hund"), ("w7 w8", "Mann"), ("W7 w9", "Zug")])
    assert peak_memory(lambda: found([f"a {text} z"], [terms])) < 100
    assert found([f"a {text} z"], [terms]) == [[(text, "Hund")]]  # the longest hides the others
    many = lines((f"w{i} x{i % 7}", f"W{i}") for i in range(20_000))
    texts = [f"The w{i} x{i % 7} and w7 x7." for i in range(100)]
    index = functools.partial(found, texts, [many] * 100)
    assert peak_memory(index) < 300
    assert index() == [[(f"w{i} x{i % 7}", f"W{i}")] for i in range(100)]


def test_a_file_of_terms_is_read_line_by_line(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text(
        'dog\tHund\n\n train \t Der Zug\n"dog"\t"Hund"\n"5"" disk"\t5"\n', encoding="utf-8"
    )
    assert Terms.read(path).rows([b"A dog.", b"trains", b'5" disk']) == [
        b"dog\tHund",
        b"train\tDer Zug",
        b'5" disk\t5"',
    ]
    for content, message in (
        ("dog\tHund\ndog\n", r"line 2 is 'dog': give a source phrase, a tab and a target phrase"),
        ("dog\tHund\tMann\n", r"line 1 is 'dog\\tHund\\tMann'"),
        ("\tHund\n", r"line 1 is '\\tHund'"),
        ('"dog\tHund\n', r"each without quotes or between two"),
        (
            "a\tb\nold\x0cman\tMann\n",
            r"line 2 has the term 'old\\x0cman' with the translation 'Mann'",
        ),
        ("New York\tA\nNew  York\tB\n", r"'New York' .* 'A' \(line 1\) and 'B' \(line 2\)"),
        (
            "dog\tHund\ncat\tKatze\ndog\tKöter\n",
            r"'dog' .* 'Hund' \(line 1\) and 'Köter' \(line 3\)",
        ),
    ):
        path.write_text(content, encoding="utf-8")
        with pytest.raises(InputError, match=message):
            Terms.read(path)


@pytest.mark.slow
def test_a_shortlist_and_documents_have_terms(translator):
    narrow = ShortlistTranslator(translator, shortlist(k=1))
    texts = ["A small dog.", "She sees it."]
    assert "Zugtier" in narrow(texts, terms=TERMS)[0]
    sentences = ["A small dog <b>sees</b> a train.", "She sees it.", "The old man."]
    plain = [text.replace("<b>", "").replace("</b>", "") for text in sentences]
    document = f" {sentences[0]} {sentences[1]}\n\n{sentences[2]}\r\n"
    first, second, third = translator(plain, terms=TERMS)
    [text] = translator.documents([document], terms=TERMS)
    assert text.count("<b>") == text.count("</b>") == 1
    text = re.sub(r"</?b>|[ ]", "", text)
    assert text == f"{first}{second}\n\n{third}\r\n".replace(" ", "")
    assert "terms" not in translator._inputs([document], None, None, {"tree": "Baum"})
