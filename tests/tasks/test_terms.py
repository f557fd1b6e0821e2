"""Terms: which stand in a text, how their targets are encoded, and translations that have them."""

import functools
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.interop.marian import load_marian
from t2t_keras.tasks.given_translations import sequence_log_prob
from t2t_keras.tasks.shortlist import ShortlistTranslator
from t2t_keras.tasks.terms import Terms, ask, continues_word, required_phrases, terms_constraint
from tests.interop import marian_folder
from tests.tasks import tiny
from tests.tasks.test_shortlist import shortlist

KINDS = ["bpe", "unigram", "wordpiece"]
TERMS = {"small dog": "Zugtier", "train": "Hund Mann", "dog": "Mann", "old": "kleinen"}


@pytest.fixture(scope="module")
def translator():
    return tiny.translator()


@functools.cache
def tokenizer_of(kind):
    return train_tokenizer(kind, tiny.LINES * 3, 300 if kind == "unigram" else 330)


WORDS = ("Hund", "Hundes")


def text_of(tokenizer, ids):
    return tokenizer.decode(np.array([ids], np.int32)).numpy()[0].decode()


def lines(terms):
    return "\n".join("\t".join(pair) for pair in terms)


def counts(text, *sources):
    """How often each source phrase stands in a text, each with a target of its own."""
    targets = ["a", "b", "c", "d"]
    terms = lines(zip(sources, targets, strict=False))
    phrases = required_phrases(tf.constant([text]), tf.constant([terms]), tiny.tokenizer())
    found = {
        text_of(tiny.tokenizer(), ids): int(count)
        for ids, count in zip(phrases.ids[0], phrases.counts[0], strict=True)
    }
    return [found.get(target, 0) for target, _ in zip(targets, sources, strict=False)]


@pytest.mark.parametrize(
    ("text", "sources", "expected"),
    [
        ("The dog sees a dog.", ["dog"], [2]),
        ("Dogs and dogged hotdog dog's", ["dog"], [1]),  # "dog", an apostrophe, "s"
        ("DOG Dog dog", ["dog"], [3]),
        ("DOG Dog dog", ["Dog"], [1]),
        ("Dog dog", ["dog", "Dog"], [1, 1]),  # the one with the same capitals counts
        ("in New York and York", ["York", "New York"], [1, 1]),
        ("a New  \u00a0York, new york", ["New York"], [1]),
        ("New York City", ["New York", "York City"], [1, 1]),  # neither hides the other
        ("a small dog", ["small dog", "dog", "a small"], [1, 0, 1]),
        ("the end", ["the end ."], [0]),
        ("the end.", ["end."], [1]),
        ("黑猫坐下 cat猫", ["猫", "cat"], [2, 1]),
        ("Cafe\u0301 d'e\u0301te\u0301", ["caf\u00e9", "\u00e9t\u00e9"], [1, 1]),
        ("ÄPFEL", ["äpfel"], [1]),
        ("C++ and C# or C", ["C++", "C#"], [1, 1]),
        ("", ["dog"], [0]),
        ("dog\x00dog", ["dog"], [2]),
    ],
)
def test_a_source_phrase_stands_in_a_text_as_whole_words(text, sources, expected):
    assert counts(text, *sources) == expected
    rows = Terms(dict.fromkeys(sources, "x")).rows([text.encode()])
    kept = rows[0].decode().split("\n")
    for source, count in zip(sources, expected, strict=True):
        assert not count or f"{source}\tx" in kept  # what Python leaves out stands nowhere


def test_one_target_of_several_sources_must_appear_for_each():
    terms = lines([("dog", "Hund"), ("hound", "Hund"), ("dog", "Hund"), ("cat", "Katze")])
    phrases = required_phrases(
        tf.constant(["a dog, a dog and a hound", "a cat"]),
        tf.constant([terms, terms + "\r\n\n  \na\tB"]),
        tiny.tokenizer(),
    )
    assert np.sum(phrases.counts.numpy() > 0, axis=1).tolist() == [1, 2]
    assert np.max(phrases.counts, axis=1).tolist() == [3, 1]
    [hund] = tiny.tokenizer().encode(["Hund"]).to_list()
    np.testing.assert_array_equal(phrases.num_tokens(), [3 * len(hund), phrases.num_tokens()[1]])


