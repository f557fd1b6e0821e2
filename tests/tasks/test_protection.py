"""Protection: spans come through a translation once, beside their words or by placeholders."""

import collections
import functools
import re
from typing import ClassVar

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.language_template import LanguageTemplate
from t2t_keras.data.placeholders import mark_of
from t2t_keras.tasks.protection import ByAlignment, clean_marks, number_marks, translate_around
from t2t_keras.tasks.shortlist import ShortlistTranslator
from t2t_keras.tasks.spans import GAP, INLINE, OPENING, SPACE, WORD, mask, put_spans, unmask
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny
from tests.tasks.protected import (
    SPANS,
    A,
    B,
    C,
    decoded,
    make,
    spans_of,
    texts_with_spans,
    tokenizer,
)
from tests.tasks.tiny import shortlist


@pytest.fixture(scope="module")
def translator():
    return make()


@pytest.mark.parametrize(("sentence", "numbered"), [
    ("Click _here_ now _.", f"Click {A} here {B} now {C}."),
    ("_", A),
    ("(_) x=_, _!", f"({A}) x={B}, {C}!"),
    ("我_爱_你 7_", f"我{A}爱{B}你 7 {C}"),
    ("_ _ _ _", "_ _ _ _"),
    ("§a_§ _ §.", f"§a {A}§ {B} §."),
    ("none", "none"),
    ("", ""),
])  # fmt: skip
def test_marks_of_a_sentence_get_numbers_and_stand_apart_from_letters(sentence, numbered):
    sentence, numbered = (
        text.replace("_", WORD).replace("§", INLINE) for text in (sentence, numbered)
    )
    assert decoded(number_marks(tf.constant([f"x {WORD}", sentence]), 3)) == [f"x {A}", numbered]


class Stub:
    """A translator that knows some sentences, and which words are the translations of which."""

    known: ClassVar = {
        "Click here now.": ("Jetzt hier klicken.", [2, 1, 0, 3]),
        "Hello, you have new mail.": ("Hallo, Sie haben neue Post.", range(7)),
        "has mail": ("hat Post", range(2)),
        "first second": ("erstes zweites", range(2)),
        "he came home": ("er ist heimgekommen", [0, 2, 2]),
        "he / came home": ("er / ist heimgekommen", [0, 1, 3, 3]),
        "我爱你": ("I love you", range(3)),
        "nothing": ("", []),
    }

    def translate(self, texts):
        self.asked = decoded(texts)
        return tf.constant([self.known[text][0] for text in self.asked], tf.string)

    def align(self, texts, translations):
        sources = decoded(texts)
        pairs = [{t: s for s, t in reversed([*enumerate(self.known[text][1])])} for text in sources]
        return tiny.word_alignment(sources, decoded(translations), pairs)


MARKS = str.maketrans({"_": WORD, "<": OPENING, ">": INLINE, "~": SPACE, "|": GAP})


PLACED = [
    ("Click _here_ now.", "Jetzt _hier_ klicken."),
    ("_Click here now._", "_Jetzt hier klicken._"),
    ("Click here _now_.", "_Jetzt_ hier klicken."),
    ("_Click_ here _now_.", "_Jetzt hier klicken_ __."),  # in order
    ("Hello _, you have _ new mail.", "Hallo _, Sie haben _ neue Post."),
    ("_ has mail", "_ hat Post"),
    ("has _ _ mail _", "hat _ _ Post _"),
    ("has (_) mail \"_\"", "hat (_) Post \"_\""),
    ("first_second", "erstes_zweites"),
    ("first _second", "erstes _zweites"),
    ("he _came_ home", "er ist _heimgekommen_"),
    ("he c<am>e home", "er ist <heimgekommen>"),
    ("has< mail>", "hat < Post>"),
    ("has~mail", "hat~Post"),
    ("has ~mail", "hat ~Post"),
    ("has|mail", "hat|Post"),
    ("<has> <mail>", "<hat> <Post>"),
    ("has> <mail", "hat> <Post"),
    ("has> >mail", "hat> >Post"),
    ("has_ _mail", "hat_ _Post"),
    ("<h>as <mail>", "<hat> <Post>"),
    ("ha<s> mai<l>", "<hat> <Post>"),
    ("he _/_ came home", "er _/_ ist heimgekommen"),
    ("我_爱_你", "I _ love _ you"),
    ("nothing _", "_"),
    ("has mail", "hat Post"),
]  # fmt: skip
"""Sentences with marks, and their translations"""


