"""Bracketed trees of a treebank: read, prepared for parsing, written as a sequence and back.

"Standard preparation" is what parsers of the Penn Treebank have been scored on since Collins 1997:
the outer bracket, empty elements and function tags go, unary chains stay, words are the tokens.
"""

import gzip
import re
import zlib
from typing import NamedTuple

from t2t_keras.errors import InputError

NORMALIZED_TAG = "XX"
"""The one tag that stands for all in the linearization of Vinyals et al. 2015."""

TOP = "TOP"
"""What is put for an outer bracket without a label that holds several trees."""

OPEN, CLOSE, WORD = "open", "close", "word"
"""What one meets on a walk through a tree."""

_EMPTY = "-NONE-"
_TOKEN = re.compile(r"[()]|[^\s()]+", re.ASCII)
_FUNCTION_TAGS = re.compile(r"(?<=.)[-=].*")  # of NP-SBJ-1 or NP=2, not of -LRB-


class Tree(NamedTuple):
    """A constituent, or a word under its part-of-speech tag.

    Attributes:
        label: str, a constituent's label or a word's tag.
        children: tuple of `Tree`, or of one str, the word.
    """

    label: str
    children: tuple

    @property
    def is_word(self):
        """Whether this is a word under its tag."""
        return bool(self.children) and isinstance(self.children[0], str)

    def walk(self):
        """Yields (event, `Tree`) from left to right: OPEN, CLOSE of constituents, and WORD."""
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

    def leaves(self):
        """Returns the words under their tags, a list of `Tree`, from left to right."""
        return [tree for event, tree in self.walk() if event == WORD]

    def words(self):
        """Returns the words, a list of str."""
        return [leaf.children[0] for leaf in self.leaves()]

    def __str__(self):
        """Returns the tree on one line, `(S (NP (PRP It)) (VP (VBZ works)))`."""
        shown = {
            OPEN: lambda tree: f" ({tree.label}",
            CLOSE: lambda _: ")",
            WORD: lambda tree: f" ({tree.label} {tree.children[0]})",
        }
        return "".join(shown[event](tree) for event, tree in self.walk())[1:]


def parse_trees(lines, name="the text", first_line=1):
    """Reads bracketed trees, which may go over several lines.

    Args:
        lines: iterable of str.
        name: str, what error messages call the text.
        first_line: int, the first line's number.

    Yields:
        `Tree`, labels and words as they are; the label of a bracket without one is "".

    Raises:
        InputError: if the brackets don't match or one holds a word beside something else.

    Example:
        >>> [tree] = parse_trees(["( (S (NP-SBJ (PRP It)) (VP (VBZ works))))"])
        >>> str(prepare(tree))
        '(S (NP (PRP It)) (VP (VBZ works)))'
    """
    open_ = []  # (line number, parts) of each bracket that is not closed yet
    for number, line in enumerate(lines, first_line):
        for token in _TOKEN.findall(line):
            if token == "(":
                open_.append((number, []))
            elif not open_:
                reason = "a ')' too many" if token == ")" else f"{token!r} outside all brackets"
                raise InputError(f"{name}, line {number}: {reason}; mend the tree.")
            elif token != ")":
                open_[-1][1].append(token)
            else:
                tree = _tree(open_.pop()[1], f"{name}, line {number}")
                if open_:
                    open_[-1][1].append(tree)
                else:
                    yield tree
    if open_:
        raise InputError(
            f"{name}, line {open_[0][0]}: {len(open_)} brackets are open at the end of the text, "
            "the first of them since this line; mend the tree."
        )


def tree_of(text):
    """Returns the first tree of a str, `Tree`; None if there is none."""
    return next(parse_trees(text.split("\n")), None)


def _tree(parts, place):
    """Makes a tree of what stands in one bracket, label first."""
    label = parts[0] if parts and isinstance(parts[0], str) else ""
    children = tuple(parts[1:] if label else parts)
    if len(children) > 1 and any(isinstance(child, str) for child in children):
        raise InputError(
            f"{place}: bracket ({label} …) holds a word beside something else; give every word a "
            "bracket of its own, with its tag."
        )
    return Tree(label, children)


