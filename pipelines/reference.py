"""The reference page of all fields of a config: python -m pipelines.reference > …/README.md."""

import inspect
import re

from pipelines.fields import FIELDS, default_of, may_change
from t2t_keras.models.config import TransformerConfig

_TITLE = """# Every field of a config

Set a field by a flag, such as `--config.train.steps=500`, or in the file of a config. "On resuming"
says whether it may change between two starts of a run. `python -m pipelines.reference >
pipelines/configs/README.md` writes this page out of [fields.py](../fields.py).
"""
_HEAD = """
## config.{}

| field | default | values | meaning | on resuming |
| --- | --- | --- | --- | --- |
"""


def reference():
    """Returns the reference page of all fields, Markdown."""
    page, texts = _TITLE, _argument_texts(TransformerConfig)
    for part in ("model", "data", "train", "decode", "knn"):
        page += _HEAD.format(part)
        fields = {name: field for parts in FIELDS.values() for name, field in parts[part].items()}
        for name, field in fields.items():
            tasks = [task for task in FIELDS if name in FIELDS[task][part]]
            text = field.metadata["text"] or texts[name]
            if len(tasks) < len(FIELDS):
                text = f"({' and '.join(tasks)}) {text}"
            row = name, default_of(field), field.metadata["allowed"], text, may_change(part, field)
            page += "| `{}` | `{!r}` | {} | {} | {} |\n".format(*row)
    return page


def _argument_texts(kind):
    """Returns {name: text} of the arguments in the docstring of a class."""
    arguments = inspect.getdoc(kind).partition("Args:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^    (\w+): (.*(?:\n {8}.*)*)", arguments, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in found}


if __name__ == "__main__":
    print(reference(), end="")
