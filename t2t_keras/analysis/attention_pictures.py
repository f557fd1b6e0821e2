"""Pictures of attention: links between two copies of a sentence (figures 3 to 5), and matrices."""

import itertools

import matplotlib.collections
import matplotlib.colors
import matplotlib.figure
import matplotlib.patches
import matplotlib.path
import numpy as np

from t2t_keras.analysis.sentence_attention import readable

_WORD = 0.34
"""Inches from one piece to the next."""

_FAINT = 0.02
"""A weight below this draws no link."""

_PALETTE = {
    "blue": "tab:blue",
    "orange": "tab:orange",
    "green": "tab:green",
    "red": "tab:red",
    "purple": "tab:purple",
    "brown": "tab:brown",
    "pink": "tab:pink",
    "grey": "tab:gray",
    "olive": "tab:olive",
    "cyan": "tab:cyan",
    "navy": "navy",
    "gold": "gold",
    "teal": "teal",
    "maroon": "maroon",
    "lime": "limegreen",
    "black": "black",
}
"""A colour for each of 16 heads, as the paper's big model has; more heads begin again."""


def draw_word(attention, layer, query):
    """Draws what one piece looks at in all heads of a layer, as figure 3 does.

    Each head has a colour; the darker its link, the more it looks there. The squares at the foot
    share out each piece's attention among the heads.

    Args:
        attention: `AttentionMap`.
        layer: int, from 0.
        query: int, which piece looks.
    """
    weights = attention.weights[layer]  # [heads, query, key]
    only = np.zeros_like(weights)
    only[:, query] = weights[:, query]
    figure, axis = _links_figure(attention, 1)
    colours = _colours(len(weights))
    _draw_links(axis[0], attention, only, colours, strips=True)
    _name_heads(figure, colours)
    axis[0].set_title(
        f"{attention.name}, layer {layer + 1} of {len(attention.weights)}\n"
        f"what “{readable(attention.queries[query])}” looks at, by head"
    )
    return figure


def draw_heads(attention, layer, heads, query=None, query_heads=()):
    """Draws all links of some heads, a panel for each, as figure 5 does.

    Args:
        attention: `AttentionMap`.
        layer: int, from 0.
        heads: list of int, from 0.
        query: int; one more panel shows only what this piece looks at, as figure 4 does; None:
            without.
        query_heads: list of int, the heads of that panel.
    """
    weights = attention.weights[layer]
    colours = _colours(len(weights))
    figure, axes = _links_figure(attention, len(heads) + (query is not None))
    for axis, head in zip(axes, heads, strict=False):
        _draw_links(axis, attention, weights[head : head + 1], [colours[head]])
        axis.set_title(f"{attention.name}, layer {layer + 1}, head {head + 1}")
    if query is not None:
        only = np.zeros_like(weights)
        only[query_heads, query] = weights[query_heads, query]
        _draw_links(axes[-1], attention, only, colours)
        names = [f"head {head + 1} ({_name_of(colours[head])})" for head in query_heads]
        word = readable(attention.queries[query])
        axes[-1].set_title(f"what “{word}” looks at\nin {' and '.join(names)}")
    return figure


def draw_matrices(attention):
    """Draws the weights of every layer and head as matrices, a row of them for each layer."""
    layers, heads = attention.weights.shape[:2]
    queries, keys = ([readable(p) for p in side] for side in (attention.queries, attention.keys))
    side = 0.21
    width, height = side * len(keys), side * len(queries)
    figure = matplotlib.figure.Figure(
        figsize=(heads * (width + 0.25) + 1.9, layers * (height + 0.45) + 1.7),
        layout="constrained",
    )
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
    figure.suptitle(f"{attention.name}: rows look at columns")
    return figure


def draw_statistics(statistics):
    """Draws `HeadStatistics` of each kind of attention, a column of panels for each.

    Args:
        statistics: {kind: `HeadStatistics`}.
    """
    titles = {
        "entropy": "entropy, nats",
        "distance": "mean distance",
        "previous": "share on the previous",
        "same": "share on the same",
        "next": "share on the next",
    }
    layers = max(s.entropy.shape[0] for s in statistics.values())
    figure = matplotlib.figure.Figure(
        figsize=(13, 0.9 + len(statistics) * (0.75 + 0.45 * layers)), layout="constrained"
    )
    axes = figure.subplots(len(statistics), len(titles), squeeze=False)
    for row, (kind, found) in zip(axes, statistics.items(), strict=True):
        for axis, (name, title) in zip(row, titles.items(), strict=True):
            values = getattr(found, name)
            most = 1.0 if name in ("previous", "same", "next") else max(values.max(), 1e-9)
            axis.imshow(values, cmap="Blues", vmin=0, vmax=most, aspect="auto")
            for (layer, head), value in np.ndenumerate(values):
                colour = "white" if value > 0.6 * most else "black"
                axis.text(head, layer, f"{value:.2f}", ha="center", va="center", color=colour)
            axis.set_xticks(range(values.shape[1]), [str(h + 1) for h in range(values.shape[1])])
            axis.set_yticks(range(len(values)), [str(layer + 1) for layer in range(len(values))])
            axis.set_title(title, fontsize=10)
            axis.set_xlabel("head", fontsize=8)
        row[0].set_ylabel(f"{kind}\nlayer")
    return figure