def read_lines(path):
    """Returns the lines of a text file, plain or gzipped if its name ends in .gz, a list of str.

    Raises:
        InputError: if the file is missing, broken or no UTF-8.
    """
    path = str(path)
    try:
        with (gzip.open if path.endswith(".gz") else open)(path, "rt", encoding="utf-8") as file:
            return file.read().split("\n")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({error}): give a file of trees.") from error


def read_treebank(path, tags="kept"):
    """Reads and prepares the trees of a file.

    Args:
        path: a file of bracketed trees, on one line each or several, plain or .gz.
        tags: "kept" or "normalized"; see `prepare`.

    Returns:
        List of `Tree`; what holds no word at all is left out.

    Raises:
        InputError: if the file can't be read, its brackets don't match, or it holds no tree.
    """
    trees = [prepare(tree, tags) for tree in parse_trees(read_lines(path), str(path))]
    trees = [tree for tree in trees if tree]
    if not trees:
        raise InputError(f"{path} holds no tree: give a file of bracketed trees.")
    return trees


def prepare(tree, tags="kept"):
    """Brings a tree of a treebank into the form that parsers learn and are scored on.

    Args:
        tree: `Tree` as read.
        tags: "kept", or "normalized" to replace the tag of every word by XX, as Vinyals et al.
            2015 do: parsing is not scored on tags.

    Returns:
        `Tree` without outer bracket, empty elements, function tags and constituents without a
        word; None if no word is left. Unary chains stay.

    Raises:
        InputError: for another value of tags.
    """
    if tags not in ("kept", "normalized"):
        raise InputError(f"tags is {tags!r}: give 'kept' or 'normalized'.")
    rows = [[]]  # the children so far of each constituent on the way down
    for event, node in tree.walk():
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
    while tree.label in ("", TOP) and len(tree.children) == 1 and not tree.is_word:
        tree = tree.children[0]
    return tree._replace(label=tree.label or TOP)


def linearize(tree):
    """Writes a tree as a sequence (Vinyals et al. 2015, section 2.2).

    Args:
        tree: `Tree`, prepared.

    Returns:
        List of str: "(NP" opens a constituent, ")NP" closes it, each word's tag stands for it.

    Example:
        >>> linearize(Tree("S", (Tree("NP", (Tree("XX", ("It",)),)), …)))
        ['(S', '(NP', 'XX', ')NP', '(VP', 'XX', ')VP', ')S']
    """
    marks = {OPEN: "(", CLOSE: ")", WORD: ""}
    return [marks[event] + node.label for event, node in tree.walk()]


def delinearize(tokens, words):
    """Makes the tree of a linearization again.

    Args:
        tokens: list of str, as `linearize` writes them.
        words: list of str, the tree's words.

    Returns:
        `Tree`, such that `delinearize(linearize(tree), tree.words()) == tree`.

    Raises:
        InputError: if the tokens are not one well-formed tree over exactly the words.
    """
    root = []
    open_, words_left = [(None, root)], list(reversed(words))
    for place, token in enumerate(tokens):
        fault = None
        if len(open_) == 1 and root:
            fault = "comes after the end of the tree"
        elif token.startswith("("):
            open_.append((token[1:], []))
        elif token.startswith(")"):
            label, children = open_[-1]
            if label != token[1:]:
                fault = "closes no open bracket" if label is None else f"closes ({label}"
            elif not children:
                fault = "closes a bracket without a word"
            else:
                open_.pop()
                open_[-1][1].append(Tree(label, tuple(children)))
        elif not words_left:
            fault = f"stands for a word more than the {len(words)} there are"
        else:
            open_[-1][1].append(Tree(token, (words_left.pop(),)))
        if fault:
            raise InputError(f"token {place}, {token!r}, {fault}.")
    if len(open_) > 1 or words_left or not root:
        raise InputError(
            f"the sequence ends with {len(open_) - 1} brackets open and {len(words_left)} words "
            "left: it is no whole tree."
        )
    return root[0]
