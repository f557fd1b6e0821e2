"""Attention of a sentence, statistics of heads, and word alignment, against the model itself."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.analysis.attention import (
    align_texts,
    align_words,
    head_statistics,
    pharaoh,
    readable,
    row_statistics,
    sentence_attention,
    words_of_tokens,
)
from t2t_keras.errors import InputError
from tests.tasks import tiny

PAIRS = [
    ("The old man sees a small dog.", "Der alte Mann sieht einen kleinen Hund."),
    ("A train.", "Ein Zug."),
    ("She does not know.", "Sie weiß nicht, ob der Zug kommt."),
]


@pytest.fixture(scope="module")
def translator():
    return tiny.translator()


def test_the_attention_of_a_sentence_is_the_models(translator):
    found = sentence_attention(translator, "The old man.", "Der Mann.")
    tokenizer = translator.tokenizer
    source, target = (
        [*tokenizer.encode([text]).to_list()[0], tokenizer.eos_id]
        for text in ("The old man.", "Der Mann.")
    )
    read = [tokenizer.bos_id, *target[:-1]]
    weights = translator.model(
        {"source_ids": tf.constant([source]), "target_ids": tf.constant([read])},
        return_attention_weights=True,
    )[1]
    for kind, expected in weights._asdict().items():
        np.testing.assert_allclose(getattr(found, kind).weights, expected[0], atol=1e-6)

    def tokens(ids):
        return [token.decode() for token in tokenizer.pieces(tf.constant(ids)).numpy()]

    assert found.encoder.queries == found.encoder.keys == found.cross.keys == tokens(source)
    assert found.cross.queries == tokens(target)
    assert found.decoder.queries == found.decoder.keys == tokens(read)
    assert found.decoder.queries[0] == "<s>"


def test_tokens_are_shown_without_their_marks():
    shown = {"▁the": "the", "ing": "ing", "##ing": "ing", "##": "##", "</s>": "end", "▁": "space"}
    shown |= {"<s>": "start", "a\x07": "a\ufffd", "▁a▁b": "a b"}
    assert {token: readable(token) for token in shown} == shown


def test_rows_by_hand():
    # Uniform; all on the one before; itself and the next.
    found = row_statistics(np.array([[0.25] * 4, [1.0, 0, 0, 0], [0, 0, 0.5, 0.5]]))
    np.testing.assert_allclose(found.entropy, [np.log(4), 0, np.log(2)])
    np.testing.assert_allclose(found.distance, [1.5, 1.0, 0.5])
    np.testing.assert_allclose(found.previous, [0, 1, 0])
    np.testing.assert_allclose(found.same, [0.25, 0, 0.5])
    np.testing.assert_allclose(found.next, [0.25, 0, 0.5])


def test_a_corpus_is_the_mean_over_all_rows_of_its_sentences_alone(translator):
    texts, translations = map(list, zip(*PAIRS, strict=True))
    rows = {"encoder": [], "decoder": [], "cross": []}
    for text, translation in PAIRS:  # without any padding
        for kind, attention in sentence_attention(translator, text, translation)._asdict().items():
            rows[kind].append(row_statistics(attention.weights))
    found = head_statistics(translator, texts, translations, batch_size=2)
    for kind, statistics in found.items():
        for name, values in statistics._asdict().items():
            alone = np.concatenate([getattr(row, name) for row in rows[kind]], axis=-1)
            np.testing.assert_allclose(values, alone.mean(axis=-1), atol=1e-4)
    assert found["decoder"].next == pytest.approx(0)  # the mask hides later positions


def test_tokens_belong_to_the_words_between_spaces():
    #       0123456789
    text = "an  old ox"
    begins, ends = [0, 1, 4, 4, 8, 0, 2], [1, 2, 6, 7, 10, 0, 4]
    assert words_of_tokens(text, begins, ends).tolist() == [0, 0, 1, 1, 2, -1, -1]
    assert words_of_tokens("", [], []).tolist() == []


@pytest.mark.parametrize(
    "text", ["10\u00a0000  livres\u00a0!", "東京\u3000大学 です", "a\u2028b\u2003 c"]
)
def test_words_are_counted_between_ascii_spaces_as_aligners_count_them(text):
    starts = np.arange(len(text))
    words = [word for word in text.split(" ") if word]
    assert words_of_tokens(text, starts, starts + 1).max() == len(words) - 1


def test_a_hand_made_matrix():
    """Source: the ro|bin end; target: das Rot|kehl|chen end, which attends to "the" once."""
    source, target = [0, 1, 1, -1], [0, 1, 1, 1, -1]
    weights = np.array(
        [
            [0.6, 0.1, 0.1, 0.2],
            [0.1, 0.5, 0.2, 0.2],
            [0.4, 0.1, 0.1, 0.4],  # alone it would go to "the"
            [0.0, 0.1, 0.3, 0.6],  # mostly to the end, which is no word
            [0.0, 0.0, 0.0, 1.0],
        ]
    )
    assert align_words(weights, source, target) == [(0, 0), (1, 1)]
    crossed = align_words(weights[[1, 0, 4]], source, [0, 1, -1])
    assert pharaoh(crossed) == "0-1 1-0"
    assert pharaoh(align_words(weights, [-1] * 4, target)) == ""
    assert pharaoh(align_words(weights, source, [-1] * 5)) == ""


def test_texts_are_aligned_by_the_layer_asked_for(translator):
    texts = ["The old man sees a small dog.", "", "A dog."]
    translations = ["Der alte Mann sieht.", "Hund", "Ein kleiner Hund."]
    found = list(align_texts(translator, texts, translations, batch_size=2))
    assert found[1] == []
    for row in (0, 2):
        cross = sentence_attention(translator, texts[row], translations[row]).cross
        words = []
        for pieces in (cross.keys, cross.queries):
            starts = [piece.startswith("▁") for piece in pieces[:-1]]
            words.append([*(np.cumsum(starts) - 1), -1])
        assert found[row] == align_words(cross.weights[-1].mean(axis=0), *words)
        assert {target for _, target in found[row]} == set(range(len(translations[row].split())))


def test_mistakes_are_named(translator):
    for call, message in (
        (lambda: head_statistics(translator, ["a"], []), "1 texts and 0 translations"),
        (lambda: head_statistics(translator, [], []), "at least one text"),
        (lambda: list(align_texts(translator, ["a"], ["b"], layer=1)), "layer is 1: give one from"),
        (lambda: list(align_texts(translator, ["a"], ["b", "c"])), "1 texts and 2 translations"),
    ):
        with pytest.raises(InputError, match=message):
            call()