def clearest_query(attention, layer):
    """Returns the word's piece whose heads differ most in where they look; no mark, no comma."""
    weights = attention.weights[layer]
    spread = 1.0 - np.linalg.norm(weights.mean(axis=0), axis=-1)  # [query]
    sharp = weights.max(axis=-1).mean(axis=0)
    words = [any(map(str.isalnum, p)) and not p.startswith("<") for p in attention.queries]
    return int(np.argmax(np.where(words, spread * sharp, -1.0)))


def sharpest_heads(attention, layer, count=2):
    """Returns the heads of a layer whose weights are least spread, in rising order."""
    sharpness = attention.weights[layer].max(axis=-1).mean(axis=-1)  # [heads]
    return sorted(np.argsort(-sharpness, kind="stable")[:count].tolist())


def _colours(heads):
    return list(itertools.islice(itertools.cycle(_PALETTE.values()), heads))


def _name_of(colour):
    return next(name for name, value in _PALETTE.items() if value == colour)


def _links_figure(attention, panels):
    pieces = max(len(attention.queries), len(attention.keys))
    figure = matplotlib.figure.Figure(
        figsize=(max(5.5, _WORD * pieces + 0.8), panels * 3.9 + 0.4), layout="constrained"
    )
    return figure, figure.subplots(panels, squeeze=False)[:, 0]


def _draw_links(axis, attention, weights, colours, strips=False):
    """Draws keys above, queries below and the links of several heads between them.

    Args:
        axis: matplotlib's.
        attention: `AttentionMap`.
        weights: float [heads, query, key]; rows of 0 draw nothing.
        colours: one for each head.
        strips: whether squares show each head's share.
    """
    top, bottom = 1.0, 0.0
    paths, shades = [], []
    for head, query, key in np.argwhere(weights > _FAINT):
        middle = (top + bottom) / 2
        points = [(key, top), (key, middle), (query, middle), (query, bottom)]
        codes = [matplotlib.path.Path.MOVETO] + 3 * [matplotlib.path.Path.CURVE4]
        paths.append(matplotlib.path.Path(points, codes))
        shades.append(
            matplotlib.colors.to_rgba(colours[head], min(1.0, float(weights[head, query, key])))
        )
    axis.add_collection(
        matplotlib.collections.PathCollection(
            paths, facecolors="none", edgecolors=shades, linewidths=1.6, capstyle="round"
        )
    )
    looking = np.flatnonzero(weights.sum(axis=(0, 2)) > 0)
    if strips:
        for place in looking:
            _draw_strip(axis, place, bottom - 0.07, np.ones(len(colours)), colours)
        for key, shares in enumerate(weights.sum(axis=1).T):
            _draw_strip(axis, key, top + 0.02, shares, colours)
    gap = 0.1 if strips else 0.03
    style = {"rotation": 90, "ha": "center", "fontsize": 10}
    alone = len(looking) < len(attention.queries)
    for place, piece in enumerate(attention.keys):
        axis.text(place, top + gap, readable(piece), va="bottom", **style)
    for place, piece in enumerate(attention.queries):
        weight = "bold" if alone and place in looking else "normal"
        colour = "black" if place in looking else "0.6"
        axis.text(
            place, bottom - gap, readable(piece), va="top", weight=weight, color=colour, **style
        )
    axis.set_xlim(-0.7, max(len(attention.keys), len(attention.queries)) - 0.3)
    longest = max(len(readable(p)) for p in (*attention.keys, *attention.queries))
    room = gap + 0.05 + 0.055 * longest
    axis.set_ylim(bottom - room, top + room)
    axis.axis("off")


def _draw_strip(axis, place, y, shares, colours):
    """Draws a row of small squares, one a head, as dark as its share."""
    width = 0.84 / len(colours)
    for head, (share, colour) in enumerate(zip(shares, colours, strict=True)):
        left = place - 0.42 + head * width
        face = matplotlib.colors.to_rgba(colour, min(1.0, float(share)))
        axis.add_patch(
            matplotlib.patches.Rectangle((left, y), width, 0.05, facecolor=face, linewidth=0)
        )


def _name_heads(figure, colours):
    handles = [
        matplotlib.patches.Patch(color=c, label=f"head {h + 1}") for h, c in enumerate(colours)
    ]
    figure.legend(
        handles=handles, loc="outside lower center", ncols=min(8, len(handles)), frameon=False
    )
