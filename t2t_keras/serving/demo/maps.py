"""A self-contained HTML file with all attention of a model for a sentence."""

import json
import pathlib
import re

from t2t_keras.serving.demo.wire import attention_to_json

_HERE = pathlib.Path(__file__).parent


def attention_page(model, sentence, translation, maps):
    """Returns the page, a str of HTML.

    Args:
        model: str, the model's name on the page.
        sentence: str.
        translation: str.
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
