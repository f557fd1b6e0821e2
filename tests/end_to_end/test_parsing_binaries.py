import json
import random

import pytest

from pipelines.configs import wsj_parsing, wsj_parsing_small
from pipelines.fields import fixed_fields
from pipelines.tasks import make_task
from t2t_keras.data.treebank import parse_trees
from t2t_keras.errors import InputError
from t2t_keras.evaluation import bracketing
from t2t_keras.models.config import TransformerConfig
from tests.end_to_end.binaries import NARROW, run, scores_of, small_flags
from tests.end_to_end.guides import example, flags_of, link_project, run_bash

NOUNS, VERBS = ["dog", "cat", "man", "house", "train"], ["sees", "likes", "finds"]

SMALL = small_flags("wsj_parsing_small", {
    **NARROW, "model.vocab_size": 32, "model.num_encoder_layers": 1, "model.num_decoder_layers": 1,
    "model.dropout": 0.0, "data.copies": 2, "data.tokens_per_batch": 300, "train.steps": 40,
    "train.warmup_steps": 20, "train.decay_fraction": 0, "train.validate_every": 40,
    "train.validation_sentences": 4, "train.checkpoint_every": 40, "train.average_checkpoints": 1,
    "train.mixed_precision": "", "decode.beam_size": 2, "decode.max_extra_tokens": 20,
})  # fmt: skip


def noun_phrase(chance):
    phrase = f"(NP (DT the) (NN {chance.choice(NOUNS)}))"
    if chance.random() < 0.3:
        return f"(NP {phrase} (PP (IN of) {noun_phrase(chance)}))"
    return phrase


def write_treebank(folder):
    chance = random.Random(0)
    for split, count in {"train": 300, "dev": 10, "test": 6}.items():
        trees = [
            f"( (S {noun_phrase(chance)} (VP (VBZ {chance.choice(VERBS)}) {noun_phrase(chance)})"
            " (. .)) )"
            for _ in range(count)
        ]
        if split == "test":
            trees.insert(1, "(())")
        (folder / f"{split}.mrg").write_text("\n".join(trees))
    return folder


GUIDE = example("other_tasks.md", "wsj_parsing_small.py")


@pytest.mark.slow
def test_the_binaries_parse(tmp_path, capsys):
    folder, workdir = link_project(tmp_path) / "treebank", tmp_path / "runs" / "parser"
    folder.mkdir()
    write_treebank(folder)
    script = GUIDE.replace(" \\\n", f" {flags_of(SMALL)} \\\n", 1).replace(
        "=treebank", f"={folder}"
    )
    evaluated, tree, scored = run_bash(script, tmp_path).splitlines()[-3:]
    assert tree.count("(") == tree.count(")") > 6 and " cat)" in tree
    assert json.loads(evaluated)["all"] == json.loads(scored)["all"]
    assert "validation_f1" in (workdir / "metrics.csv").read_text()

    output, rules = tmp_path / "parses", tmp_path / "rules.prm"
    rules.write_text("DELETE_LABEL .\nDELETE_LABEL NP\nCUTOFF_LEN 5\n")
    flags = ["--split=test", f"--output={output}", f"--parameters={rules}"]
    scores = scores_of(f"--workdir={workdir}", *flags)
    assert scores["well_formed"] == 100.0 and scores["sentences"] == 7 and "length_5" in scores
    assert bracketing.main([str(folder / "test.mrg"), str(output), flags[-1]]) == 0
    assert json.loads(capsys.readouterr().out)["all"] == scores["all"]
    assert (scores["errors"], scores["all"]["skipped"]) == (0, 1)  # a tree without words

    text = b"the dog sees ( it ) .\n\nZebras\n"
    flags = ["--n_best=2", "--scores"]
    live, _ = run("translate", f"--workdir={workdir}", *flags, stdin=text)
    columns = [line.split("\t") for line in live.splitlines()]
    words = [[tree.words() for tree in parse_trees([tree])] for _, _, tree in columns[::2]]
    assert words == [[["the", "dog", "sees", "-LRB-", "it", "-RRB-", "."]], [], [["Zebras"]]]

    flags_of_export = [f"--output={tmp_path / 'export'}", "--signatures=n_best", "--noverify"]
    export, _ = run("export", f"--workdir={workdir}", *flags_of_export)
    exported, _ = run("translate", f"--saved_model={export.strip()}", *flags, stdin=text)
    assert exported == live


@pytest.fixture
def config(tmp_path):
    config = wsj_parsing_small.get_config()
    config.data.folder = str(write_treebank(tmp_path))
    return config


def test_questions_are_the_words_of_the_trees(config, tmp_path):
    task = make_task(config)
    inputs, trees = task.evaluation_examples("test")
    assert inputs == [" ".join(tree.words()) for tree in trees] and inputs[1] == ""
    assert task.examples_of_files("", str(tmp_path / "test.mrg")) == (inputs, trees)
    assert task.evaluation_examples("test", 2) == (inputs[:2], trees[:2])
    with pytest.raises(InputError, match="--reference"):
        task.examples_of_files(str(tmp_path / "test.mrg"), "")


def test_shares_and_parsed_trees_of_the_training_text(config, tmp_path):
    config.model.vocab_size = 32
    config.data.update(copies=3, train_share=0.1, parsed_trees=str(tmp_path / "dev.mrg"))
    task = make_task(config)
    corpus = task.make_corpus()
    tokenizer = task.train_tokenizer(corpus)
    training = task.training_corpus(corpus, tokenizer)
    assert training.examples("train").cardinality().numpy() == 3 * 30 + 10
    assert training.examples("test").cardinality().numpy() == 6
    config.data.train_share = 0.001
    with pytest.raises(InputError, match=r"none of the 300 trees: give at least 0\.0033"):
        task.train_tokenizer(corpus)
    config.data.update(train_share=0.1, parsed_trees=str(tmp_path / "none.mrg"))
    with pytest.raises(InputError, match="there is no file"):
        task.training_corpus(corpus, tokenizer)


def test_parsed_trees_may_move_but_neither_come_nor_go_in_a_prepared_run(config):
    without, with_trees, moved = (
        make_task(config).config.copy_and_resolve_references() for _ in range(3)
    )
    with_trees.data.parsed_trees, moved.data.parsed_trees = "a.mrg", "b.mrg"
    assert not list(fixed_fields(with_trees, moved, ["data"]))
    for old, new in ((without, with_trees), (with_trees, without)):
        assert [name for name, _, _ in fixed_fields(old, new, ["data"])] == ["data.parsed_trees"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("tags", "normalized"), ("echo", False), ("exchange", 0.9), ("word_dropout_alpha", 50.0)],
)
def test_a_field_changes_the_examples(config, field, value):
    config.model.vocab_size = 23

    def examples():
        task = make_task(config)
        corpus = task.make_corpus()
        training = task.training_corpus(corpus, task.train_tokenizer(corpus))
        return list(training.examples("train").take(50).as_numpy_iterator())

    before = examples()
    config.data[field] = value
    assert examples() != before


def test_the_papers_configuration():
    config = wsj_parsing.get_config()
    model = TransformerConfig(**config.model)
    assert (model.num_encoder_layers, model.num_decoder_layers, model.model_dim) == (4, 4, 1024)
    assert model.vocab_size == 16_000
    decode = {"beam_size": 21, "length_penalty": 0.3, "max_extra_tokens": 300, "constrained": True}
    assert dict(config.decode) == decode
