"""A type checker accepts what users write, the examples of the pages included, and reports errors.

basedpyright is pyright in a wheel that holds all that it runs: no later download of Node.js.
"""

import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PAGES = ("README.md", *(ROOT / "pipelines" / "docs").glob("*.md"))


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """The checker's errors: {file: {line: message}}."""
    pytest.importorskip("basedpyright")
    folder = tmp_path_factory.mktemp("pages")
    for page in PAGES:
        blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text(), re.M | re.S)
        for number, block in enumerate(block for block in blocks if "t2t_keras" in block):
            (folder / f"{pathlib.Path(page).stem}_{number}.py").write_text(block)
    files = sorted([*folder.iterdir(), *(ROOT / "tests" / "typing").iterdir()])
    config = folder / "pyrightconfig.json"
    settings = {
        "typeCheckingMode": "basic",
        "reportMissingImports": False,  # of packages that a page installs
        "extraPaths": [str(ROOT)],
        "include": list(map(str, files)),
    }
    config.write_text(json.dumps(settings))
    command = ["-m", "basedpyright", "-p", config, "--pythonpath", sys.executable, "--outputjson"]
    run = subprocess.run([sys.executable, *command], capture_output=True, check=False)
    found = json.loads(run.stdout)
    assert found["summary"]["filesAnalyzed"] == len(files) > 10
    errors = {path.name: {} for path in files}
    for item in found["generalDiagnostics"]:
        of_numpy = 'for class "ndarray' in item["message"]  # a row of a dataset of dicts, to it
        if item["severity"] == "error" and not of_numpy:
            lines = errors[pathlib.Path(item["file"]).name]
            lines[item["range"]["start"]["line"] + 1] = item["message"]
    return errors


def test_what_users_write_has_right_types(errors):
    assert not {name: errors[name] for name in errors if name != "wrong_calls.py" and errors[name]}


def test_wrong_calls_are_reported(errors):
    lines = (ROOT / "tests" / "typing" / "wrong_calls.py").read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}
    assert set(errors["wrong_calls.py"]) == wrong