@pytest.mark.parametrize("kind", KINDS)
def test_targets_have_the_tokens_that_they_have_inside_of_a_sentence(kind):
    tokenizer = tokenizer_of(kind)
    for target in ("Hund", "der alte Mann", "Zugtier"):
        phrases = required_phrases(
            tf.constant(["dog"]), tf.constant([f"dog\t{target} "]), tokenizer
        )
        ids = [i for i in phrases.ids[0, 0].numpy().tolist() if i]
        [whole] = tokenizer.encode([f"Der {target}"]).to_list()
        assert whole[-len(ids) :] == ids
        assert text_of(tokenizer, ids) == target


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_targets_in_scripts_without_spaces_have_no_space_before_them(kind):
    text = ["黑猫坐下。", "我的黑猫看见白猫。", "the cat (a dog) sees"] * 9
    tokenizer = train_tokenizer(kind, text, 284)
    phrases = required_phrases(tf.constant(["dog"]), tf.constant(["dog\t 黑猫"]), tokenizer)
    [ids] = [[i for i in row.tolist() if i] for row in phrases.ids[0, :1].numpy()]
    before = tokenizer.encode(["看见"]).to_list()[0]
    assert text_of(tokenizer, before + ids) == "看见黑猫"


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_that_continue_a_word_are_those_that_glue_letters_to_it(kind):
    tokenizer = tokenizer_of(kind)
    flags = continues_word(tokenizer)
    [hund] = tokenizer.encode(["Hund"]).to_list()
    for token in range(260, tokenizer.vocab_size):
        text = text_of(tokenizer, [*hund, token])
        assert flags[token] == text.removeprefix("Hund")[:1].isalnum(), tokenizer.pieces([token])
    for character in "E7zÄЖא -…“猫😀":  # bytes
        first, *rest = (4 + byte for byte in character.encode())
        assert text_of(tokenizer, [*hund, first, *rest, *hund]).startswith(f"Hund{character}")
        assert flags[first] == (character.isalnum() and character != "猫"), character
    assert not flags[:4].any()


def test_translations_have_the_targets_of_terms_and_others_are_unchanged(translator):
    texts = ["A small dog.", "She sees it.", "The old dog sees a train, a train!", "", "Old."]
    for n in (1, 3):
        found = translator.n_best(texts, n, terms=TERMS)
        plain = translator.n_best(texts, n)
        assert found[1] == plain[1] and found[3] == plain[3]
        for row, wanted in (
            (0, ["Zugtier"]),
            (2, ["kleinen", "Mann", "Hund Mann"]),
            (4, ["kleinen"]),
        ):
            assert all(target in found[row][0].text for target in wanted)
            assert not all(target in plain[row][0].text for target in wanted)
    assert found[2][0].text.count("Hund Mann") >= 2
    assert translator(texts, terms=TERMS) == [
        row[0].text for row in translator.n_best(texts, 1, terms=TERMS)
    ]


def test_the_score_with_terms_is_that_of_the_model(translator):
    texts = tf.constant(["A small dog.", "The old man."])
    ids = translator.encode(texts)
    terms = tf.constant([lines(TERMS.items())] * 2)
    constraint = terms_constraint(texts, terms, translator.tokenizer, tf.constant([48, 48]))
    found = translator.search(ids, constraint=constraint)
    targets = found.ids[:, 0]
    scores = sequence_log_prob(translator.model, ids, targets, translator.tokenizer.bos_id)
    np.testing.assert_allclose(found.log_probabilities[:, 0], scores.log_probabilities, rtol=1e-4)


def test_a_translation_with_terms_does_not_depend_on_the_batch(translator):
    together = translator.n_best([*tiny.LINES, *tiny.ODD], 2, terms=TERMS)
    for row, text in enumerate([*tiny.LINES, *tiny.ODD]):
        [alone] = translator.n_best([text], 2, terms=TERMS)
        assert [t.text for t in alone] == [t.text for t in together[row]]


