"""One HTML file with all attention of a model for a sentence: it needs no server and no network."""

import json
import pathlib
import re

from t2t_keras.serving.demo.wire import packed_attention

_HERE = pathlib.Path(__file__).parent


def attention_page(model, sentence, translation, maps):
    """Returns the page, a str of HTML.

    Args:
        model: str, what the page calls the model.
        sentence: str.
        translation: str.
        maps: list of (title, (source name, target name), source pieces, target pieces, weights
            float [layers, heads, target, source]); the last one is shown first.
    """
    data = {
        "model": model,
        "sentence": sentence,
        "translation": translation,
        "maps": [
            {"title": title, "names": names, **packed_attention(source, target, weights)}
            for title, names, source, target, weights in maps
        ],
    }
    # Inside a script element, nothing but "<" can end it or begin a comment.
    text = json.dumps(data).replace("<", "\\u003c")
    page = (_HERE / "maps.html").read_text()
    page = re.sub(r'{% include "([\w.]+)" %}', lambda m: (_HERE / m[1]).read_text().rstrip(), page)
    return page.replace("{{ data }}", text)
