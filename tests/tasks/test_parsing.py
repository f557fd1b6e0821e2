import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.data.treebank import (
    Tree,
    linearize,
    normalize_tree,
    parse_tree,
    parse_trees,
    tree_to_texts,
)
from t2t_keras.errors import InputError
from t2t_keras.evaluation.bracketing import Parameters
from t2t_keras.tasks.parse_constraints import BracketAutomaton
from t2t_keras.tasks.parsing import score_parses
from tests.tasks.parsers import SENTENCES, TREES, make_parser


def words_of(sentence):
    return sentence.replace("(", "-LRB-").replace(")", "-RRB-").split()


@pytest.fixture(scope="module")
def parser():
    return make_parser()


@pytest.mark.usefixtures("eagerly")
@pytest.mark.parametrize(("seed", "settings"), [
    (0, {}),
    (4, {"max_depth": 1, "max_opened": 1, "beam_size": 1, "tags": "normalized"}),
    (6, {"max_extra_tokens": 3, "copy_words": True}),
])  # fmt: skip
def test_random_weights_give_trees_over_exactly_the_words(seed, settings, parser):
    parser = make_parser(seed, **settings) if settings else parser
    for sentence, parses in zip(SENTENCES, parser.n_best(SENTENCES), strict=True):
        real = [parse for parse in parses if parse.score > -np.inf]
        assert real and parses[0].score == max(parse.score for parse in parses)
        assert len({parse.text for parse in real}) == len(real)
        for parse in real:
            trees = list(parse_trees([parse.text]))
            assert [tree.words() for tree in trees] == ([words_of(sentence)] if sentence else [])
            for tree in trees:
                assert len(linearize(tree)) <= len(tree.words()) + parser.max_extra_tokens
    assert parser([]) == []


@pytest.mark.usefixtures("eagerly")
def test_the_best_of_beam_search_is_the_best_of_all_trees():
    parser = make_parser(3, max_extra_tokens=5, max_opened=2, beam_size=600, tags="normalized")
    sentence = ["It works"]
    [found] = parser.n_best(sentence, 600)
    found = {parse.text for parse in found if parse.score > -np.inf}
    labels = parser.tokenizer.labels
    flat = {f"({x} (XX It) (XX works))" for x in labels}
    nested = {f"({x} ({y} (XX It) (XX works)))" for x in labels for y in labels}
    left = {f"({x} ({y} (XX It)) (XX works))" for x in labels for y in labels}
    right = {f"({x} (XX It) ({y} (XX works)))" for x in labels for y in labels}
    # Two words, five tokens more, the end among them: one bracket or two, in every way there is.
    assert found == flat | nested | left | right
    best = parser.n_best(sentence, 1)[0][0]
    assert best.text in found


@pytest.mark.parametrize("copy_words", [pytest.param(False, marks=pytest.mark.slow), True])
def test_every_tree_that_fits_is_accepted(copy_words):
    tokenizer = TreeTokenizer.train(TREES, 40, copy_words=copy_words)
    for tree in TREES:
        source, target = tree_to_texts(tree, copy_words=copy_words)
        ids = tf.concat([tokenizer.encode([target]).to_tensor(), [[1]]], axis=1)
        length = ids.shape[1]
        for longest, expected in ((length, True), (length - 1, False)):
            automaton = BracketAutomaton(
                tokenizer,
                tf.constant([len(tree.words())]),
                tf.pad(tokenizer.encode([source]).to_tensor(), [[0, 0], [0, 1]]),
                *tokenizer.allowed_tags(tf.strings.split(tf.constant([source]))),
                tf.constant([longest]),
                max_depth=4,
                max_opened=2,
            )
            valid, symbols = automaton.accepts(ids[:, tf.newaxis])
            assert valid.numpy().item() is expected
            echoes = np.count_nonzero(symbols == tokenizer.target_size)
            assert echoes == (len(tree.words()) if copy_words else 0)
            # Without any one of its tokens it is no tree.
            rest = np.stack([np.delete(ids, cut, axis=1) for cut in range(length)], axis=1)
            assert not automaton.accepts(tf.constant(rest))[0].numpy().any()


@pytest.mark.parametrize(("text", "expected"), [
    # TIGER; its tag of brackets and quotation marks is escaped, as their words are.
    (
        "(S (NP (ART der) (NN Hund)) ($, ,) (V bellt) ($[ *LRB*) ($[ /) ($[ ') ($. .))",
        {",": "$,", ".": "$.", "!": "$.", "*LRB*": "$[", "…": "$[", "Hund": ""},
    ),
    # Penn Chinese Treebank, Universal Dependencies
    (
        "(IP (NP (NN 狗)) (PU ，) (VV 叫) (PU 。))",
        {"，": "PU", "！": "PU", ".": "PU", "叫": ""},
    ),
    ("(S (X one) (PUNCT .) (SYM %) (NUM 2))", {".": "PUNCT", ";": "PUNCT", "%": "SYM"}),
    # Penn Treebank: marks that the text lacks, and one with no similar one
    ("(S (NN x) (CC &) (CC and) (. .))", {"?": ".", "--": ":", "…": "", "&": ""}),
])  # fmt: skip
def test_punctuation_has_the_tags_of_the_treebank(text, expected):
    trees = list(parse_trees([text]))
    for tags in ("kept", "normalized"):
        tokenizer = TreeTokenizer.train(trees, None, tags)
        found = tokenizer.punctuation_tags(tf.constant(list(expected))).numpy()
        assert dict(zip(expected, (tag.decode() for tag in found), strict=True)) == expected
        words = tf.ragged.constant([trees[0].words()])
        [own], _ = tokenizer.allowed_tags(words)
        forced = [tokenizer.tags[i - tokenizer.first_tag] if i else "" for i in own[:-1].numpy()]
        if tags == "kept":  # normalized ones are written afterwards
            assert forced == [tag.decode() for tag in tokenizer.punctuation_tags(words[0]).numpy()]