def test_marks_go_where_the_words_beside_them_went():
    stub = Stub()
    sentences = tf.constant([sentence.translate(MARKS) for sentence, _ in PLACED])
    found = decoded(translate_around(sentences, stub.translate, stub.align))
    for text, (sentence, translation) in zip(found, PLACED, strict=True):
        assert text == translation.translate(MARKS), sentence
    nothing = tf.constant([], tf.string)
    assert decoded(translate_around(nothing, stub.translate, stub.align)) == []


@pytest.mark.parametrize(("sentence", "translation", "expected"), [
    ("Click {b}here{c} now {x}.", f"{C} {A} hier {B} klicken.", "{x} {b}hier{c} klicken."),
    ("Click {b}here{c} now {x}.", f"{B} {A} {C} da", "{c} {b}{x} da"),
    ("to {x}, a{y}b", f"{B}ab {A}.", "{y}ab {x}."),
    ("a {x} b {y}", f"c{B}A{A}d", "c {y} A {x} d"),
    ("to {x}, a{y}b", f"\ue090{B}ab {C}{A}. {A}\ue000", "{y}ab {x}. "),  # spelled by bytes
    ("{y}" * 9, f"{B}{WORD}", ""),  # more than there are placeholders
])  # fmt: skip
def test_spans_come_back_by_number_without_the_spaces_that_were_added(
    sentence, translation, expected
):
    masked, stands_for = mask(tf.constant([sentence, "{z} <b>c</b>"]))
    _, marks, spans = unmask(masked, stands_for)
    found = clean_marks(tf.constant([translation, ""]), masked, most=8).numpy()[0]
    other = f"{INLINE}{A}{OPENING}{INLINE}"  # one mark too many
    found = put_spans(tf.constant([found, other.encode()]), marks, spans)
    assert decoded(found) == [expected, "<b>{z}</b>"]


def orders_of(texts):
    """The spans of each text, in order."""
    return [re.findall("|".join(map(re.escape, SPANS)), text) for text in texts]


@pytest.mark.slow
def test_each_span_of_a_document_comes_through_once(translator):
    texts = [*texts_with_spans(60, most=5), "<b></b>", "{x}\n\n%s", "", f"{WORD}. {A}{B}"]
    texts += [" ".join(texts[:5]), "\n".join(texts[5:9])]
    texts += [" ".join(texts_with_spans(9, most=2)).replace(".", ","), "<b>dog</b> " * 30]  # long
    found = translator.documents(texts)
    assert [spans_of(text) for text in found] == [spans_of(text) for text in texts]
    # Spans may change places, but markup does not. What is equal by chance in a model of random
    # weights is not.
    assert orders_of(found) != orders_of(texts)
    tags = re.compile("</?b>")
    assert [tags.findall(text) for text in found] == [tags.findall(text) for text in texts]
    assert found == [translator.documents([text])[0] for text in texts[:9]] + found[9:]
    marks = re.compile("[\ue001-\ue0fe]")  # those of a text are spans, others must not be left
    assert [sorted(marks.findall(text)) for text in found] == [
        sorted(marks.findall(text)) for text in texts
    ]
    assert translator.documents(tiny.LINES) == translator(tiny.LINES)
    # A mark in a user's text is no placeholder.
    texts = [f"The {A} dog.", f"{B}", "The <ph1> dog."]
    ids = translator.encode(tf.constant(texts)).numpy()
    assert not np.isin(ids, translator.tokenizer.placeholder_ids).any()


