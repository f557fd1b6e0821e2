import pytest

from t2t_keras.data.treebank import (
    Tree,
    linearize,
    normalize_tree,
    parse_tree,
    parse_trees,
    read_treebank,
)
from t2t_keras.errors import InputError
from tests.data.reading import shared_data

RAW = """
( (S
    (NP-SBJ-1 (NNP John) )
    (VP (VBZ has)
      (NP=2 (-NONE- *T*-1) )
      (NP (NP (DT a) (NN dog))) (-LRB- -LRB-) )
    (. .) ))
"""
PREPARED = "(S (NP (NNP John)) (VP (VBZ has) (NP (NP (DT a) (NN dog))) (-LRB- -LRB-)) (. .))"


def one(text):
    [tree] = parse_trees(text.splitlines())
    return tree


def test_standard_preparation():
    assert str(normalize_tree(one(RAW))) == PREPARED
    assert normalize_tree(one("( (S (NP (-NONE- *))))")) is None
    for label in ("", "TOP", "ROOT", "S1", "VROOT"):
        assert str(normalize_tree(one(f"({label} (NP (ROOT (NN x))))"))) == "(NP (ROOT (NN x)))"
        trees = "(NP (NN x)) (X (NN y))"
        assert str(normalize_tree(one(f"({label} {trees})"))) == f"(TOP {trees})"
    assert str(normalize_tree(one("(NN x)"), "normalized")) == "(XX x)"
    with pytest.raises(InputError, match="tags is 'all'"):
        normalize_tree(one(RAW), "all")


def test_features_of_labels_and_tags_are_left_out_whole():
    tree = parse_tree(
        "(ROOT (S##m=ind## (NP-SBJ##case=nom|n=sg## (NN##g=f## Es) (# #) (X ##a##) (## ##))"
        "(AP##a=b##-PRD[c=d] (-LRB- [a=b])) (VP##a=b (VB{x=y,z=1} ist))))"
    )
    wanted = "(S (NP (NN Es) (# #) (X ##a##) (## ##)) (AP (-LRB- [a=b])) (VP (VB ist)))"
    assert str(normalize_tree(tree)) == wanted


@pytest.mark.parametrize("text", [
    "(S (VP (VB 0=Is) (JJ 2=rich)) (NP (NN 1=John)) (? 3=?))", "(S (A 1=b) (A 0=a=c))",
    "(S (A 1=b) (-NONE- *) (A 0=a))",
])  # fmt: skip
def test_words_with_positions_are_refused(text):
    with pytest.raises(InputError, match=r"the text, line 2: every word .* discbracket"):
        list(parse_trees(["(S (A b))", text]))
    near = "(S (VB x=1) (NN 0=Is)) (S (VB 1=a) (NN 2=b)) (S (CD 0=0))"
    assert len(list(parse_trees([near]))) == 3


def test_linearization_of_vinyals_et_al():
    tree = one("(S (NP (NNP John)) (VP (VBZ has) (NP (DT a) (NN dog))) (. .))")
    tree = normalize_tree(tree, "normalized")
    linear = "(S (NP XX )NP (VP XX (NP XX XX )NP )VP XX )S"  # their figure 2
    assert " ".join(linearize(tree)) == linear


def test_every_tree_of_the_sample_comes_back():
    treebank = shared_data("treebank")
    for name, tags, count in (
        ("train.mrg.gz", "kept", 3_396),
        ("dev.mrg.gz", "kept", 273),
        ("dev.mrg.gz", "normalized", 273),
    ):
        trees = read_treebank(treebank / name, tags)
        assert len(trees) == count
        for tree in trees:
            assert list(parse_trees([str(tree)])) == [tree]
    leaves = [leaf for tree in read_treebank(treebank / "dev.mrg.gz") for leaf in tree.leaves()]
    assert not {"-NONE-"} & {leaf.label for leaf in leaves}
    assert len(leaves) == sum(len(tree.words()) for tree in trees)


def test_deep_trees():
    tree = Tree("NN", ("x",))
    for _ in range(5_000):
        tree = Tree("NP", (tree,))
    [again] = parse_trees([str(tree)])
    assert linearize(normalize_tree(again)) == ["(NP"] * 5_000 + ["NN"] + [")NP"] * 5_000


@pytest.mark.parametrize("text", [
    "(NP (PRP (Dia)))",
    "(NP\n(NNP Hansen) (PRN (( () (NP (NNP R.)) () ))))",
    "(NP (PUNCT () (NN x))",
    "(NP (NN x) (-RRB- )))",
    '(NP ($( "))',
    "(NP ((NN x)))",
    "(S (NP) (NN x))",
])  # fmt: skip
def test_a_bracket_without_word_or_label_is_an_error_of_its_line(text):
    with pytest.raises(InputError, match=r"text, line [34]: .*(-RRB-|open at the end)"):
        list(parse_trees(["(NP (NN x))", "", *text.split("\n")]))
    with pytest.raises(InputError, match="2 trees"):
        parse_tree("(NP (NN x)) (NP (NN y))")


def test_a_tree_without_words_keeps_its_place_if_asked_for(tmp_path):
    (tmp_path / "a.mrg").write_text("(NP (NN x))\n(())\n( (S (-NONE- *)))\n(NP (NN y))\n")
    kept = read_treebank(tmp_path / "a.mrg", keep_empty=True)
    assert [tree.words() for tree in kept] == [["x"], [], [], ["y"]]
    assert read_treebank(tmp_path / "a.mrg") == kept[::3]


def test_unreadable_files(tmp_path):
    with pytest.raises(InputError, match=r"there is no file .*none.mrg"):
        read_treebank(tmp_path / "none.mrg")
    (tmp_path / "empty.mrg").write_text("\n( (-NONE- *))\n")
    with pytest.raises(InputError, match="holds no tree"):
        read_treebank(tmp_path / "empty.mrg")
    (tmp_path / "bad.mrg.gz").write_bytes(b"no gzip")
    with pytest.raises(InputError, match="cannot be read"):
        read_treebank(tmp_path / "bad.mrg.gz")
