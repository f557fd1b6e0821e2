"""Protected spans by placeholders of the vocabulary: each comes through once, by its number."""

import collections
import copy
import functools
import random
import re

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.language_template import LanguageTemplate
from t2t_keras.data.placeholders import mark_of
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.tasks.placeholders import ByPlaceholders, number_marks, place_marks
from t2t_keras.tasks.protected_spans import MARK, ByAlignment, mask_spans, unmask_spans
from t2t_keras.tasks.shortlist import ShortlistTranslator
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny
from tests.tasks.test_shortlist import shortlist

A, B, C = map(mark_of, (1, 2, 3))
WORD = "\ue080"  # the mark of a span that is no markup
SPANS = [
    "{name}",
    "%s",
    "<b>",
    "</b>",
    "&amp;",
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


@pytest.fixture(scope="module")
def translator():
    return make()


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


@pytest.mark.parametrize(
    ("sentence", "numbered"),
    [
        ("Click _here_ now _.", f"Click {A} here {B} now {C}."),
        ("_", A),
        ("(_) x=_, _!", f"({A}) x={B}, {C}!"),
        ("我_爱_你 7_", f"我{A}爱{B}你 7 {C}"),
        ("_ _ _ _", "_ _ _ _"),
        ("§a_§ _ §.", f"§a {A}§ {B} §."),
        ("none", "none"),
        ("", ""),
    ],
)
def test_marks_of_a_sentence_get_numbers_and_stand_apart_from_letters(sentence, numbered):
    sentence, numbered = (
        text.replace("_", WORD).replace("§", MARK) for text in (sentence, numbered)
    )
    assert decoded(number_marks(tf.constant([f"x {WORD}", sentence]), 3)) == [f"x {A}", numbered]


@pytest.mark.parametrize(
    ("sentence", "translation", "expected"),
    [
        ("Click {b}here{c} now {x}.", f"{C} {A} hier {B} klicken.", "{x} {b}hier{c} klicken."),
        ("Click {b}here{c} now {x}.", f"{B} {A} {C} da", "{c} {b}{x} da"),
        ("<b>Click</b> {x} {y} <br/>", f"{B} {MARK}{MARK} {A} {MARK}", "{y} <b></b> {x} <br/>"),
        ("to {x}, a{y}b", f"{B}ab {A}.", "{y}ab {x}."),
        ("a {x} b {y}", f"c{B}{A}d", "c {y}{x} d"),
        ("a{b}b{c} {x}", f"{A} <b>{C} {B}", "{b}<b>{x}{c}"),  # the model wrote one more
        ("to {x}, a{y}b", f"{B}ab {C}{A}. {A}", "{y}ab {x}. "),  # it spelled marks by bytes
    ],
)
def test_spans_come_back_by_number_without_the_spaces_that_were_added(
    sentence, translation, expected
):
    protection = ByPlaceholders(range(300, 308))
    before = "One {z} <i>two</i>. "  # of another sentence
    masked, spans = protection.mask(tf.constant([before + sentence, sentence]), "")
    masked = [text.removeprefix(f"One {WORD} {MARK}two{MARK}. ") for text in decoded(masked)]
    placed = decoded(place_marks(tf.constant([translation] * 2), tf.constant(masked)))
    placed[0] = f"Ein {WORD} {MARK}zwei{MARK}. " + placed[0]
    found = decoded(protection.unmask(tf.constant(placed), spans))
    assert found == [f"Ein {{z}} <i>zwei</i>. {expected}", expected]


def test_marks_that_a_model_spells_are_left_out():
    protection = ByPlaceholders(range(300, 308))
    masked, spans = protection.mask(tf.constant(["to {x}, a", "{y}"]), "")
    spelled = tf.constant([f"\ue090{A} \ue0ffab{B}\ue080.\ue000", f"\ue081{A}\ue040"])
    found = protection.translate(masked, lambda sentences: spelled, None, room=8)
    assert decoded(protection.unmask(found, spans)) == ["{x} ab .", "{y}"]
    many, [one] = tf.constant([WORD * 9]), [f"{B}{WORD}"]  # more than there are placeholders
    assert decoded(place_marks(tf.constant([one]), many, most=8)) == [one[1:]]


def test_a_lost_or_added_mark_changes_its_own_document_alone():
    protection = ByPlaceholders(range(300, 308))
    texts = ["<i>a</i> {a} {b}", "<b>b</b> {c} {d}", "{e}"]
    masked, spans = protection.mask(tf.constant(texts), "")
    masked = decoded(masked)
    changed = [f"{masked[0]} {WORD}{MARK}", masked[1].replace(f" {WORD}", "", 1), masked[2]]
    found = decoded(protection.unmask(tf.constant(changed), spans))
    assert found == ["<i>a</i> {a} {b} ", "<b>b</b> {c}", "{e}"]
    plain, spans = mask_spans(tf.constant(texts))
    plain = decoded(plain)
    changed = [plain[0] + MARK, plain[1].removesuffix(MARK), plain[2]]
    assert decoded(unmask_spans(tf.constant(changed), spans)) == [
        "<i>a</i> {a} {b}",
        "<b>b</b> {c} ",
        "{e}",
    ]


@pytest.mark.parametrize("term", [("dog", A), ("dog", "a\ue000b"), (A, "Hund")])
def test_terms_of_documents_have_no_marks(translator, term):
    text = f"{A} dog {{name}}."
    translator([text], terms=dict([term]))
    with pytest.raises(InputError, match="in a document the characters U\\+E000 to U\\+E0FF"):
        translator.documents([text, "A {secret}."], terms=dict([term]))


def test_another_protection_counts_after_the_first_document_too():
    texts = [*texts_with_spans(12, most=3)]
    translator, other = make(), make()
    before = translator.documents(texts)
    translator.protection = other.protection = ByAlignment()
    assert translator.documents(texts) == other.documents(texts) != before
    own = shortlist()._replace(vocabulary=tokenizer().fingerprint())
    assert ShortlistTranslator(translator, own).protection is translator.protection


def test_each_span_of_a_document_comes_through_once(translator):
    texts = [*texts_with_spans(60, most=5), "<b></b>", "{x}\n\n%s", "", f"{MARK}. {A}{B}"]
    texts += [" ".join(texts[:5]), "\n".join(texts[5:9])]
    found = translator.documents(texts)
    assert [spans_of(text) for text in found] == [spans_of(text) for text in texts]
    # Spans may change places: what is equal by chance in a model of random weights is not.
    orders = [re.findall("|".join(map(re.escape, SPANS)), text) for text in found]
    assert orders != [re.findall("|".join(map(re.escape, SPANS)), text) for text in texts]
    # Markup never does.
    for text, translation in zip(texts, found, strict=True):
        assert re.findall("</?b>", translation) == re.findall("</?b>", text)
    assert not any(
        re.search("[\ue001-\ue0fe]", text.replace(A, "").replace(B, "")) for text in found
    )


def test_the_other_sentences_of_a_batch_do_not_change_a_document(translator):
    texts = [*texts_with_spans(12, most=5, seed=1), *tiny.LINES]
    assert translator.documents(texts) == [translator.documents([text])[0] for text in texts]


def test_sentences_without_spans_are_those_of_a_call(translator):
    assert translator.documents(tiny.LINES) == translator(tiny.LINES)


@pytest.mark.slow
def test_other_searches_of_lines_have_no_placeholders(translator):
    rows = translator.n_best(tiny.LINES, 4)
    detailed = translator.n_best_tokens(tiny.LINES, 4)
    assert [[t.text for t in row] for row in rows] == [[t.text for t in row] for row in detailed]
    drawn = translator.sample(tiny.LINES, 3)
    assert not any(re.search("[\ue001-\ue0ff]|<ph", t.text) for row in drawn for t in row)


def test_samples_have_no_placeholders(translator, monkeypatch):
    monkeypatch.setattr(translator, "_as_texts", lambda found, *_: found.ids)
    count = 6 * len(tiny.LINES)
    numbers = (tf.fill([count], x) for x in (1.0, 0, 1.0))
    seeds = tf.constant([[i, 0] for i in range(count)])
    drawn = translator.draw(tf.constant(tiny.LINES * 6), seeds, *numbers)
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


def test_a_sentence_with_more_spans_than_placeholders_goes_by_alignment(translator):
    texts = [f"The {{a}} old {{b}} man {{c}} sees {{d}} a {line}" for line in tiny.LINES]
    for found in translator.documents(texts):
        assert re.findall("{.}", found) == ["{a}", "{b}", "{c}", "{d}"]  # in order


@pytest.mark.slow
def test_without_placeholders_or_room_for_them_documents_go_by_alignment():
    texts = ["The {a} old {b} man {c} <br/> sees {d} a dog.", "She sees."]
    plain, short = make(), make(max_target_length=3)
    plain_by_alignment, short_by_alignment = copy.copy(plain), copy.copy(short)
    plain_by_alignment.protection = short_by_alignment.protection = ByAlignment()
    assert plain.documents(texts) == plain_by_alignment.documents(texts)
    assert short.documents(texts) == short_by_alignment.documents(texts)
    texts = ["The {a} old man.", "The {a} old {b} man.", "The {a} old {b} man {c}."]
    for text, found in zip(texts, short.documents(texts), strict=True):
        assert sorted(re.findall("{.}", found)) == re.findall("{.}", text)


def test_a_long_sentence_is_divided_and_keeps_its_spans(translator):
    texts = [" ".join(texts_with_spans(9, most=2)).replace(".", ","), "<b>dog</b> " * 30]
    found = translator.documents(texts)
    assert [spans_of(text) for text in found] == [spans_of(text) for text in texts]


def test_a_mark_in_a_users_text_is_no_placeholder(translator):
    texts = [f"The {A} dog.", f"{B}", "The <ph1> dog."]
    ids = translator.encode(tf.constant(texts)).numpy()
    assert not np.isin(ids, translator.tokenizer.placeholder_ids).any()
    [found, other] = translator.documents([f"The {A} dog {{x}} {C}.", f"{B}{B}"])
    assert found.count(A) == found.count(C) == found.count("{x}") == 1 and other == f"{B}{B}"


@pytest.mark.slow
def test_terms_and_placeholders_are_both_in_a_translation(translator):
    marked = translator.marked()
    texts = [f"The {A} small dog {B}.", "She sees it.", f"{C} dog", "A dog."]
    found = marked(texts, terms={"small dog": "Zugtier", "dog": "Hund Mann"})
    for text, translation in zip(texts, found, strict=True):
        assert re.findall(f"[{A}-{C}]", text) == sorted(re.findall(f"[{A}-{C}]", translation))
        assert ("Zugtier" in translation) >= ("small" in text)
    assert "Hund Mann" in found[2] and "Hund Mann" in found[3]
    assert found[1] == translator(texts[1:2])[0]
    document = translator.documents(["The {a} small dog {b}. A dog."], terms={"dog": "Hund Mann"})
    assert re.findall("{.}|Hund Mann", document[0]).count("Hund Mann") == 2
    assert sorted(re.findall("{.}", document[0])) == ["{a}", "{b}"]
    with pytest.raises(ValueError, match=r"take \d+ tokens, and there is room for 46: give fewer"):
        marked([f"{A} dog {B}"], terms={"dog": "Hund " * 30})


@pytest.mark.slow
def test_a_shortlist_has_the_placeholders_of_each_sentence():
    own = shortlist()._replace(vocabulary=tokenizer().fingerprint())
    narrow = ShortlistTranslator(make(), own)
    texts = [*texts_with_spans(12, most=4), "The old man."]
    found = narrow.documents(texts)
    assert [spans_of(text) for text in found] == [spans_of(text) for text in texts]
    assert found[-1] == narrow(texts[-1:])[0]


@pytest.mark.slow
@pytest.mark.parametrize(
    "template", [{"source": "target"}, {"source": "source", "forces_target": True}]
)
def test_a_model_of_many_languages_has_placeholders_too(template):
    trained = tokenizer(3, ("de", "en", "fr"))
    languages = LanguageTemplate(trained.languages.ids, **template)
    own = type(trained)("bpe", trained.model_bytes, languages=languages, placeholders=3)
    translator = Translator(tiny.model(), own, max_extra_tokens=0, max_source_length=40)
    texts = list(texts_with_spans(8, most=3))
    found = translator.documents(texts, source_language="en", target_language=["de", "fr"] * 4)
    assert [spans_of(text) for text in found] == [spans_of(text) for text in texts]


def test_a_vocabulary_without_placeholders_is_read_as_before():
    plain = tiny.translator()
    assert plain.marked() is plain
    text = f"The {A} dog <b>sees</b>."
    [masked], spans = mask_spans(tf.constant([text]))
    assert masked.numpy().decode() == f"The {A} dog {MARK}sees{MARK}."
    assert spans.to_list() == [[b"<b>", b"</b>"]]