@pytest.mark.slow
def test_without_placeholders_or_room_for_them_documents_go_by_alignment():
    assert isinstance(make(0).protection, ByAlignment)
    short = make(max_target_length=3)
    texts = [*texts_with_spans(12, most=2)]
    texts += ["The {a} old {b} man {c} <i>sees</i> {d} a dog."]
    found = short.documents(texts)
    assert [spans_of(text) for text in found] == [spans_of(text) for text in texts]
    short.protection = ByAlignment()
    aligned = short.documents(texts)
    assert aligned[12:] == found[12:] and aligned != found
    assert orders_of(aligned) == orders_of(texts)
    assert re.findall("{.}|</?i>", aligned[12]) == re.findall("{.}|</?i>", texts[12])


def test_samples_have_no_placeholders(translator, monkeypatch):
    monkeypatch.setattr(translator, "_as_texts", lambda found, *_: found.ids)
    count = 6 * len(tiny.LINES)
    options = {"temperature": 1.0, "top_k": 0, "top_p": 1.0}
    options = {name: tf.fill([count], x) for name, x in options.items()} | {
        "seeds": tf.range(count)
    }
    drawn = translator.draw(tf.constant(tiny.LINES * 6), **options)
    assert tf.math.count_nonzero(drawn) > 3 * count
    assert not np.isin(drawn, translator.tokenizer.placeholder_ids).any()


def test_a_translation_has_the_placeholders_of_its_source_and_no_others(translator):
    first = translator.tokenizer.placeholder_ids.start
    sources = [f"The {A} old man {B}.", "She.", f"{C} dog {C} {A}", f"the {B}"]
    spec = tf.TensorSpec([None, None], tf.int32)
    search = tf.function(
        functools.partial(translator.search, n_best=4), input_signature=[spec], autograph=False
    )
    ids = translator.marked().encode(tf.constant(sources))
    found = search(ids)
    for row, source in enumerate(sources):
        wanted = collections.Counter(re.findall(f"[{A}-{C}]", source))
        hypotheses = [
            [i for i in hypothesis if i] for hypothesis in found.ids[row].numpy().tolist()
        ]
        counts = [
            collections.Counter(mark_of(i - first + 1) for i in h if i >= first) for h in hypotheses
        ]
        assert counts[0] == wanted and all(count <= wanted for count in counts)
        for hypothesis, count in zip(hypotheses, counts, strict=True):
            assert count == wanted or hypothesis[-1:] != [translator.tokenizer.eos_id]
        alone = search(translator.marked().encode(tf.constant([source])))
        np.testing.assert_allclose(alone.scores[0], found.scores[row], rtol=1e-5)
        assert [[i for i in h if i] for h in alone.ids[0].numpy().tolist()] == hypotheses


@pytest.mark.slow
def test_terms_and_placeholders_are_both_in_a_translation(translator):
    texts = ["The {a} small dog {b}. A dog.", "She sees it."]
    found = translator.documents(texts, terms={"dog": "Hund Mann"})
    assert found[0].count("Hund Mann") == 2 and found[1] == translator(texts[1:])[0]
    assert sorted(re.findall("{.}", found[0])) == ["{a}", "{b}"]


@pytest.mark.slow
def test_a_shortlist_has_the_placeholders_of_each_sentence():
    own = shortlist()._replace(vocabulary=tokenizer().fingerprint())
    narrow = ShortlistTranslator(make(), own)
    texts = [*texts_with_spans(12, most=4), "The old man."]
    found = narrow.documents(texts)
    assert [spans_of(text) for text in found] == [spans_of(text) for text in texts]
    assert found[-1] == narrow(texts[-1:])[0]
    plain = make()
    plain.protection = ByAlignment()
    assert ShortlistTranslator(plain, own).protection is plain.protection


@pytest.mark.slow
def test_a_model_of_many_languages_has_placeholders_too():
    trained = tokenizer(3, ("de", "en", "fr"))
    languages = LanguageTemplate(trained.languages.ids, source="source", forces_target=True)
    own = type(trained)("bpe", trained.model_bytes, languages=languages, placeholders=3)
    translator = Translator(tiny.model(), own, max_extra_tokens=0, max_source_length=40)
    texts = list(texts_with_spans(8, most=3))
    found = translator.documents(texts, source_language="en", target_language=["de", "fr"] * 4)
    assert [spans_of(text) for text in found] == [spans_of(text) for text in texts]
