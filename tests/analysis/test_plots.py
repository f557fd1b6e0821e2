"""What a plot shows, as far as a test can see."""

import warnings

import matplotlib.colors
import matplotlib.font_manager
import matplotlib.image
import matplotlib.text
import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen

from t2t_keras.analysis import plots
from t2t_keras.analysis.attention import AttentionMap, HeadStatistics
from t2t_keras.errors import InputError
from tests.analysis.drawn import colored, inked, pixels

TOKENS = ["▁the", "▁old", "▁ox", "</s>"]


@pytest.fixture
def attention():
    """Two layers of three heads: one looks back, one at itself, one everywhere."""
    back = np.eye(4)[[0, 0, 1, 2]]
    heads = np.stack([back, np.eye(4), np.full([4, 4], 0.25)])
    return AttentionMap("encoder self-attention", TOKENS, TOKENS, np.stack([heads, heads]))


def links(axis):
    """(key, query, color, opacity) of each link drawn."""
    (collection,) = axis.collections
    for path, color in zip(collection.get_paths(), collection.get_edgecolors(), strict=True):
        (key, _), (query, _) = path.vertices[[0, -1]]
        yield int(key), int(query), matplotlib.colors.to_hex(color[:3]), round(color[3], 2)


def test_one_word_over_heads(attention, tmp_path):
    figure = plots.draw_word(attention, layer=1, query=2)
    expected = [(1, 2, "blue", 1.0), (2, 2, "orange", 1.0)]
    expected += [(key, 2, "green", 0.25) for key in range(4)]
    assert sorted(links(figure.axes[0])) == sorted(
        (key, query, matplotlib.colors.to_hex(f"tab:{color}"), opacity)
        for key, query, color, opacity in expected
    )
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["head 1", "head 2", "head 3"]
    assert "layer 2 of 2" in figure.axes[0].get_title() and "“ox”" in figure.axes[0].get_title()
    assert colored(pixels(figure, tmp_path)) > 0.002


def test_all_links_of_heads_and_one_word_below(attention, tmp_path):
    figure = plots.draw_heads(attention, 0, [0, 1], query=3, query_heads=[0, 1])
    back, itself, word = figure.axes
    assert {(key, query) for key, query, *_ in links(back)} == {(0, 0), (0, 1), (1, 2), (2, 3)}
    assert {(key, query) for key, query, *_ in links(itself)} == {(i, i) for i in range(4)}
    assert {(key, query) for key, query, *_ in links(word)} == {(2, 3), (3, 3)}
    assert "head 1 (blue) and head 2 (orange)" in word.get_title()
    assert colored(pixels(figure, tmp_path)) > 0.002
    assert len(plots.draw_heads(attention, 0, [2]).axes) == 1


def test_matrices_of_all_layers_and_heads(attention, tmp_path):
    figure = plots.draw_matrices(attention)
    images = [axis.images[0].get_array() for axis in figure.axes if axis.images]
    np.testing.assert_allclose(images, attention.weights.reshape(6, 4, 4))
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == ["the", "old", "ox", "end"]
    assert inked(pixels(figure, tmp_path)) > 0.1
    plots.save_figure(figure, tmp_path / "matrices.svg")
    assert (tmp_path / "matrices.svg").read_text().startswith("<?xml")


def drawings(tokens):
    attention = AttentionMap("x", tokens, tokens, np.full([1, 2, len(tokens), len(tokens)], 0.5))
    yield plots.draw_word(attention, 0, 1)
    yield plots.draw_heads(attention, 0, [0], 1, [0, 1])
    yield plots.draw_matrices(attention)


def test_dollars_are_drawn_as_dollars(tmp_path):
    for figure in drawings(["▁a", "$$", "▁$5$", "x$_"]):
        assert inked(pixels(figure, tmp_path)) > 0.001  # a formula of "$$" is an error
        texts = figure.findobj(matplotlib.text.Text)
        assert not any(text.get_parse_math() for text in texts if "$" in text.get_text())


