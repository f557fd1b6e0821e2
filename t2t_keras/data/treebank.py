"""Treebanks for constituency parsing: trees, corpora of them, and augmentation of small ones.

`read_treebank` reads a file of bracketed trees. Its "standard preparation" is the usual one for
scoring parsers of the Penn Treebank since Collins 1997 (`normalize_tree`); words are the tokens.
`linearize` writes a tree as a sequence of tokens (Vinyals et al. 2015).
"""

import collections
import random
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.data.corpora import stream_pairs
from t2t_keras.data.files import existing_folder, nfc, nfc_names, read_text, split_file
from t2t_keras.data.texts import as_strings, elements, iterate, shown, text_bytes
from t2t_keras.errors import InputError
from t2t_keras.types import StrPath

NORMALIZED_TAG = "XX"
"""Replaces every tag in the linearization of Vinyals et al. 2015."""

TOP = "TOP"
"""Label given to an outer bracket that holds several trees."""

OUTER_LABELS = frozenset(["", TOP, "ROOT", "S1", "VROOT"])
"""Labels of brackets around a whole tree that are not constituents: treebanks differ in them."""

OPEN, CLOSE, WORD = "open", "close", "word"
"""Events of `Tree.walk`."""

_EMPTY = "-NONE-"
_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
_FUNCTION_TAGS = re.compile(r"(?<=.)[-=].*")  # of NP-SBJ-1 or NP=2, not of -LRB-
_FEATURES = re.compile(  # of NP##case=nom##, as in the treebanks of SPMRL, and of NP[case=nom]
    r"(?<=[^#])##.*?(##|$)|(?<=.)\[[^\[\]]*=[^\[\]]*\]|(?<=.)\{[^{}]*=[^{}]*\}"
)
_NUMBERED = re.compile(r"(\d+)=.+", re.DOTALL)


class Tree(NamedTuple):
    """A constituent, or a word under its part-of-speech tag."""

    label: str  # a constituent's label or a word's tag
    children: tuple  # of `Tree`, or of one str, the word

    @property
    def is_word(self) -> bool:
        """Whether this is a word under its tag."""
        return bool(self.children) and isinstance(self.children[0], str)

    def walk(self):
        """Yields (event, `Tree`) from left to right: OPEN and CLOSE of constituents, and WORD."""
        agenda = [(self, OPEN)]
        while agenda:
            tree, event = agenda.pop()
            if tree.is_word:
                yield WORD, tree
            else:
                yield event, tree
                if event == OPEN:
                    agenda.append((tree, CLOSE))
                    agenda.extend((child, OPEN) for child in reversed(tree.children))

    def leaves(self) -> "list[Tree]":
        """Returns the words under their tags, from left to right."""
        return [tree for event, tree in self.walk() if event == WORD]

    def words(self) -> list[str]:
        """Returns the words."""
        return [leaf.children[0] for leaf in self.leaves()]

    def __str__(self):
        """Returns the tree on one line, `(S (NP (PRP It)) (VP (VBZ works)))`."""
        forms = {OPEN: " ({0.label}", CLOSE: ")", WORD: " ({0.label} {0.children[0]})"}
        return "".join(forms[event].format(tree) for event, tree in self.walk())[1:]


def as_trees(trees: Any, name: str = "trees") -> list:
    """Returns a list of `Tree`; raises InputError for one tree, a str, a dict, …"""
    if isinstance(trees, Tree):
        raise InputError(f"{name} is the tree {shown(str(trees))}: give a list of trees.")
    return [
        as_tree(tree, f"{name}[{i}]")
        for i, tree in enumerate(elements(trees, name, "a list of trees"))
    ]


def as_tree(tree: Any, name: str = "tree") -> Tree:
    """Returns a `Tree`; raises InputError if it is something else, such as its text."""
    if not isinstance(tree, Tree):
        raise InputError(
            f"{name} is {shown(tree)}, of type {type(tree).__name__}: give a Tree, such as "
            "parse_tree(text) returns."
        )
    return tree


