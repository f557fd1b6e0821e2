import matplotlib.colors
import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.analysis import attention_pictures as draw
from t2t_keras.analysis.pictures import save_figure
from t2t_keras.analysis.sentence_attention import AttentionMap, attention_of, readable
from tests.analysis.drawn import coloured, inked, pixels
from tests.tasks import tiny

PIECES = ["▁the", "▁old", "▁ox", "</s>"]


@pytest.fixture
def attention():
    """Two layers of three heads: one looks back, one at itself, one everywhere."""
    back = np.eye(4)[[0, 0, 1, 2]]
    heads = np.stack([back, np.eye(4), np.full([4, 4], 0.25)])
    return AttentionMap("encoder self-attention", PIECES, PIECES, np.stack([heads, heads]))


def test_the_attention_of_a_sentence_is_the_models():
    translator = tiny.translator()
    found = attention_of(translator, "The old man.", "Der Mann.")
    tokenizer = translator.tokenizer
    source, target = (
        [*tokenizer.encode([text]).to_list()[0], tokenizer.eos_id]
        for text in ("The old man.", "Der Mann.")
    )
    read = [tokenizer.bos_id, *target[:-1]]
    weights = translator.model.attention(
        {"source_ids": tf.constant([source]), "target_ids": tf.constant([read])}
    )
    for kind, expected in weights._asdict().items():
        np.testing.assert_allclose(getattr(found, kind).weights, expected[0], atol=1e-6)

    def pieces(ids):
        return [piece.decode() for piece in tokenizer.pieces(tf.constant(ids)).numpy()]

    assert found.encoder.queries == found.encoder.keys == found.cross.keys == pieces(source)
    assert found.cross.queries == pieces(target)
    assert found.decoder.queries == found.decoder.keys == pieces(read)
    assert found.decoder.queries[0] == "<s>"


def test_pieces_are_shown_without_their_marks():
    shown = {"▁the": "the", "ing": "ing", "##ing": "ing", "##": "##", "</s>": "end", "▁": "space"}
    shown |= {"<s>": "start", "a\x07": "a\ufffd", "▁a▁b": "a b"}
    assert {piece: readable(piece) for piece in shown} == shown


def links(axis):
    """(key, query, colour, opacity) of each link drawn."""
    (collection,) = axis.collections
    for path, colour in zip(collection.get_paths(), collection.get_edgecolors(), strict=True):
        (key, _), (query, _) = path.vertices[[0, -1]]
        yield int(key), int(query), matplotlib.colors.to_hex(colour[:3]), round(colour[3], 2)


def test_one_word_over_heads(attention, tmp_path):
    figure = draw.draw_word(attention, layer=1, query=2)
    blue, orange, green = (
        matplotlib.colors.to_hex(f"tab:{c}") for c in ("blue", "orange", "green")
    )
    assert sorted(links(figure.axes[0])) == sorted(
        [(1, 2, blue, 1.0), (2, 2, orange, 1.0), *((k, 2, green, 0.25) for k in range(4))]
    )
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["head 1", "head 2", "head 3"]
    assert "layer 2 of 2" in figure.axes[0].get_title() and "“ox”" in figure.axes[0].get_title()
    assert coloured(pixels(figure, tmp_path)) > 0.002


def test_whole_heads_and_one_word_below(attention, tmp_path):
    figure = draw.draw_heads(attention, 0, [0, 1], query=3, query_heads=[0, 1])
    back, itself, word = figure.axes
    assert {(key, query) for key, query, *_ in links(back)} == {(0, 0), (0, 1), (1, 2), (2, 3)}
    assert {(key, query) for key, query, *_ in links(itself)} == {(i, i) for i in range(4)}
    assert {(key, query) for key, query, *_ in links(word)} == {(2, 3), (3, 3)}
    assert "head 1 (blue) and head 2 (orange)" in word.get_title()
    assert coloured(pixels(figure, tmp_path)) > 0.002
    assert len(draw.draw_heads(attention, 0, [2]).axes) == 1


def test_matrices_of_all_layers_and_heads(attention, tmp_path):
    figure = draw.draw_matrices(attention)
    images = [axis.images[0].get_array() for axis in figure.axes if axis.images]
    np.testing.assert_allclose(images, attention.weights.reshape(6, 4, 4))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["the", "old", "ox", "end"]
    assert inked(pixels(figure, tmp_path)) > 0.1
    save_figure(figure, tmp_path / "matrices.svg")
    assert (tmp_path / "matrices.svg").read_text().startswith("<?xml")


def test_what_is_worth_drawing(attention):
    assert draw.sharpest_heads(attention, 0) == [0, 1]
    assert draw.clearest_query(attention, 0) in (1, 2)  # at 0 two heads agree; 3 is the end
    comma = attention._replace(queries=["▁the", "▁old", ",", "</s>"])
    assert draw.clearest_query(comma, 0) == 1
    comma = attention._replace(queries=["▁the", "▁,", "▁ox", "</s>"])
    assert draw.clearest_query(comma, 0) == 2
