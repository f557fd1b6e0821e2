import collections

import pytest
import tensorflow as tf

from t2t_keras.data import load_tokenizer
from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.data.treebank import (
    TrainingTrees,
    TreeAugmentation,
    TreebankCorpus,
    linearize,
    parse_trees,
)
from t2t_keras.errors import InputError

NAMES = [f"B{letter}ring" for letter in "abcdefghijkl"]
TEXT = "\n".join(
    f"( (S (NP-SBJ (NNP {name})) (VP (VBZ sees) (NP (CD 1{n}) (NNS dogs))) (. .)) )"
    for n, name in enumerate(NAMES)
)


@pytest.fixture
def corpus(tmp_path):
    (tmp_path / "train.mrg").write_text(TEXT)
    (tmp_path / "dev.tiny.mrg").write_text("(S (NP (NN x)) (VP (VBZ sees)))")
    (tmp_path / "notes.txt").write_text("")
    return TreebankCorpus(tmp_path)


@pytest.fixture
def tokenizer(corpus):
    return TreeTokenizer.train(corpus.trees("train"), 32)


def pieces(tokenizer, text):
    return [piece.decode() for piece in tokenizer.pieces(tokenizer.encode([text])[0]).numpy()]


def test_symbols_words_and_classes(tokenizer):
    assert tokenizer.labels == ["NP", "S", "VP"]
    assert pieces(tokenizer, "sees 47 dogs .") == ["sees", "00", "dogs", "."]
    # Twelve names seen once make classes of three, two, one and no letters.
    assert pieces(tokenizer, "It Boring ng Xg Dogs dogs") == [
        "<Xx>", "<Xx~ing>", "<unk>", "<Xx~g>", "<Xx>", "dogs",
    ]  # fmt: skip
    assert tokenizer.encode(["", " \t"]).to_list() == [[], []]
    classes = tokenizer.classes_of(tf.constant(["sees", "Baring"])).numpy().tolist()
    assert classes == [b"<unk>", b"<Xx~ing>"]


def test_a_word_has_the_id_of_its_normal_form():
    composed, apart = "Büring", "Bu\u0308ring"
    trees = list(
        parse_trees([f"(S (NP (NNP {name})) (VP (VBZ sees)))" for name in (composed, apart)])
    )
    learned = TreeTokenizer.train(trees, None)
    assert pieces(learned, composed) == pieces(learned, apart) == [composed]
    assert pieces(learned, "sees \u212a") == pieces(learned, "sees K")
    # A file of an earlier version names no normalization.
    model = learned.model_bytes.replace(b'"normalization": "NFC",', b"")
    assert len(model) < len(learned.model_bytes)
    assert pieces(TreeTokenizer("trees", model), f"{composed} {apart}") == [composed, "<unk>"]


def test_trees_are_symbols_alone_and_a_saved_vocabulary_comes_back(tokenizer, corpus, tmp_path):
    tokenizer.save(tmp_path / "vocabulary")
    again = load_tokenizer(tmp_path / "vocabulary")
    for text in [*(" ".join(linearize(tree)) for tree in corpus.trees("train")), "Boring (NP ."]:
        ids = tokenizer.encode([text])
        assert again.encode([text]).to_list() == ids.to_list()
        if "Boring" not in text:
            assert pieces(tokenizer, text) == text.split()
            assert tf.reduce_max(ids) < tokenizer.target_size
            assert tokenizer.decode(ids).numpy()[0].decode() == text
    with pytest.raises(InputError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "vocabulary" / "trees.json").write_text('{"labels": [')
    with pytest.raises(InputError, match=r"the tokenizer in .*vocabulary is damaged"):
        load_tokenizer(tmp_path / "vocabulary")


def test_settings_out_of_range_are_refused(corpus, tokenizer):
    trees = corpus.trees("train")
    for size in (10, 1000):
        with pytest.raises(InputError, match=f"vocab_size is {size}: give 2. to 4."):
            TreeTokenizer.train(trees, size)
    assert TreeTokenizer.train(trees, 32, "normalized").tags == ["XX"]
    for name, value in (("exchange", 2), ("word_dropout_alpha", -1)):
        with pytest.raises(InputError, match=name):
            TreeAugmentation(trees, tokenizer, **{name: value})
    with pytest.raises(InputError, match="copies is 0"):
        TrainingTrees(corpus, "train", TreeAugmentation(trees, tokenizer), 0)


def test_files_of_a_folder(corpus, tmp_path):
    [pair] = corpus.examples("dev").as_numpy_iterator()
    assert pair == {"source": b"x sees", "target": b"(S (NP NN )NP (VP VBZ )VP )S"}
    [pair] = TreebankCorpus(tmp_path, "normalized").examples("dev").as_numpy_iterator()
    assert pair["target"] == b"(S (NP XX )NP (VP XX )VP )S"


def test_copies_exchange_constituents_of_like_place(corpus, tokenizer):
    trees = corpus.trees("train")
    parsed = list(parse_trees(["(NP (NN rest))"]))
    augmentation = TreeAugmentation(trees, tokenizer, exchange=0.5, word_dropout_alpha=0.0)
    training = TrainingTrees(corpus, "train", augmentation, copies=20, seed=1, parsed_trees=parsed)
    examples = training.examples("train")
    pairs = [(p["source"].decode(), p["target"].decode()) for p in examples.as_numpy_iterator()]
    assert len(pairs) == examples.cardinality().numpy() == 20 * 12 + 1
    assert pairs[0] == ("rest", "(NP NN )NP")
    originals = {" ".join(tree.words()) for tree in trees}
    assert len({source for source, _ in pairs} - originals) > 100
    for source, target in pairs[1:]:
        subject, verb, _, noun, mark = source.split()
        assert subject in NAMES and (verb, noun, mark) == ("sees", "dogs", ".")
        assert target == " ".join(linearize(trees[0]))
    assert list(training.examples("train").as_numpy_iterator()) == list(
        examples.as_numpy_iterator()
    )
    assert list(training.examples("dev").as_numpy_iterator()) == list(
        corpus.examples("dev").as_numpy_iterator()
    )


def test_copies_of_a_seed_stay_the_same(tokenizer):
    """They make the shards of old runs, so they are as those of version 0.2."""
    trees = list(parse_trees(["(S (NP (NN a)) (NP (NN b)) (NP (NN c)) (NP (NN d)))"]))
    augmentation = TreeAugmentation(trees, tokenizer, exchange=1.0, word_dropout_alpha=0.0)
    words = [[" ".join(words) for _, words in augmentation.copies(seed)] for seed in ("0 0", 7)]
    assert words == [["c b a a"], ["c a b a"]]


def test_rare_words_become_unknown_now_and_then(corpus, tokenizer):
    augmentation = TreeAugmentation(
        corpus.trees("train"), tokenizer, exchange=0.0, word_dropout_alpha=1.0
    )
    seen = collections.Counter()
    for seed in range(50):
        for tree, words in augmentation.copies(seed):
            seen[words[0] == "<Xx~ing>"] += 1
            seen["sees"] += words[1] == "sees"
            assert len(words) == len(tree.words())
    assert 250 < seen[True] < 350  # 1 / (1 + 1) of 600
    assert 520 < seen["sees"] < 590  # 12 / (1 + 12)
