"""Plots: attention visualization (figures 3 to 5), head statistics, learning curves of a run.

The `draw_*` functions plot results of `attention.py` and return a matplotlib figure; `save_figure`
writes one. `draw_word` and `draw_heads` show links between two copies of a sentence, as the paper's
appendix does. `draw_curves` reads a run's `metrics.csv`.
"""

import csv
import functools
import io
import itertools
import os
import unicodedata
from collections.abc import Sequence

import matplotlib
import matplotlib.collections
import matplotlib.colors
import matplotlib.figure
import matplotlib.font_manager
import matplotlib.patches
import matplotlib.path
import numpy as np
from absl import logging

from t2t_keras.analysis.attention import AttentionMap, readable
from t2t_keras.data.files import write_file
from t2t_keras.errors import InputError
from t2t_keras.types import StrPath

_WORD = 0.34
"""Inches between two tokens."""

_FAINT = 0.02
"""Links of smaller weights are not drawn."""

_TAB = ("blue", "orange", "green", "red", "purple", "brown", "pink", "grey", "olive", "cyan")
_PALETTE = {name: f"tab:{name}" for name in _TAB}
_PALETTE |= {name: name for name in ("navy", "gold", "teal", "maroon")}
_PALETTE |= {"lime": "limegreen", "black": "black"}
"""A color for each of 16 heads, as the paper's big model has; further heads repeat them."""

_PANELS = {
    name: {name: "training", f"validation_{name}": "validation"}
    for name in ("loss", "perplexity", "accuracy")
}
_PANELS |= {"BLEU": {"validation_bleu": "validation"}, "F1": {"validation_f1": "validation"}}
"""{title: {name of a scalar: label of its curve}}"""


_MAX_PIXELS = 16_000  # of the longer side of a picture; matplotlib draws less than 65,536
_MIN_DPI = 60  # so that the tokens are legible
_CJK = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "IDEOGRAPHIC", "FULLWIDTH")


def save_figure(figure, path, dpi=120):
    """Writes a matplotlib figure, in the format of the path's suffix, such as .png or .svg.

    Args:
        path: the file.
        dpi: dots per inch, for formats that have them; a large figure has fewer.
    """
    path = os.fspath(path)
    dpi = min(dpi, _MAX_PIXELS / max(figure.get_size_inches()))
    content = io.BytesIO()
    figure.savefig(content, format=path.rsplit(".", 1)[-1], dpi=dpi)
    write_file(path, content.getvalue())


def _as_text(draw):
    """Decorator of a `draw_*` function: tokens are drawn literally, without formulas or boxes."""

    @functools.wraps(draw)
    def wrapped(attention, *args, **kwargs):
        text = "".join(map(readable, (*attention.queries, *attention.keys)))
        settings = {
            "text.parse_math": False,
            "text.usetex": False,
            "font.family": [*matplotlib.rcParams["font.family"], *_families_with(frozenset(text))],
        }
        with matplotlib.rc_context(settings):
            return draw(attention, *args, **kwargs)

    return wrapped


@functools.cache
def _families_with(characters):
    """Returns the installed font families that contain characters missing in the usual font.

    It warns of characters that no font contains.
    """
    fonts = matplotlib.font_manager
    usual = fonts.get_font(fonts.findfont(fonts.FontProperties())).get_charmap()
    lacking = {c for c in characters if ord(c) not in usual and _is_drawn(c)}
    families, candidates = [], []
    for path in fonts.findSystemFonts() if lacking else ():
        try:
            font = fonts.get_font(path)
        except (OSError, RuntimeError):
            continue  # of a format that matplotlib cannot read
        if font.scalable and (has := lacking & set(map(chr, font.get_charmap()))):
            candidates.append((-len(has), path, font.family_name, has))
    for _, path, family, has in sorted(candidates, key=lambda candidate: candidate[:2]):
        if lacking & has:
            fonts.fontManager.addfont(path)
            families.append(family)
            lacking -= has
    if lacking:
        logging.warning(
            "No installed font has %s, drawn as boxes: install %s",
            " ".join(sorted(lacking)),
            " and ".join(sorted({_font_for(character) for character in lacking})),
        )
    return families