def parse_trees(lines: Any, name: str = "the text", first_line: int = 1) -> Iterator[Tree]:
    """Reads bracketed trees, each on one line or several; `name` and `first_line` are for errors.

    Yields:
        `Tree` with labels in NFC and unchanged words; the label of a bracket without one is "".
        Morphological features are removed: `NP##case=nom##` and `NP[case=nom]` are NP.

    Raises:
        InputError: if brackets don't match, if a bracket contains a word and anything else, or if a
            bracket inside a tree has no label or is empty; if the words of a tree have numbers, as
            in `0=Is` of discbracket files, whose constituents may be discontinuous.

    Example:
        >>> [tree] = parse_trees(["( (S (NP-SBJ (PRP It)) (VP (VBZ works))))"])
        >>> str(normalize_tree(tree))
        '(S (NP (PRP It)) (VP (VBZ works)))'
    """
    # (line number, parts, whether it is inside a labeled one) of each bracket that is still open.
    open_ = []
    for number, line in enumerate(iterate(lines, name), first_line):
        for token in _TOKEN.findall(line.decode("utf-8", "replace")):
            if token == "(":
                _, outer, inside = open_[-1] if open_ else (0, [], False)
                open_.append((number, [], inside or _has_label(outer)))
            elif not open_:
                reason = "a ')' too many" if token == ")" else f"{token!r} outside all brackets"
                raise InputError(f"{name}, line {number}: {reason}; fix the tree.")
            elif token != ")":
                open_[-1][1].append(token)
            else:
                _, parts, inside = open_.pop()
                tree = _make_tree(parts, inside, f"{name}, line {number}")
                if open_:
                    open_[-1][1].append(tree)
                else:
                    _refuse_discbracket(tree, f"{name}, line {number}")
                    yield tree
    if open_:
        raise InputError(
            f"{name}, line {open_[0][0]}: {len(open_)} brackets are not closed, and the first of "
            "them is opened on this line; fix the tree."
        )


def parse_tree(text: str) -> Tree | None:
    """Returns the tree in a str, None if there is none; raises InputError for several."""
    trees = list(parse_trees(text_bytes(text, "the text").split(b"\n")))
    if len(trees) > 1:
        raise InputError(f"there are {len(trees)} trees in {text!r}: `parse_trees` reads several.")
    return trees[0] if trees else None


def _refuse_discbracket(tree, place):
    words = [leaf.children[0] for leaf in tree.leaves() if leaf.label != _EMPTY]
    hits = [_NUMBERED.fullmatch(word) for word in words]
    if len(words) > 1 and all(hits) and {int(one[1]) for one in hits} == set(range(len(words))):
        raise InputError(
            f"{place}: every word has its position, such as {words[0]!r}, as in the discbracket "
            "format, whose constituents may be discontinuous: convert it to bracketed trees, such "
            "as by discodop treetransforms --output=bracket."
        )


def _has_label(parts):
    return bool(parts) and isinstance(parts[0], str)


def _make_tree(parts, inside, place):
    """Makes a tree from the parts of a bracket, which may be inside a labeled one."""
    label = _FEATURES.sub("", nfc(parts[0])) if _has_label(parts) else ""
    children = tuple(parts[1:] if label else parts)
    if (label and not children) or (inside and not label):
        raise InputError(
            f"{place}: bracket ({label}) {'holds no word' if label else 'has no label'}: write "
            "words as (TAG word), and round brackets in words and tags as -LRB- and -RRB-."
        )
    if len(children) > 1 and any(isinstance(child, str) for child in children):
        raise InputError(
            f"{place}: bracket ({label} …) contains a word and something else; give every word its "
            "own bracket, with its tag."
        )
    return Tree(label, children)


def read_treebank(path: StrPath, tags: str = "kept", keep_empty: bool = False) -> list[Tree]:
    """Reads the trees of a file, plain or .gz; `normalize_tree` normalizes them, by `tags`.

    With `keep_empty` a tree without a word is a `Tree` without children, so that the list is
    aligned with the file; else it is left out.

    Raises:
        InputError: if the file cannot be read, its brackets don't match, it holds no tree, or
            `tags` is invalid.
    """
    trees = [normalize_tree(tree, tags) for tree in parse_trees(read_text(path), str(path))]
    if not any(trees):
        raise InputError(f"{path} holds no tree: give a file of bracketed trees.")
    return [tree or Tree(TOP, ()) for tree in trees if tree or keep_empty]