def test_an_installed_font_that_has_the_characters_is_taken(tmp_path, monkeypatch, caplog):
    glyphs = {ord("犬"): "dog", ord("한"): "han"}
    names, pen, builder = [".notdef", *glyphs.values()], TTGlyphPen(None), FontBuilder(1000)
    pen.moveTo((0, 0)), pen.lineTo((0, 900)), pen.lineTo((900, 900)), pen.closePath()
    builder.setupGlyphOrder(names), builder.setupCharacterMap(glyphs)
    builder.setupGlyf(dict.fromkeys(names, pen.glyph()))
    builder.setupHorizontalMetrics(dict.fromkeys(names, (1000, 0)))
    builder.setupHorizontalHeader(ascent=900, descent=-100)
    builder.setupNameTable({"familyName": "Two Triangles", "styleName": "Regular"})
    builder.setupOS2(), builder.setupPost(), builder.save(tmp_path / "two.ttf")
    fonts = [str(tmp_path / "two.ttf"), str(tmp_path / "none.ttf")]
    monkeypatch.setattr(matplotlib.font_manager, "findSystemFonts", lambda: fonts)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of a glyph that is missing
        for figure in drawings(["▁a", "犬", "한", "</s>"]):
            pixels(figure, tmp_path)
    assert "No installed font" not in caplog.text
    for token, font in (("猫", "Noto Sans CJK"), ("क", "Noto Sans Devanagari"), ("🦊", "Symbola")):
        list(drawings(["▁a", token]))
        assert f"No installed font has {token}" in caplog.text and font in caplog.messages[-1]


def test_a_picture_of_too_many_tokens_is_refused(attention, tmp_path):
    wide = attention._replace(queries=TOKENS * 175, weights=np.zeros([2, 3, 700, 4]))
    with pytest.raises(InputError, match=r"700 tokens, .* of 3 heads: .* at most about 6.. tok"):
        plots.draw_matrices(wide)
    figure = plots.draw_statistics({"x": HeadStatistics(*np.zeros([5, 1, 1]))})
    figure.set_size_inches(200, 1)
    plots.save_figure(figure, tmp_path / "wide.png")
    assert matplotlib.image.imread(tmp_path / "wide.png").shape[1] == 16_000


def test_the_clearest_query_and_the_sharpest_heads(attention):
    assert plots.sharpest_heads(attention, 0) == [0, 1]
    assert plots.clearest_query(attention, 0) in (1, 2)  # at 0 two heads agree; 3 is the end
    for queries, clearest in ((["▁the", "▁old", ","], 1), (["▁the", "▁,", "▁ox"], 2)):
        comma = attention._replace(queries=[*queries, "</s>"])
        assert plots.clearest_query(comma, 0) == clearest


def test_statistics_have_a_row_of_panels_for_each_kind(tmp_path):
    rng = np.random.default_rng(0)
    found = {kind: HeadStatistics(*rng.random([5, 2, 3])) for kind in ("encoder", "cross")}
    figure = plots.draw_statistics(found)
    assert len(figure.axes) == 2 * 5
    shown = [float(text.get_text()) for axis in figure.axes[:1] for text in axis.texts]
    np.testing.assert_allclose(shown, found["encoder"].entropy.ravel(), atol=0.006)
    assert colored(pixels(figure, tmp_path)) > 0.05


HEADER = "step,seconds,loss,perplexity,validation_loss,validation_perplexity,validation_bleu\n"


def rows_with_curves(image):
    """Returns the rows of a picture with colored pixels: curves, not axes or text."""
    return np.flatnonzero(np.any(np.ptp(image, axis=-1) > 0.3, axis=1))


def test_curves_have_a_panel_for_each_measure(tmp_path):
    def draw(content):
        (tmp_path / "metrics.csv").write_text(content)
        written = plots.draw_curves(tmp_path / "metrics.csv", picture)
        assert written == picture.exists()
        return matplotlib.image.imread(picture)[..., :3] if written else None

    picture = tmp_path / "curves.png"
    assert draw(HEADER) is None
    rows = [f"{i},{i / 2},{5 - i / 100},{90 - i / 10},,,\n" for i in range(0, 300, 10)]
    three = draw(HEADER + "".join(rows) + "290,150,,,3.1,20,\n300,160,,,3,18,12.5\n")
    two = draw(HEADER + "".join(rows))
    assert three.shape[0] * 2 == two.shape[0] * 3 and three.shape[1] == two.shape[1]
    # A falling straight line inks its panel from top to bottom.
    first_panel = rows_with_curves(two[: two.shape[0] // 2])
    assert np.ptp(first_panel) > 0.3 * two.shape[0]
    accuracy = draw("step,seconds,accuracy,validation_accuracy\n10,1,0.5,\n20,2,0.7,0.6\n")
    assert len(rows_with_curves(accuracy))