def test_a_term_is_a_word_of_its_own_beside_one_that_is_a_longer_word(translator):
    [[hund], [hundes]] = (translator.tokenizer.encode([word]).to_list() for word in WORDS)
    assert hundes[: len(hund)] == hund  # else the longer one could not hide the shorter one
    terms = dict(zip(("dog", "dogs"), WORDS, strict=True))
    texts = {"The dog sees dogs.": [1, 1], "Dogs, a dog.": [1, 1], "A dog, dogs and a dog.": [2, 1]}
    for n in (1, 3):
        rows = translator.n_best(list(texts), n, terms=terms)
        for [found, *_], wanted in zip(rows, texts.values(), strict=True):
            words = re.findall("Hundes|Hund", found.text)  # single bytes may follow
            assert all(words.count(w) >= c for w, c in zip(WORDS, wanted, strict=True)), words


def test_terms_follow_a_prefix(translator):
    [found] = translator(["A dog."], prefix=["Der Zug"], terms={"dog": "alte Mann"})
    assert found.startswith("Der Zug") and "alte Mann" in found


@pytest.mark.slow
def test_a_shortlist_has_the_tokens_of_terms(translator):
    narrow = ShortlistTranslator(translator, shortlist(k=1))
    texts = ["A small dog.", "She sees it."]
    found, plain = narrow(texts, terms=TERMS), narrow(texts)
    assert "Zugtier" in found[0] and "Zugtier" not in plain[0]
    assert found[1] == plain[1]


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        (["dog"], r"terms is a list: give a dict"),
        ({"dog": 3}, r"terms has 'dog': 3: give text on one line for both"),
        ({"dog": " "}, r"terms has 'dog': ' ': give text"),
        ({"cat": "\0"}, r"terms has 'cat': '\\x00': give text"),
        ({"": "Hund"}, r"terms has '': 'Hund': give text"),
        ({"dog\tcat": "Hund"}, r"terms has 'dog\\tcat': leave the tab out"),
        ({"dog": "Hund\nMann"}, r"terms has 'dog': 'Hund\\nMann': give text on one line"),
        ({"dog\n": "Hund"}, r"terms has 'dog\\n': 'Hund': give text on one line"),
        ({"dog": "Hund\r"}, r"terms has 'dog': 'Hund\\r': give text on one line"),
        ({"dog": "Hund", " dog ": "Mann"}, r"terms has the line “dog → Hund”, and another target"),
        ({"dog": "Hund " * 30}, r"terms of the text “A dog.” take \d+ tokens, and there is room"),
    ],
)
def test_invalid_terms_are_refused_in_one_sentence(translator, terms, message):
    with pytest.raises(InputError, match=message) as caught:
        translator(["A dog."], terms=terms)
    assert "\n" not in str(caught.value) and str(caught.value).endswith((".", "both."))
    assert translator(["A train."], terms={"dog": "Hund " * 30}) == translator(["A train."])


def test_a_message_has_the_beginning_of_a_long_line():
    swapped = tf.constant(["The old man. " * 9_000])  # a text in the place of terms

    @tf.function
    def demanded(terms):
        return required_phrases(tf.constant(["A dog."]), terms, tiny.tokenizer())

    with pytest.raises(InputError) as caught:
        ask(demanded, swapped)
    beginning = ("The old man. " * 9)[:60]
    assert str(caught.value) == (
        f"terms has the line “{beginning}”: give a source phrase, a tab and a target phrase."
    )


def test_lines_that_a_graph_would_match_are_given_to_it():
    texts, terms = ["Η ΟΔΟΣ.Α", "STRASSE", "a"], {"οδος": "Hund", "straße": "Mann"}
    rows = Terms(terms).rows([text.encode() for text in texts])
    all_rows = ["\n".join(f"{s}\t{t}" for s, t in terms.items())] * len(texts)
    for given in (rows, all_rows):
        found = required_phrases(tf.constant(texts), tf.constant(given), tiny.tokenizer())
        assert tf.reduce_sum(found.counts, axis=1).numpy().tolist() == [1, 0, 0]