def _is_drawn(character):
    return unicodedata.category(character) != "Cf" and not "\ufe00" <= character <= "\ufe0f"


def _font_for(character):
    """Returns the name of a font that has a character, and its Debian package."""
    name = unicodedata.name(character, "SYMBOL")
    if name.startswith(_CJK):
        return "Noto Sans CJK (fonts-noto-cjk)"
    if unicodedata.category(character).startswith("S"):
        return "Noto Emoji or Symbola (fonts-symbola)"
    return f"Noto Sans {name.split()[0].title()} (fonts-noto-core)"


@_as_text
def draw_word(attention: AttentionMap, layer: int, query: int) -> matplotlib.figure.Figure:
    """Draws the attention of one token in all heads of a layer, as in figure 3.

    Each head has a color; opacity shows the weight. The squares next to the tokens show each
    head's weight on the token. Layers count from 0; `query` is the token's index.
    """
    weights = attention.weights[layer]  # [heads, query, key]
    only = np.zeros_like(weights)
    only[:, query] = weights[:, query]
    figure, axis = _links_figure(attention, 1)
    colors = _colors(len(weights))
    _draw_links(axis[0], attention, only, colors, strips=True)
    _name_heads(figure, colors)
    axis[0].set_title(
        f"{attention.name}, layer {layer + 1} of {len(attention.weights)}\n"
        f"attention of “{readable(attention.queries[query])}”, by head"
    )
    return figure


@_as_text
def draw_heads(
    attention: AttentionMap,
    layer: int,
    heads: Sequence[int],
    query: int | None = None,
    query_heads: Sequence[int] = (),
) -> matplotlib.figure.Figure:
    """Draws all links of some heads, a panel for each, as in figure 5; all indices are from 0.

    With `query`, the index of a token, one more panel draws only its attention in `query_heads`,
    as in figure 4.
    """
    weights = attention.weights[layer]
    colors = _colors(len(weights))
    figure, axes = _links_figure(attention, len(heads) + (query is not None))
    for axis, head in zip(axes, heads, strict=False):
        _draw_links(axis, attention, weights[head : head + 1], [colors[head]])
        axis.set_title(f"{attention.name}, layer {layer + 1}, head {head + 1}")
    if query is not None:
        only = np.zeros_like(weights)
        only[query_heads, query] = weights[query_heads, query]
        _draw_links(axes[-1], attention, only, colors)
        names = [f"head {head + 1} ({_name_of(colors[head])})" for head in query_heads]
        word = readable(attention.queries[query])
        axes[-1].set_title(f"attention of “{word}”\nin {' and '.join(names)}")
    return figure


@_as_text
def draw_matrices(attention: AttentionMap) -> matplotlib.figure.Figure:
    """Draws the weights of every layer and head as matrices, one row of panels for each layer.

    Raises:
        InputError: if the picture would be too large.
    """
    layers, heads = attention.weights.shape[:2]
    queries, keys = ([readable(t) for t in side] for side in (attention.queries, attention.keys))
    side = 0.21
    width, height = side * len(keys), side * len(queries)
    figure = _figure(attention, heads * (width + 0.25) + 1.9, layers * (height + 0.45) + 1.7)
    axes = figure.subplots(layers, heads, squeeze=False, sharex=True, sharey=True)
    for layer in range(layers):
        for head in range(heads):
            axis = axes[layer, head]
            image = axis.imshow(
                attention.weights[layer, head], cmap="Blues", vmin=0, vmax=1, aspect="equal"
            )
            axis.set_title(f"layer {layer + 1}, head {head + 1}", fontsize=9)
            axis.set_xticks(range(len(keys)), keys, rotation=90, fontsize=7)
            axis.set_yticks(range(len(queries)), queries, fontsize=7)
            axis.tick_params(length=2)
    figure.colorbar(image, ax=axes, label="weight", shrink=0.5 if layers > 1 else 0.9, aspect=30)
    figure.suptitle(f"{attention.name}: rows are queries, columns are keys")
    return figure


