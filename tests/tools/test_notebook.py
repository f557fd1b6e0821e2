"""The notebook that reads the paper: with outputs, and every cell runs."""

import json
import math
import pathlib
import re

import pytest

PATH = pathlib.Path(__file__).parents[2] / "tools" / "paper" / "attention_is_all_you_need.ipynb"
CELLS = json.loads(PATH.read_text())["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]


def code_of(cell):
    """Returns the Python code of a cell, without the notebook's own commands (%)."""
    lines = "".join(cell["source"]).splitlines()
    return "\n".join(line for line in lines if not line.startswith("%"))


def text_of(cell):
    """Returns what a cell printed and showed as text."""
    outputs = (o.get("text") or o.get("data", {}).get("text/plain", []) for o in cell["outputs"])
    return "".join("".join(lines) for lines in outputs)


def test_every_cell_of_the_notebook_ran_in_order_and_none_failed():
    assert [cell["execution_count"] for cell in CODE] == [*range(1, len(CODE) + 1)]
    imports, rest = CODE[:2], CODE[2:]
    assert not any(cell["outputs"] for cell in imports)
    for cell in rest:
        assert cell["outputs"], code_of(cell)
        kinds = {(o["output_type"], o.get("name")) for o in cell["outputs"]}
        assert not kinds & {("error", None), ("stream", "stderr")}, text_of(cell)
    pictures = [o for cell in CODE for o in cell["outputs"] if "image/png" in o.get("data", {})]
    assert len(pictures) >= 9


def test_the_notebook_names_no_folder_of_a_machine():
    found = re.findall(
        r"/(?:home|root|tmp|usr|work|opt|var|Users)/\S*", "".join(map(text_of, CODE))
    )
    assert not found


@pytest.mark.slow
def test_the_notebook_runs_and_its_figures_hold(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(PATH, as_version=4)
    nbformat.validate(notebook)
    figures = ["variances", "widths", "shift_error", "peak", "best_probability"]
    figures += ["history.history", "quality.bleu", "accuracy", "exported"]
    report = "; ".join(f"found[{name!r}] = {name}" for name in figures)
    last = f"import json; found = {{}}; {report}; print(json.dumps(found))"
    notebook.cells.append(nbformat.v4.new_code_cell(last))
    at = {"metadata": {"path": str(tmp_path)}}
    client = nbclient.NotebookClient(notebook, timeout=1200, kernel_name="python3", resources=at)
    client.execute()  # raises where a cell fails
    found = json.loads(notebook.cells[-1].outputs[-1].text)
    assert found["variances"]["q · k"] == pytest.approx(found["widths"], rel=0.1)
    assert found["variances"]["q · k / √d_k"] == pytest.approx([1] * 5, rel=0.1)
    assert found["shift_error"] < 1e-3
    assert found["peak"] == pytest.approx(1 / math.sqrt(512 * 4000), rel=1e-5)
    assert found["best_probability"] == pytest.approx(0.9 + 0.1 / 1000, abs=1e-3)
    assert found["history.history"]["perplexity"][-1] < 2
    assert found["quality.bleu"] > 60
    assert found["accuracy"] > 0.95
    assert found["exported"].endswith(".")