def test_a_text_without_room_for_its_terms_is_named():
    texts = ["A train.", 'It\'s "a"\t\\ \n dog' + "!" * 90, "A dog."]
    terms = tf.constant([lines([("dog", "Hund " * 30), ("train", "Zug")])] * 3)

    @tf.function
    def demanded(texts):
        room = tf.constant([48] * 3)
        return terms_constraint(texts, terms, tiny.tokenizer(), room).phrases

    with pytest.raises(InputError) as caught:
        ask(demanded, tf.constant(texts))
    [named, room] = str(caught.value).split(" take ")
    assert named == "terms of the text “It’s ”a” dog" + "!" * 48 + "”"
    assert re.fullmatch(r"\d+ tokens, and there is room for 48: give fewer or shorter ones.", room)


def peak_memory(function):
    """Returns the most memory that this process has while it calls a function, in MiB above now."""
    pathlib.Path("/proc/self/clear_refs").write_text("5")

    def now(name):
        return int(re.search(rf"{name}:\s+(\d+)", pathlib.Path("/proc/self/status").read_text())[1])

    before = now("VmRSS")
    function()
    return (now("VmHWM") - before) / 1024


def test_long_phrases_take_no_more_memory_than_their_text():
    text = " ".join(f"w{i}" for i in range(6000))
    terms = tf.constant([lines([(text, "Hund"), ("w7 w8", "Mann"), ("W7 w9", "Zug")])])
    find = functools.partial(
        required_phrases, tf.constant([f"a {text} z"]), terms, tiny.tokenizer()
    )
    assert find().counts.numpy().tolist() == [[1, 0]]  # the longest hides the others
    assert peak_memory(find) < 100


def test_a_target_that_the_vocabulary_lacks_is_refused(tmp_path):
    marian_folder.write(tmp_path / "marian")
    tokenizer = load_marian(tmp_path / "marian").tokenizer.target
    message = "the vocabulary has no tokens for its target phrase"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        required_phrases(tf.constant(["a"]), tf.constant(["a\tꙮ"]), tokenizer)


def test_a_file_of_terms_is_read_line_by_line(tmp_path):
    path = tmp_path / "terms.tsv"
    path.write_text("dog\tHund\n\n train \t Der Zug\ndog\tHund\n", encoding="utf-8")
    assert Terms.read(path).rows([b"A dog.", b"trains"]) == [b"dog\tHund", b"train\tDer Zug"]
    for content, message in (
        ("dog\tHund\ndog\n", r"line 2 is 'dog': give a source phrase, a tab and a target phrase"),
        ("dog\tHund\tMann\n", r"line 1 is 'dog\\tHund\\tMann'"),
        ("\tHund\n", r"line 1 is '\\tHund'"),
        ("a\tb\nold\x0cman\tMann\n", r"line 2 has 'old\\x0cman': 'Mann': give text on one line"),
        ("a\tb\n\ndog\t\0\n", r"line 3 has 'dog': '\\x00': give text on one line"),
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
def test_terms_hold_in_each_sentence_of_a_document(translator):
    terms = {"small dog": "Zugtier", "train": "Hund Mann"}
    sentences = ["A small dog <b>sees</b> a train.", "She sees it.", "The old man."]
    plain = [text.replace("<b>", "").replace("</b>", "") for text in sentences]
    document = f" {sentences[0]} {sentences[1]}\n\n{sentences[2]}\r\n"
    first, second, third = translator(plain, terms=terms)
    [found] = translator.documents([document], terms=terms)
    assert found.count("<b>") == found.count("</b>") == 1
    # A tag inside of a word has a space beside it.
    found = re.sub(r"</?b>|[ ]", "", found)
    assert found == f"{first}{second}\n\n{third}\r\n".replace(" ", "")
    assert "Zugtier" in first and "Hund Mann" in first
    assert translator.documents([document], terms={"tree": "Baum"}) == translator.documents(
        [document]
    )
    with pytest.raises(InputError, match=r"terms of the text “A small dog sees a train\.” take"):
        translator.documents([document], terms={"dog": "Hund " * 40})
