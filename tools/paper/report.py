"""Shared code of the tools of this folder: flags, tables as Markdown and JSON, figures as PNG.

Importing it also puts the repository on Python's path, so that the tools run in a fresh clone.
"""

import json
import os
import pathlib
import sys

from absl import flags

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")  # TensorFlow's own start-up messages

from t2t_keras.analysis.plots import save_figure  # noqa: E402
from t2t_keras.data.files import write_file  # noqa: E402

QUICK = flags.DEFINE_bool("quick", False, "Small sizes: at most three minutes on two idle cores.")
OUTPUT_DIR = flags.DEFINE_string("output_dir", None, "Folder for the tables and the pictures.")


def markdown_table(rows):
    """Returns a Markdown table.

    Args:
        rows: list of {column: value}, all of the same columns; None leaves a cell empty.
    """
    lines = [f"| {' | '.join(rows[0])} |", f"|{' --- |' * len(rows[0])}"]
    lines += [f"| {' | '.join(map(_cell, row.values()))} |" for row in rows]
    return "\n".join(lines) + "\n"


def save_tables(name, title, parts):
    """Writes NAME.md and NAME.json into the output folder, and prints the former.

    Args:
        name: of the files.
        title: str, the heading.
        parts: {heading: list of rows as `markdown_table` takes them, or a str that is text}.
    """
    text = [f"# {title}\n"]
    for heading, part in parts.items():
        text += [f"## {heading}\n", part + "\n" if isinstance(part, str) else markdown_table(part)]
    print(*text, sep="\n")
    folder = OUTPUT_DIR.value
    write_file(os.path.join(folder, f"{name}.md"), "\n".join(text).encode())
    content = json.dumps({"title": title} | parts, indent=1, ensure_ascii=False)
    write_file(os.path.join(folder, f"{name}.json"), content.encode())


def save_picture(figure, name):
    """Writes a matplotlib figure as NAME.png into the output folder."""
    save_figure(figure, os.path.join(OUTPUT_DIR.value, f"{name}.png"))


def _cell(value):
    if value is None:
        return ""
    if isinstance(value, float):
        # Four digits say all that is measured here; the exponent only where it must be.
        if 1e-3 <= abs(value) < 1e5 or value == 0:
            return str(value) if len(str(value)) < 5 else f"{value:.4g}"  # 26.0, not 26
        return f"{value:.1e}"
    return str(value).replace("|", r"\|")
