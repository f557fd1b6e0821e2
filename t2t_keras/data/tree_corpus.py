"""Where trees come from, as pairs of a sentence and its linearized tree.

A corpus has `splits`, `trees(split)`, a list of `Tree`, and `examples(split)`, a `tf.data.Dataset`
of `{"source": string scalar, "target": string scalar}` as all corpora have it.
"""

import itertools
import os
import re

import tensorflow as tf

from t2t_keras.data.options import steady
from t2t_keras.data.treebank import linearize, prepare, read_treebank
from t2t_keras.errors import InputError

_PAIRS_AT_A_TIME = 1024
_FILE = re.compile(r"([^.]+)\.(.*\.)?mrg(\.gz)?")


class TreebankCorpus:
    """A folder of treebank files, plain or gzipped, prepared for parsing.

    The file of split `train` is the one named `train.mrg`, `train.mrg.gz` or `train.….mrg`.

    Args:
        folder: the folder.
        tags: "kept" or "normalized", what linearizations have; see `treebank.prepare`.
        echo: whether every word follows its tag in linearizations, see `TreeTokenizer`.

    Raises:
        InputError: if there is no such folder.
    """

    def __init__(self, folder, tags="kept", echo=False):
        if not os.path.isdir(folder):
            raise InputError(f"there is no folder {folder!r}; give one that holds .mrg files")
        self.folder, self.tags, self.echo = folder, tags, echo

    @property
    def splits(self):
        """What stands before the first dot of the files' names."""
        return sorted({m[1] for m in map(_FILE.fullmatch, os.listdir(self.folder)) if m})

    def trees(self, split):
        """Returns the trees of a split with their own tags, a list of `Tree`.

        Raises:
            InputError: if there is not exactly one file, or it is broken.
        """
        matches = map(_FILE.fullmatch, sorted(os.listdir(self.folder)))
        names = [m[0] for m in matches if m and m[1] == split]
        if len(names) != 1:
            found = ", ".join(map(repr, names)) or "none"
            raise InputError(
                f"split {split!r} wants one file named {split}.mrg or {split}.mrg.gz in "
                f"{self.folder}; there is {found}, and splits {self.splits}"
            )
        return read_treebank(os.path.join(self.folder, names[0]))

    def examples(self, split):
        """The sentences and linearized trees of a split, in the order of the file."""
        trees = [prepare(tree, self.tags) for tree in self.trees(split)]
        return tree_examples(
            lambda: (example_of(tree, echo=self.echo) for tree in trees), len(trees)
        )


class TrainingTrees:
    """A corpus whose training split is copies of trees that vary, and parsed text beside them.

    Args:
        corpus: `TreebankCorpus`, where all other splits come from.
        split: the training split's name.
        variation: `TreeVariation` of the training trees.
        copies: int, of each tree.
        seed: int; the same one gives the same copies.
        parsed_trees: list of `Tree` as they are, such as a parser made of other text.

    Raises:
        InputError: if copies is below 1.
    """

    def __init__(self, corpus, split, variation, copies, seed=0, parsed_trees=()):
        if copies < 1:
            raise InputError(f"copies is {copies}: give at least 1.")
        self._corpus, self._split, self._variation = corpus, split, variation
        self._copies, self._seed, self._parsed_trees = copies, seed, parsed_trees

    def examples(self, split):
        """The sentences and linearized trees of a split."""
        if split != self._split:
            return self._corpus.examples(split)
        count = self._copies * len(self._variation.trees) + len(self._parsed_trees)
        return tree_examples(self._pairs, count)

    def _pairs(self):
        for tree in self._parsed_trees:
            yield example_of(tree, echo=self._corpus.echo)
        for copy in range(self._copies):
            for tree, words in self._variation.copies(f"{self._seed} {copy}"):
                yield example_of(tree, words, self._corpus.echo)


def example_of(tree, words=None, echo=False):
    """Returns the source and target text of a tree.

    Args:
        tree: `Tree`.
        words: list of str that stand for its own words; None: its own.
        echo: whether every word follows its tag in the target.
    """
    words = tree.words() if words is None else words
    tokens = linearize(tree)
    if echo:
        following = iter(words)
        symbols = ("(", ")")
        tokens = [t if t[0] in symbols else f"{t} {next(following)}" for t in tokens]
    return " ".join(words), " ".join(tokens)


def tree_examples(pairs, count):
    """Makes a dataset of texts.

    Args:
        pairs: function that returns an iterable of (source, target), the same ones every time.
        count: int, how many.

    Returns:
        A dataset of `{"source", "target"}` string scalars.
    """
    texts = tf.TensorSpec([None], tf.string)

    def blocks():
        rest = iter(pairs())
        while block := list(itertools.islice(rest, _PAIRS_AT_A_TIME)):
            sources, targets = zip(*block, strict=True)
            yield {"source": list(sources), "target": list(targets)}

    signature = {"source": texts, "target": texts}
    dataset = tf.data.Dataset.from_generator(blocks, output_signature=signature).unbatch()
    return steady(dataset.apply(tf.data.experimental.assert_cardinality(count)))
