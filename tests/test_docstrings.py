"""Every public name says what it takes and returns, and its example runs as it is written."""

import doctest
import functools
import inspect
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from tests.tasks import tiny

PUBLIC = {
    f"{module.__name__}.{name}": getattr(module, name)
    for module in (t2t, t2t.layers, t2t.models)
    for name in module.__all__
    if not isinstance(getattr(module, name), types.ModuleType)
}
SLOW = {"t2t_keras.export_saved_model", "t2t_keras.models.enable_lora"}
TRAIN = {"t2t_keras.models.Transformer", "t2t_keras.models.TransformerClassifier"}
ONCE = {id(thing): name for name, thing in PUBLIC.items()}.values()  # of one thing's names, one
CASES = [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in ONCE]


@pytest.fixture(scope="module")
def names():
    """The names that examples use without making them."""
    modules = {"t2t": t2t, "layers": t2t.layers, "keras": keras, "np": np, "tf": tf}
    translator = tiny.translator()
    return modules | {
        "translator": translator,
        "model": translator.model,
        "tokenizer": translator.tokenizer,
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_the_example_of_a_public_name_runs(name, names, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    if name in TRAIN:  # traced sooner
        layers = {"num_encoder_layers": 1, "num_decoder_layers": 1}
        tiny_config = functools.partial(t2t.TransformerConfig.tiny, **layers)
        monkeypatch.setattr(t2t.TransformerConfig, "tiny", tiny_config)
    (tmp_path / "test.en").write_text("The old man.\nA small dog.\n")
    run_examples(PUBLIC[name], name, names)
    failures = capsys.readouterr().out
    assert not failures, failures


def test_the_example_of_the_layers_runs(names, capsys):
    run_examples(t2t.layers, "t2t_keras.layers", names)
    failures = capsys.readouterr().out
    assert not failures, failures


def run_examples(thing, name, names):
    finder = doctest.DocTestFinder(recurse=False)
    [test] = finder.find(thing, name, globs=dict(names))
    assert test.examples, f"{name} has no example"
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    doctest.DocTestRunner(verbose=False, optionflags=flags).run(test)  # else sys.argv decides


@pytest.mark.parametrize("name", ONCE)
def test_all_arguments_of_a_public_name_are_in_its_docstring(name):
    thing = PUBLIC[name]
    if isinstance(thing, type) and issubclass(thing, Exception):
        return
    text = inspect.getdoc(thing)
    for parameter in inspect.signature(thing).parameters.values():
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            inherited = (
                "rguments and result" in text
                or "as for `" in text
                or "all arguments of" in text
                or "see `" in text
            )
            assert parameter.name in text or inherited, f"{name} does not explain {parameter.name}"