def draw_statistics(statistics):
    """Draws {kind of attention: `HeadStatistics`}, a row of panels for each kind."""
    titles = {
        "entropy": "entropy, nats",
        "distance": "mean distance",
        "previous": "weight on the previous",
        "same": "weight on the same",
        "next": "weight on the next",
    }
    layers = max(s.entropy.shape[0] for s in statistics.values())
    figure = matplotlib.figure.Figure(
        figsize=(13, 0.9 + len(statistics) * (0.75 + 0.45 * layers)), layout="constrained"
    )
    axes = figure.subplots(len(statistics), len(titles), squeeze=False)
    for row, (kind, heads) in zip(axes, statistics.items(), strict=True):
        for axis, (name, title) in zip(row, titles.items(), strict=True):
            values = getattr(heads, name)
            most = 1.0 if name in ("previous", "same", "next") else max(values.max(), 1e-9)
            axis.imshow(values, cmap="Blues", vmin=0, vmax=most, aspect="auto")
            for (layer, head), value in np.ndenumerate(values):
                color = "white" if value > 0.6 * most else "black"
                axis.text(head, layer, f"{value:.2f}", ha="center", va="center", color=color)
            axis.set_xticks(range(values.shape[1]), [str(h + 1) for h in range(values.shape[1])])
            axis.set_yticks(range(len(values)), [str(layer + 1) for layer in range(len(values))])
            axis.set_title(title, fontsize=10)
            axis.set_xlabel("head", fontsize=8)
        row[0].set_ylabel(f"{kind}\nlayer")
    return figure


def clearest_query(attention, layer):
    """Returns the index of the token whose heads differ most, except punctuation."""
    weights = attention.weights[layer]
    spread = 1.0 - np.linalg.norm(weights.mean(axis=0), axis=-1)  # [query]
    sharp = weights.max(axis=-1).mean(axis=0)
    words = [any(map(str.isalnum, t)) and not t.startswith("<") for t in attention.queries]
    return int(np.argmax(np.where(words, spread * sharp, -1.0)))


def sharpest_heads(attention, layer, count=2):
    """Returns the indices of a layer's `count` heads with the most concentrated weights, sorted."""
    sharpness = attention.weights[layer].max(axis=-1).mean(axis=-1)  # [heads]
    return sorted(np.argsort(-sharpness, kind="stable")[:count].tolist())


def draw_curves(metrics: StrPath, picture: StrPath) -> bool:
    """Draws loss, perplexity, accuracy and score of a run by step and by wall-clock time.

    It reads what `MetricsLog` writes. The axis at the top is training time in minutes, summed over
    sessions. Panels without values are left out; without any panel no picture is written.

    Returns:
        Whether one was written.
    """
    with open(metrics, newline="") as file:
        rows = list(csv.DictReader(file))
    panels = {}
    for title, names in _PANELS.items():
        for name, label in names.items():
            if points := [(int(row["step"]), float(row[name])) for row in rows if row.get(name)]:
                panels.setdefault(title, {})[label] = points
    if not panels:
        return False
    figure = matplotlib.figure.Figure(figsize=(7, 2.6 * len(panels)), layout="constrained")
    axes = figure.subplots(len(panels), sharex=True, squeeze=False)[:, 0]
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for label, points in curves.items():
            few = len(points) < 50
            axis.plot(*zip(*points, strict=True), marker="." if few else None, label=label)
        axis.set_ylabel(title)
        axis.grid(alpha=0.3)
        axis.legend(frameon=False)
        axis.set_yscale("log" if title == "perplexity" else "linear")
    axes[-1].set_xlabel("step")
    minutes = {0: 0.0} | {int(row["step"]): float(row["seconds"]) / 60 for row in rows}
    steps, minutes = list(minutes), np.maximum.accumulate(list(minutes.values()))
    axes[0].secondary_xaxis(
        "top",
        functions=(lambda x: np.interp(x, steps, minutes), lambda x: np.interp(x, minutes, steps)),
    ).set_xlabel("minutes")
    save_figure(figure, picture)
    return True


