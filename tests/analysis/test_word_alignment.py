import numpy as np
import pytest

from t2t_keras.analysis.sentence_attention import attention_of
from t2t_keras.analysis.word_alignment import (
    align_texts,
    align_words,
    pharaoh,
    words_of_pieces,
)
from t2t_keras.errors import InputError
from tests.tasks import tiny


def test_pieces_belong_to_the_words_between_spaces():
    #       0123456789
    text = "an  old ox"
    begins, ends = [0, 1, 4, 4, 8, 0, 2], [1, 2, 6, 7, 10, 0, 4]
    assert words_of_pieces(text, begins, ends).tolist() == [0, 0, 1, 1, 2, -1, -1]
    assert words_of_pieces("", [], []).tolist() == []


def test_a_hand_made_matrix():
    """Source: the ro|bin end; target: das Rot|kehl|chen end, which looks at "the" once."""
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


def test_texts_are_aligned_by_the_layer_asked_for():
    translator = tiny.translator()
    texts = ["The old man sees a small dog.", "", "A dog."]
    translations = ["Der alte Mann sieht.", "Hund", "Ein kleiner Hund."]
    found = list(align_texts(translator, texts, translations, batch_size=2))
    assert found[1] == []
    for row in (0, 2):
        cross = attention_of(translator, texts[row], translations[row]).cross
        words = []
        for pieces in (cross.keys, cross.queries):
            starts = [piece.startswith("▁") for piece in pieces[:-1]]
            words.append([*(np.cumsum(starts) - 1), -1])
        assert found[row] == align_words(cross.weights[-1].mean(axis=0), *words)
        assert {target for _, target in found[row]} == set(range(len(translations[row].split())))


def test_what_cannot_be_aligned_is_refused():
    translator = tiny.translator()
    with pytest.raises(InputError, match="layer is 1: give one from -1 to 0"):
        list(align_texts(translator, ["a"], ["b"], layer=1))
    with pytest.raises(InputError, match="1 texts and 2 translations"):
        list(align_texts(translator, ["a"], ["b", "c"]))