def normalize_tree(tree: Tree, tags: str = "kept") -> Tree | None:
    """Converts a tree of a treebank to the form that parsers learn and are scored on.

    It has no outer brackets of `OUTER_LABELS`, empty elements, function tags and constituents
    without a word; it is None if no word is left. Unary chains stay. An outer bracket with several
    children stays, as TOP. With `tags` "normalized", XX replaces the tag of every word, as in
    Vinyals et al. 2015: parsing is not scored on tags; "kept" keeps them.

    Raises:
        InputError: for another value of tags.
    """
    if tags not in ("kept", "normalized"):
        raise InputError(f"tags is {tags!r}: give 'kept' or 'normalized'.")
    rows = [[]]  # the children so far of each open constituent
    for event, node in as_tree(tree).walk():
        if event == OPEN:
            rows.append([])
        elif event == CLOSE:
            children = tuple(rows.pop())
            if children:
                rows[-1].append(Tree(_FUNCTION_TAGS.sub("", node.label), children))
        elif node.label != _EMPTY:
            rows[-1].append(node._replace(label=NORMALIZED_TAG) if tags == "normalized" else node)
    if not rows[0]:
        return None
    [tree] = rows[0]
    while tree.label in OUTER_LABELS and len(tree.children) == 1 and not tree.is_word:
        tree = tree.children[0]
    is_outer = tree.label in OUTER_LABELS and not tree.is_word
    return tree._replace(label=TOP) if is_outer else tree


def linearize(tree: Tree) -> list[str]:
    """Writes a normalized tree as a sequence (Vinyals et al. 2015, section 2.2).

    "(NP" opens a constituent, ")NP" closes it, and each word is replaced by its tag.
    """
    marks = {OPEN: "(", CLOSE: ")", WORD: ""}
    return [marks[event] + node.label for event, node in as_tree(tree).walk()]


def tree_to_texts(
    tree: Tree, words: Sequence[str] | None = None, copy_words: bool = False
) -> tuple[str, str]:
    """Returns the source and target text of a tree, of its own words if others are not given.

    With `copy_words` every word follows its tag in the target.
    """
    words, tokens = tree.words() if words is None else as_strings(words, "words"), linearize(tree)
    if copy_words:
        rest = iter(words)
        tokens = [t if t[0] in ("(", ")") else f"{t} {next(rest)}" for t in tokens]
    return " ".join(words), " ".join(tokens)


class TreebankCorpus:
    """A folder of treebank files, plain or gzipped, as pairs of a sentence and a linearized tree.

    The file of split `train` is named `train.mrg`, `train.mrg.gz` or `train.….mrg`. For `tags` see
    `normalize_tree`, for `copy_words` `TreeTokenizer`.

    Raises:
        InputError: if there is no such folder.
    """

    def __init__(self, folder: StrPath, tags: str = "kept", copy_words: bool = False):
        self.folder = existing_folder(folder, ".mrg files")
        self.tags, self.copy_words = tags, copy_words

    def trees(self, split: str, keep_empty: bool = False) -> list[Tree]:
        """Returns the trees of a split with their own tags, as `read_treebank` does."""
        return read_treebank(self.files(split)["target"], keep_empty=keep_empty)

    def files(self, split: str) -> dict[str, str]:
        """Returns the file of a split, twice; errors as of `split_file`."""
        return dict.fromkeys(("source", "target"), split_file(self.folder, split, "mrg"))

    def has_text(self, split: str) -> bool:
        """Returns whether there is a file of a split, even one like `x.mrg.bz2`."""
        names = nfc_names(self.folder)
        return any(name.startswith(f"{nfc(split)}.") and ".mrg" in name for name in names)

    def examples(self, split: str) -> tf.data.Dataset:
        """Returns the sentences and linearized trees of a split, in the order of the file."""
        trees = [normalize_tree(tree, self.tags) for tree in self.trees(split)]
        return stream_pairs(
            lambda: (tree_to_texts(tree, copy_words=self.copy_words) for tree in trees), len(trees)
        )