def _colors(heads):
    return list(itertools.islice(itertools.cycle(_PALETTE.values()), heads))


def _name_of(color):
    return next(name for name, value in _PALETTE.items() if value == color)


def _figure(attention, width, height):
    """Returns a new figure of an `AttentionMap`; width and height are in inches."""
    limit = _MAX_PIXELS / _MIN_DPI
    if max(width, height) > limit:
        tokens = max(len(attention.queries), len(attention.keys))
        raise InputError(
            f"the {attention.name} has {tokens} tokens, too many for one picture of "
            f"{attention.weights.shape[1]} heads: give a text of at most about "
            f"{int(tokens * limit / max(width, height))} tokens."
        )
    return matplotlib.figure.Figure(figsize=(width, height), layout="constrained")


def _links_figure(attention, panels):
    tokens = max(len(attention.queries), len(attention.keys))
    figure = _figure(attention, max(5.5, _WORD * tokens + 0.8), panels * 3.9 + 0.4)
    return figure, figure.subplots(panels, squeeze=False)[:, 0]


def _draw_links(axis, attention, weights, colors, strips=False):
    """Draws keys at the top, queries at the bottom and the links of several heads.

    `weights` are [heads, query, key]; rows of 0 draw nothing. `strips`: whether squares show each
    head's weight.
    """
    top, bottom = 1.0, 0.0
    paths, shades = [], []
    for head, query, key in np.argwhere(weights > _FAINT):
        middle = (top + bottom) / 2
        points = [(key, top), (key, middle), (query, middle), (query, bottom)]
        codes = [matplotlib.path.Path.MOVETO] + 3 * [matplotlib.path.Path.CURVE4]
        paths.append(matplotlib.path.Path(points, codes))
        shades.append(
            matplotlib.colors.to_rgba(colors[head], min(1.0, float(weights[head, query, key])))
        )
    axis.add_collection(
        matplotlib.collections.PathCollection(
            paths, facecolors="none", edgecolors=shades, linewidths=1.6, capstyle="round"
        )
    )
    shown = np.flatnonzero(weights.sum(axis=(0, 2)) > 0)  # queries with links
    if strips:
        for query in shown:
            _draw_strip(axis, query, bottom - 0.07, np.ones(len(colors)), colors)
        for key, by_head in enumerate(weights.sum(axis=1).T):
            _draw_strip(axis, key, top + 0.02, by_head, colors)
    gap = 0.1 if strips else 0.03
    style = {"rotation": 90, "ha": "center", "fontsize": 10}
    some = len(shown) < len(attention.queries)
    for key, token in enumerate(attention.keys):
        axis.text(key, top + gap, readable(token), va="bottom", **style)
    for query, token in enumerate(attention.queries):
        weight = "bold" if some and query in shown else "normal"
        color = "black" if query in shown else "0.6"
        axis.text(
            query, bottom - gap, readable(token), va="top", weight=weight, color=color, **style
        )
    axis.set_xlim(-0.7, max(len(attention.keys), len(attention.queries)) - 0.3)
    longest = max(len(readable(t)) for t in (*attention.keys, *attention.queries))
    room = gap + 0.05 + 0.055 * longest
    axis.set_ylim(bottom - room, top + room)
    axis.axis("off")


def _draw_strip(axis, x, y, weights, colors):
    """Draws a row of small squares, one for each head, with the head's weight as opacity."""
    width = 0.84 / len(colors)
    for head, (weight, color) in enumerate(zip(weights, colors, strict=True)):
        left = x - 0.42 + head * width
        face = matplotlib.colors.to_rgba(color, min(1.0, float(weight)))
        axis.add_patch(
            matplotlib.patches.Rectangle((left, y), width, 0.05, facecolor=face, linewidth=0)
        )


def _name_heads(figure, colors):
    handles = [
        matplotlib.patches.Patch(color=c, label=f"head {h + 1}") for h, c in enumerate(colors)
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(8, len(handles)), frameon=False
    )