def test_punctuation_has_its_tag_and_a_mark_of_several_any_of_them(parser):
    [tree] = parse_trees(parser(["( It works , -- well . !"]))
    tag = {leaf.children[0]: leaf.label for leaf in tree.leaves()}
    assert (tag[","], tag["--"], tag["."], tag["!"]) == (",", ":", ".", ".")
    assert not {tag["It"], tag["works"], tag["-LRB-"]} & {",", ":", ".", "``", "''"}
    trees = list(parse_trees(["(NP (NNS dogs) (POS ') ('' ') (NN x))", "(NP (: -) (-LRB- -LRB-))"]))
    tokenizer = TreeTokenizer.train(trees, None)
    found = tokenizer.punctuation_tags(tf.constant(["-", "'", "-LRB-"])).numpy().tolist()
    assert found == [b":", b"POS", b""]
    tags, free_tags = tokenizer.allowed_tags(tf.ragged.constant([["dogs", "'", "''"]]))
    quote = tokenizer.first_tag + tokenizer.tags.index("''")
    assert tags.numpy().tolist() == [[0, -1, quote, 0]]
    ids = tokenizer.encode(["(NP NNS '' '' )NP </s>", "(NP '' POS '' )NP </s>"]).to_tensor()
    source = tf.zeros([1, 4], tf.int32)
    limits = tf.constant([9]), 2, 2
    automaton = BracketAutomaton(tokenizer, tf.constant([3]), source, tags, free_tags, *limits)
    assert automaton.accepts(ids[tf.newaxis])[0].numpy().tolist() == [[True, False]]


@pytest.mark.usefixtures("eagerly")
def test_words_beyond_the_limit_are_attached_under_the_outermost_bracket():
    parser = make_parser(max_source_length=4, beam_size=1)
    [text, short] = parser(["The dog sees a cat .", "The dog sees"])
    assert text.endswith(" (XX a) (XX cat) (. .))") and "XX" not in short
    parser = make_parser(model={"position_embedding": "learned", "max_positions": 12}, beam_size=1)
    for text, count in zip(parser(["x " * 30, "x " * 9]), (30, 9), strict=True):
        [tree] = parse_trees([text])
        assert len(tree.words()) == count


@pytest.mark.usefixtures("eagerly")
def test_an_invalid_tree_of_an_unconstrained_search_is_empty():
    free = make_parser(constrained=False)
    assert free(SENTENCES) == [""] * len(SENTENCES)


def test_sentences_as_lists_of_words_and_trees_as_results(parser):
    [tree] = parser.trees([["It", "works", "."]])
    assert str(tree) == parser(["  It works\t. "])[0]
    assert parser.trees([""]) == [None]
    for sentences, message in (
        ("It works", "a list"),
        ([["two words"]], r"sentences\[0\]\[0\] is"),
    ):
        with pytest.raises(InputError, match=message):
            parser(sentences)
    with pytest.raises(InputError, match="n is 4"):
        parser.n_best(["x"], 4)
    with pytest.raises(InputError, match="max_depth is 0"):
        make_parser(max_depth=0)


def test_scores_of_parses():
    gold = [normalize_tree(tree) for tree in TREES]
    scores = score_parses(
        [str(gold[0]), "(S (PRP It) (VBZ works) (, ,) (RB well) (. .))", ""], gold
    )
    # 4 + 1 of 4 + 4 brackets; the third sentence is skipped.
    assert (scores["all"]["recall"], scores["all"]["precision"]) == (62.5, 100.0)
    assert (scores["exact"], scores["all"]["skipped"]) == (50.0, 1)
    assert scores["well_formed"] == pytest.approx(200 / 3)
    assert scores["f1"] == pytest.approx(2 * 62.5 / 162.5 * 100)
    # 5 of 12 brackets with those of the third.
    assert scores["f1_of_all"] == pytest.approx(200 * 5 / (12 + 5))


def test_the_tags_of_the_gold_trees_decide_what_is_punctuation():
    texts = (
        "(S (NP (ART der) (NN Hund)) (V bellt) ($. .))",
        "(S (NP (ART der) (NN Hund)) (V bellt))",
    )
    gold = [*map(parse_tree, texts), Tree("TOP", ())]
    found = ["(X (Y (ART der)) (Z (NN Hund) (V bellt)) (. .))", texts[1], ""]
    scores = score_parses(found, gold)
    assert (round(scores["f1"], 2), scores["errors"], scores["well_formed"]) == (44.44, 0, 100)
    assert scores["all"]["tagging_accuracy"] == 85.71  # 6 of 7
    deleted = Parameters(frozenset(["$.", "NP"]), frozenset())
    assert score_parses(found, gold, deleted)["all"]["tagging_accuracy"] == 100


def test_errors_are_counted_beside_f1(caplog):
    gold = [normalize_tree(tree) for tree in TREES]
    scores = score_parses([str(tree) for tree in gold[:2]] + ["(NP (NN other))"], gold)
    assert (scores["f1"], scores["errors"]) == (100, 1)
    assert "1 of 3 sentences are errors" in caplog.text
