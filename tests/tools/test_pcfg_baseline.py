import json
import os
import pathlib
import subprocess
import sys

import pytest

from t2t_keras.data.treebank import parse_trees

ROOT = pathlib.Path(__file__).parents[2]

# With what did I see it? The prepositional phrase hangs under the verb phrase or the noun phrase.
VERB = "(S (NP (PRP I)) (VP (VBD saw) (NP (NN it)) (PP (IN with) (NP (NN care)))) (. .))"
NOUN = "(S (NP (PRP I)) (VP (VBD saw) (NP (NP (NN it)) (PP (IN with) (NP (NN care))))) (. .))"


@pytest.fixture
def pcfg_baseline(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    import pcfg_baseline  # noqa: PLC0415

    return pcfg_baseline


def trees(*lines):
    return list(parse_trees(lines))


@pytest.mark.parametrize("order", [(1, None), (1, 0), (2, 1), (2, None)])
@pytest.mark.parametrize(("often", "rarely"), [(VERB, NOUN), (NOUN, VERB)])
def test_the_likelier_of_two_trees_is_found(pcfg_baseline, often, rarely, order):
    # P(often) : P(rarely) = 2/3 : 1/3; the words are the same, and so is each other rule.
    grammar = pcfg_baseline.Grammar(trees(often, rarely, often), *order)
    [expected] = trees(often)
    assert grammar.parse(expected.words()) == expected
    assert grammar.parse([*expected.words(), "saw"]) is None
    assert grammar.parse([]) is None


@pytest.mark.slow
def test_the_command(tmp_path):
    path = tmp_path / "trees.mrg"
    path.write_text("\n".join([VERB, VERB, "(S (NP (PRP I)) (VP (VBD saw)))"]))
    command = [sys.executable, str(ROOT / "tools" / "pcfg_baseline.py"), str(path), str(path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    run = subprocess.run(
        [*command, "--vertical=2"], capture_output=True, text=True, check=True, env=environment
    )
    scores = json.loads(run.stdout.splitlines()[-1])
    assert (scores["all"]["f1"], scores["all"]["sentences"]) == (100.0, 3)
