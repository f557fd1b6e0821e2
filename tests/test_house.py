"""The architecture's own rules: imports point one way, files stay small."""

import ast
import pathlib
import re

import pytest

from tests.processes import run_python

ROOT = pathlib.Path(__file__).parent.parent
FLOORS = {
    "errors": -2, "types": -2, "keras_compat": -1, "graphs": -1, "ops": 0, "settings": 0,
    "layers": 1, "data": 1, "models": 2, "training": 3, "decoding": 3, "evaluation": 3,
    "tasks": 4, "interop": 5, "serving": 5, "analysis": 5,
}  # fmt: skip
# Floors of one height know nothing of each other.
FILES = sorted((ROOT / "t2t_keras").rglob("*.py"))


def imported_modules(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "t2t_keras":
            yield from (f"t2t_keras.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_file_imports_from_its_own_folder_and_floors_below(path):
    own = path.relative_to(ROOT / "t2t_keras").parts[0].removesuffix(".py")
    if own == "__init__":
        return
    for module in imported_modules(path):
        parts = module.split(".")
        assert parts[0] != "pipelines"
        if parts[0] == "t2t_keras" and parts[1] != own:
            assert FLOORS[parts[1]] < FLOORS[own], f"{path} imports {module}"


def test_no_modules_import_one_another():
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
    imports = {name: set(imported_modules(path)) & set(names) for name, path in names.items()}
    while free := [name for name in imports if not imports[name] & set(imports)]:
        for name in free:
            del imports[name]
    assert not imports, "these import one another, directly or by others"


def test_no_test_module_imports_another():
    """What two share is in a module without tests, or a fixture in conftest.py."""
    for path in (ROOT / "tests").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("tests"):
                names = [*node.module.split("."), *(alias.name for alias in node.names)]
                assert not [name for name in names if name.startswith("test_")], path


def test_importing_the_library_leaves_slow_packages_alone():
    code = "import sys, t2t_keras; print({'tensorflow_datasets', 'sacrebleu'} & set(sys.modules))"
    assert run_python("-c", code, cwd=ROOT).stdout.strip() == "set()"


def test_every_private_name_of_keras_has_a_test_that_fails_without_it():
    trees = [ast.parse(path.read_text()) for path in FILES if path.name == "keras_compat.py"]
    nodes = [node for tree in trees for node in tree.body]
    entries = [node for node in nodes if isinstance(node, (ast.FunctionDef, ast.ClassDef))]
    assert entries
    for entry in entries:
        named = re.search(r"Test: (\S+\.py)::(\w+)\.", ast.get_docstring(entry))
        assert named, f"{entry.name} names no test"
        assert f"def {named[2]}(" in (ROOT / named[1]).read_text(), entry.name


def test_every_name_of_the_walks_is_defined_in_its_file():
    notes = (ROOT / "BUILD_NOTES.md").read_text()
    walks = notes.partition("### Walk: a training step")[2].partition("## 2. ")[0]
    rows = re.findall(r"^\| `([\w/]+\.py)`: `(\w+)` \|", walks, flags=re.MULTILINE)
    assert len(rows) == walks.count("\n| `") > 20
    for file, name in rows:
        text = (ROOT / "t2t_keras" / file).read_text()
        assert re.search(rf"^\s*(def|class) {name}\b", text, flags=re.MULTILINE), (file, name)


def test_the_build_notes_breathe():
    """At most 400 lines, 30 words a sentence, and four numbers a paragraph; tables hold figures.

    A code span counts as one word; a date is one number, and a name such as int8 or NLLB-200 none.
    """
    notes = (ROOT / "BUILD_NOTES.md").read_text()
    assert notes.count("\n") <= 400
    text = re.sub(r"^```.*?^```$|^ *\|.*?$", "", notes, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`]*`", "code", text))
    text = re.sub(r"\b(?=[a-f]*\d)[0-9a-f]{7}\b", "commit", text)
    text = re.sub(r"\b2026-(\d\d)-\d\d\b", r"2026", text)
    found = []
    for paragraph in re.split(r"\n\s*\n|\n(?=\s*(?:[-*#]|\d+\.) )", text):
        prose = re.sub(r"^\s*(?:[-*#]+|\d+\.) ", "", paragraph.strip())
        if len(re.findall(r"(?<![\w.,-])\d+(?:[.,]\d+)*(?!\w)", prose)) > 4:
            found.append(prose)
        found += [s for s in re.split(r"(?<=[.?!])(?:\*\*)?\s", prose) if len(s.split()) > 30]
    assert not found
