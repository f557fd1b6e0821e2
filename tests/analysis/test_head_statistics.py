import numpy as np
import pytest

from t2t_keras.analysis.attention_pictures import draw_statistics
from t2t_keras.analysis.head_statistics import corpus_statistics, row_statistics
from t2t_keras.analysis.sentence_attention import attention_of
from t2t_keras.errors import InputError
from tests.analysis.drawn import coloured, pixels
from tests.tasks import tiny

PAIRS = [
    ("The old man sees a small dog.", "Der alte Mann sieht einen kleinen Hund."),
    ("A train.", "Ein Zug."),
    ("She does not know.", "Sie weiß nicht, ob der Zug kommt."),
]


def test_rows_by_hand():
    weights = np.array(
        [
            [0.25, 0.25, 0.25, 0.25],  # uniform: log 4; distances 0, 1, 2, 3
            [1.0, 0.0, 0.0, 0.0],  # all on the one before
            [0.0, 0.0, 0.5, 0.5],  # itself and the next
        ]
    )
    found = row_statistics(weights)
    np.testing.assert_allclose(found.entropy, [np.log(4), 0, np.log(2)])
    np.testing.assert_allclose(found.distance, [1.5, 1.0, 0.5])
    np.testing.assert_allclose(found.previous, [0, 1, 0])
    np.testing.assert_allclose(found.same, [0.25, 0, 0.5])
    np.testing.assert_allclose(found.next, [0.25, 0, 0.5])


def test_a_corpus_is_the_mean_over_all_rows_of_its_sentences_alone():
    translator = tiny.translator()
    texts, translations = map(list, zip(*PAIRS, strict=True))
    rows = {"encoder": [], "decoder": [], "cross": []}
    for text, translation in PAIRS:  # without any padding
        for kind, attention in attention_of(translator, text, translation)._asdict().items():
            rows[kind].append(row_statistics(attention.weights))
    found = corpus_statistics(translator, texts, translations, batch_size=2)
    for kind, statistics in found.items():
        for name, values in statistics._asdict().items():
            alone = np.concatenate([getattr(row, name) for row in rows[kind]], axis=-1)
            np.testing.assert_allclose(values, alone.mean(axis=-1), atol=1e-4)
    assert found["decoder"].next == pytest.approx(0)  # no one looks ahead


def test_the_picture_has_a_row_for_each_kind(tmp_path):
    translator = tiny.translator()
    found = corpus_statistics(translator, [PAIRS[0][0]], [PAIRS[0][1]])
    figure = draw_statistics(found)
    assert len(figure.axes) == 3 * 5
    shown = [float(text.get_text()) for axis in figure.axes[:1] for text in axis.texts]
    np.testing.assert_allclose(shown, found["encoder"].entropy.ravel(), atol=0.006)
    assert coloured(pixels(figure, tmp_path)) > 0.05


def test_unequal_lists_are_refused():
    with pytest.raises(InputError, match="1 texts and 0 translations"):
        corpus_statistics(tiny.translator(), ["a"], [])
    with pytest.raises(InputError, match="at least one text"):
        corpus_statistics(tiny.translator(), [], [])
