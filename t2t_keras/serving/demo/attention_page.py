"""A self-contained HTML page with all attention of a model for a sentence, and attention as JSON.

The page needs no server. `attention_to_json` is also the format of the demo's answers (`app.py`).
"""

import base64
import json
import pathlib
import re

import numpy as np

_HERE = pathlib.Path(__file__).parent


def attention_page(model, sentence, translation, maps):
    """Returns the page, a str of HTML.

    Args:
        model: the model's name on the page.
        sentence, translation: texts.
        maps: list of (title, (source name, target name), source tokens, target tokens, weights
            float [layers, heads, target, source]); the page opens with the last one.
    """
    data = {
        "model": model,
        "sentence": sentence,
        "translation": translation,
        "maps": [
            {"title": title, "names": names, **attention_to_json(source, target, weights)}
            for title, names, source, target, weights in maps
        ],
    }
    # Inside a script element only "<" can end it or begin a comment.
    text = json.dumps(data).replace("<", "\\u003c")
    page = (_HERE / "maps.html").read_text()
    page = re.sub(r'{% include "([\w.]+)" %}', lambda m: (_HERE / m[1]).read_text().rstrip(), page)
    return page.replace("{{ data }}", text)


def attention_to_json(source, target, weights):
    """Returns a JSON-able dict: source, target, layers, heads, weights.

    Target tokens attend to source tokens with weights, float [layers, heads, target, source]. They
    are in units of 1/65,535 as little-endian uint16 in base64, a tenth of the size of decimal
    digits.
    """
    layers, heads = weights.shape[:2]
    units = np.rint(weights * 65_535).astype("<u2")
    return {
        "source": source,
        "target": target,
        "layers": layers,
        "heads": heads,
        "weights": base64.b64encode(units.tobytes()).decode("ascii"),
    }
