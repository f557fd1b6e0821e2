"""The reference page of all fields of a config: python -m pipelines.reference > …/README.md."""

from pipelines.fields import FIELDS, may_change

_TITLE = """# Every field of a config

Set a field by a flag of `train` or `prepare`, such as `--config.train.steps=500`, or in the file
of a config. `evaluate`, `translate`, `visualize` and `export` have flags for the fields of `decode`
and `knn`, such as `--beam_size` and `--knn_k`. The defaults are the values of `wmt14_en_de_base`;
`train --config=NAME --explain_config` prints the fields that NAME changes. "On resuming" says
whether a field may change between two starts of a run. `python -m pipelines.reference` writes this
page from [fields.py](../fields.py).
"""
_HEAD = """
## config.{}

| field | default | values | meaning | on resuming |
| --- | --- | --- | --- | --- |
"""


def reference():
    """Returns the reference page of all fields, Markdown."""
    page = _TITLE
    for part in ("model", "data", "train", "decode", "knn"):
        page += _HEAD.format(part)
        fields = {name: field for parts in FIELDS.values() for name, field in parts[part].items()}
        for name, field in fields.items():
            tasks = [task for task in FIELDS if name in FIELDS[task][part]]
            text = field.text
            if len(tasks) < len(FIELDS):
                text = f"({', '.join(tasks)}) {text}"
            resuming = may_change(part, field).text
            page += f"| `{name}` | `{field.default!r}` | {field.allowed} | {text} | {resuming} |\n"
    return page


if __name__ == "__main__":
    print(reference(), end="")