class TreeAugmentation:
    """Makes varied copies of trees, for treebanks too small to show enough variety.

    Copies differ in two ways. Constituents are exchanged for others of the same label under a
    parent of the same label, from any tree (data recombination: Jia and Liang 2016; Shi et al. 2021
    for parsing). And words are replaced by their class, rare ones more often, so that the classes
    are learned wherever an unknown word may occur.

    Args:
        tokenizer: `TreeTokenizer`.
        exchange: fraction of constituents that are exchanged in a copy.
        word_dropout_alpha: α; a word with n occurrences is replaced by its class with probability
            α / (α + n) (Kiperwasser and Goldberg 2016).

    Raises:
        InputError: if exchange is outside [0, 1] or word_dropout_alpha is negative.
    """

    def __init__(
        self,
        trees: list[Tree],
        tokenizer: Any,
        exchange: float = 0.1,
        word_dropout_alpha: float = 0.8,
    ):
        if not 0 <= exchange <= 1:
            raise InputError(f"exchange is {exchange}: give a fraction from 0 to 1.")
        if word_dropout_alpha < 0:
            raise InputError(f"word_dropout_alpha is {word_dropout_alpha}: give 0 or more.")
        self.trees, self._exchange = as_trees(trees), exchange
        self._pools = collections.defaultdict(list)
        for tree in self.trees:
            # Each twice, at its parent's begin and end: a seed's copies depend on that.
            for event, parent in tree.walk():
                for child in () if event == WORD else parent.children:
                    if not child.is_word:
                        self._pools[parent.label, child.label].append(child)
        counts = collections.Counter(word for tree in self.trees for word in tree.words())
        classes = tokenizer.classes_of(tf.constant(list(counts), tf.string)).numpy()
        self._classes = {
            word: (name.decode(), word_dropout_alpha / (word_dropout_alpha + counts[word]))
            for word, name in zip(counts, classes, strict=True)
        }

    def copies(self, seed):
        """Yields a copy of each tree, and its words, some of them replaced by their class.

        The same seed gives the same copies.
        """
        rng = random.Random(seed)
        for original in self.trees:
            tree = self._exchange_constituents(original, rng)
            yield tree, [self._replace_word(word, rng) for word in tree.words()]

    def _exchange_constituents(self, tree, rng):
        if tree.is_word:
            return tree
        children = []
        for child in tree.children:
            if not child.is_word and rng.random() < self._exchange:
                children.append(rng.choice(self._pools[tree.label, child.label]))
            else:
                children.append(self._exchange_constituents(child, rng))
        return Tree(tree.label, tuple(children))

    def _replace_word(self, word, rng):
        name, probability = self._classes[word]
        return name if rng.random() < probability else word


class TrainingTrees:
    """A corpus whose training split is `copies` augmented copies of trees, and trees of other text.

    Args:
        corpus: `TreebankCorpus`; its other splits are unchanged.
        augmentation: `TreeAugmentation` of the training trees.
        seed: the same seed gives the same copies.
        parsed_trees: trees that are added unchanged, such as the output of a parser.

    Raises:
        InputError: if copies is below 1.
    """

    def __init__(self, corpus, split, augmentation, copies, seed=0, parsed_trees=()):
        if copies < 1:
            raise InputError(f"copies is {copies}: give at least 1.")
        self._corpus, self._split, self._augmentation = corpus, split, augmentation
        self._copies, self._seed = copies, seed
        self._parsed_trees = as_trees(parsed_trees, "parsed_trees")

    def examples(self, split):
        """Returns the sentences and linearized trees of a split."""
        if split != self._split:
            return self._corpus.examples(split)
        count = self._copies * len(self._augmentation.trees) + len(self._parsed_trees)
        return stream_pairs(self._pairs, count)

    def _pairs(self):
        for tree in self._parsed_trees:
            yield tree_to_texts(tree, copy_words=self._corpus.copy_words)
        for copy in range(self._copies):
            for tree, words in self._augmentation.copies(f"{self._seed} {copy}"):
                yield tree_to_texts(tree, words, self._corpus.copy_words)
