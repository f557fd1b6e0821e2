"""The notebook that reads the paper: short, with outputs, and every cell runs."""

import ast
import importlib
import json
import math
import pathlib
import re

import pytest

import t2t_keras as t2t

PATH = pathlib.Path(__file__).parents[2] / "tools" / "paper" / "attention_is_all_you_need.ipynb"
CELLS = json.loads(PATH.read_text())["cells"]
CODE = [cell for cell in CELLS if cell["cell_type"] == "code"]
PROSE = ["".join(cell["source"]) for cell in CELLS if cell["cell_type"] == "markdown"]


def code_of(cell):
    """Returns the Python code of a cell, without the notebook's own commands (%)."""
    lines = "".join(cell["source"]).splitlines()
    return "\n".join(line for line in lines if not line.startswith("%"))


def text_of(cell):
    """Returns what a cell printed and showed as text."""
    outputs = (o.get("text") or o.get("data", {}).get("text/plain", []) for o in cell["outputs"])
    return "".join("".join(lines) for lines in outputs)


def test_the_notebook_is_short():
    assert 40 < len(CELLS) <= 60
    assert PATH.stat().st_size < 1_500_000
    for text in PROSE:
        without_title = re.sub(r"^#.*\n", "", text)
        assert len(without_title.split()) <= 75, text


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


def test_every_name_that_the_notebook_takes_from_the_library_exists():
    names = set()
    for node in ast.walk(ast.parse("\n".join(map(code_of, CODE)))):
        if isinstance(node, ast.ImportFrom) and node.module.startswith(("t2t_keras", "pipelines")):
            module = importlib.import_module(node.module)
            for alias in node.names:  # a module or something in it
                if not hasattr(module, alias.name):
                    importlib.import_module(f"{node.module}.{alias.name}")
        if isinstance(node, ast.Attribute):
            name = re.fullmatch(r"t2t\.([\w.]+)", ast.unparse(node))
            names |= {name[1]} if name else set()
    assert len(names) > 20
    for name in names:
        thing = t2t
        for part in name.split("."):
            thing = getattr(thing, part)


@pytest.mark.slow
def test_the_notebook_runs_and_its_figures_hold(tmp_path):
    nbformat = pytest.importorskip("nbformat")
    nbclient = pytest.importorskip("nbclient")
    notebook = nbformat.read(PATH, as_version=4)
    nbformat.validate(notebook)
    figures = [
        "variances",
        "widths",
        "shift_error",
        "peak",
        "best_probability",
        "history.history",
        "quality.bleu",
        "accuracy",
        "exported",
    ]
    report = "; ".join(f"found[{name!r}] = {name}" for name in figures)
    last = f"import json; found = {{}}; {report}; print(json.dumps(found))"
    notebook.cells.append(nbformat.v4.new_code_cell(last))
    client = nbclient.NotebookClient(
        notebook,
        timeout=1200,
        kernel_name="python3",
        resources={"metadata": {"path": str(tmp_path)}},
    )
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
