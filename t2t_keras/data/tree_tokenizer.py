"""The tokenizer of constituency parsing: whole words and the symbols of linearized trees.

A treebank of a few thousand sentences contains too few rare words to learn subwords from. A rare
word gets the id of its class, which is its shape and its longest frequent ending. This is usual
for small treebanks (Petrov and Klein 2007).
"""

import collections
import json

import tensorflow as tf
import tensorflow_text as tf_text

from t2t_keras.data.base_tokenizer import SPECIAL, UNK_ID, Tokenizer, lookup_table, valid_batch
from t2t_keras.data.treebank import NORMALIZED_TAG, as_trees
from t2t_keras.errors import InputError

PUNCTUATION = {",": ",", ".": ".", "?": ".", "!": ".", ":": ":", ";": ":", "--": ":", "...": ":"}
PUNCTUATION |= {"``": "``", "`": "``", "''": "''", '"': "''"}
"""Punctuation marks of the Penn Treebank that have the same tag in every sentence, and that tag."""

_PENN_TAGS = frozenset(PUNCTUATION.values())
_UNSEEN = "\n"  # of a lookup of a mark, no tag
_NORMALIZATION = "NFC"
_MAX_RARE_COUNT = 2  # words up to this count are those that the classes are learned from
_MIN_CLASS_WORDS = 10  # words that a class needs to have an id
_SURE = 0.95  # of a mark's occurrences have its tag, or else the search chooses one
_FREE = 0.01  # of a punctuation tag's occurrences are words with letters, which then may have it
_SHAPES = {  # the first that matches
    r"[^\p{L}0]*": ".",  # neither letters nor digits
    r"\P{L}*": "0",
    r"\P{Lu}*": "x",
    r"\P{Ll}*": "XX",
    r"\p{Lu}\P{Lu}*": "Xx",
}


class TreeTokenizer(Tokenizer):
    """Whole words (unknown ones by their class) and the symbols of linearized trees.

    Ids are, in this order: the four special ones, `(NP` of all labels, `)NP` of all labels, the
    tags, the classes, the words. A word that looks like a symbol has the symbol's id. All digits in
    words count as 0. Words are normalized to NFC if the file says so; older files do not.

    Attributes:
        labels: labels of constituents.
        tags: `["XX"]` if tags are normalized.
        first_opener, first_closer, first_tag: the first id of `(NP`, `)NP` and the tags.
        target_size: a linearized tree contains only ids below it, except for copied words.
        copy_words: whether every word follows its tag in a linearized tree. The decoder then
            reads which word comes next, and learns to attend to it sooner.
    """

    kinds = ("trees",)
    model_file = "trees.json"

    def __init__(self, kind, model):
        content = json.loads(model)
        self.labels, self.tags = content["labels"], content["tags"]
        self.copy_words = content["echo"]
        self._normalizes = content.get("normalization") == _NORMALIZATION
        symbols = [mark + label for mark in "()" for label in self.labels] + self.tags
        pieces = [*SPECIAL, *symbols, *content["classes"], *content["words"]]
        super().__init__(kind, model, tf.constant(pieces))
        self.first_opener = len(SPECIAL)
        self.first_closer = self.first_opener + len(self.labels)
        self.first_tag = self.first_closer + len(self.labels)
        self.target_size = self.first_tag + len(self.tags)
        ids = {piece: number for number, piece in reversed(list(enumerate(pieces)))}
        self._table = lookup_table([*ids], tf.constant([*ids.values()], tf.int32), UNK_ID)
        marks = content["marks"]
        self._marks = lookup_table([*marks], tf.constant([*marks.values()], tf.string), _UNSEEN)
        self._ambiguous_punctuation = tf.constant(content["unsure"], tf.string)
        # Files of earlier versions have neither of these.
        self._bound_tags = frozenset(content.get("bound_tags", _PENN_TAGS))
        self._other_mark = content.get("other_mark", "")

    def encode(self, texts):
        words = tf.strings.split(valid_batch(texts))
        spellings = self._normalize(words.values)
        ids = self._table.lookup(spellings)
        masked = _mask_digits(spellings)
        for names in (masked, *_classes(masked)):
            ids = tf.where(ids == UNK_ID, self._table.lookup(names), ids)
        return words.with_values(ids)

    def classes_of(self, words):
        """Returns the class of each word, in the vocabulary or not, string `[words]`."""
        names = tf.fill(tf.shape(words), SPECIAL[UNK_ID])
        for candidates in reversed(_classes(_mask_digits(self._normalize(words)))):
            known = self._table.lookup(candidates) != UNK_ID
            names = tf.where(known, candidates, names)
        return names

    def punctuation_tags(self, words):
        """Returns the usual tag of each punctuation mark in the treebank, "" for other words.

        Parse scores recognize and omit punctuation by its tag, which must not depend on a model. A
        mark that is not in the treebank gets the tag of a similar one. words: string of any shape.
        """
        tags = self._marks.lookup(words)
        is_mark = tf.strings.regex_full_match(words, r"\pP+")
        return tf.where(tags != _UNSEEN, tags, tf.where(is_mark, self._other_mark, ""))

    def allowed_tags(self, words):
        """Returns the tags that may replace each word, string `[batch, (words)]`, in a tree.

        Returns:
            int32 `[batch, longest + 1]`: for a punctuation mark the id of its usual tag; -1 for a
            word that may have any tag; 0 for ordinary words. And bool `[target_size + 1]`, the
            tags that ordinary words may have.
        """
        if self.tags == [NORMALIZED_TAG]:
            own = words.with_values(tf.zeros_like(words.values, tf.int32))
        else:
            tags = self.punctuation_tags(words.values)
            ambiguous = words.values[:, tf.newaxis] == self._ambiguous_punctuation
            own = tf.where(tags != "", self._table.lookup(tags), 0)
            own = words.with_values(tf.where(tf.reduce_any(ambiguous, axis=1), -1, own))
        free = [tag not in self._bound_tags for tag in self.tags]
        free_tags = tf.constant([False] * self.first_tag + free + [False])
        return tf.pad(own.to_tensor(), [[0, 0], [0, 1]]), free_tags

    def _normalize(self, words):
        return tf_text.normalize_utf8(words, _NORMALIZATION) if self._normalizes else words

    def _join(self, ids):
        return tf.strings.reduce_join(self.pieces(ids), axis=1, separator=" ")

    @classmethod
    def train(cls, trees, vocab_size, tags="kept", copy_words=False):
        """Learns a vocabulary from normalized trees with their own tags.

        Args:
            vocab_size: number of ids; None for all words that occur more than once. The paper
                has 16,000, and 32,000 with more text.
            tags, copy_words: the form of linearized trees, as for `TreebankCorpus`.

        Raises:
            InputError: if the trees have fewer or more different tokens, naming the limits.
        """
        trees = as_trees(trees)
        leaves = [leaf for tree in trees for leaf in tree.leaves()]
        tag_counts = collections.defaultdict(collections.Counter)  # of each word
        for leaf in leaves:
            tag_counts[leaf.children[0]][leaf.label] += 1
        punctuation = _punctuation(tag_counts)
        words, repeated, classes = _words_and_classes(tag_counts)
        kept = {leaf.label for leaf in leaves} | set(punctuation["marks"].values()) - {""}
        content = {
            "labels": sorted(
                {node.label for tree in trees for _, node in tree.walk() if not node.is_word}
            ),
            "echo": copy_words,
            "normalization": _NORMALIZATION,
            "tags": sorted(kept) if tags == "kept" else [NORMALIZED_TAG],
            "classes": classes,
            **punctuation,
        }
        fixed = len(SPECIAL) + 2 * len(content["labels"]) + len(content["tags"]) + len(classes)
        if vocab_size is None:
            vocab_size = fixed + max(repeated, 1)
        if not fixed < vocab_size <= fixed + len(words):
            raise InputError(
                f"vocab_size is {vocab_size}: give {fixed + 1} to {fixed + len(words)}, the limits "
                "of these trees."
            )
        content["words"] = words[: vocab_size - fixed]
        return cls(cls.kinds[0], json.dumps(content, ensure_ascii=False, indent=0).encode())


def _punctuation(tag_counts):
    """Derives from {word: {tag: count}} which words are punctuation: fields of the model's JSON.

    A tag counts as punctuation if most of its words have no letters or digits.

    Returns:
        marks, {word: its usual tag, or "" if it is never punctuation}; unsure, the marks that have
        other tags as well; bound_tags, the tags that only marks may have; and other_mark, the tag
        of a mark that is in none of these.
    """
    total, by_marks = collections.Counter(), collections.Counter()  # of each tag
    for word, counts in tag_counts.items():
        total.update(counts)
        by_marks.update({} if any(map(str.isalnum, word)) else counts)
    bound = {tag for tag, count in by_marks.items() if 2 * count > total[tag]}
    usual = {word: counts.most_common(1)[0] for word, counts in tag_counts.items()}
    marks = {
        word: tag if bound.intersection(tag_counts[word]) else ""
        for word, (tag, _) in usual.items()
        if tag in bound or not any(map(str.isalnum, word))
    }
    unsure = [
        word for word in marks if marks[word] and usual[word][1] < _SURE * tag_counts[word].total()
    ]
    types = collections.Counter(tag for tag in marks.values() if tag in bound)
    is_penn = not bound or bool(bound & _PENN_TAGS)
    other = "" if is_penn else types.most_common(1)[0][0]
    for mark, tag in PUNCTUATION.items():
        similar = [marks[m] for m, t in PUNCTUATION.items() if t == tag and marks.get(m)]
        marks.setdefault(mark, (similar or [tag if is_penn else other])[0])
    bound = {tag for tag in bound if total[tag] - by_marks[tag] < _FREE * total[tag]}
    if bound.issuperset(total):
        bound = set()  # words need a tag
    return {
        "marks": marks,
        "unsure": unsure,
        "bound_tags": sorted(bound | (_PENN_TAGS if is_penn else set())),
        "other_mark": other,
    }


def _words_and_classes(tag_counts):
    """Returns words in order of frequency, how many occur more than once, and the classes."""
    counts, classes = collections.Counter(), collections.Counter()
    normalized = tf_text.normalize_utf8(list(tag_counts), _NORMALIZATION)
    masked = _mask_digits(normalized).numpy()
    for word, name in zip(tag_counts, masked, strict=True):
        counts[name.decode()] += tag_counts[word].total()
    rare = tf.constant([word for word in counts if counts[word] <= _MAX_RARE_COUNT], tf.string)
    for candidates in zip(*(names.numpy() for names in _classes(rare)), strict=True):
        classes.update({name.decode() for name in candidates})
    words = sorted(counts, key=lambda word: (-counts[word], word))
    repeated = sum(count > 1 for count in counts.values())
    classes = sorted(name for name, count in classes.items() if count >= _MIN_CLASS_WORDS)
    return words, repeated, classes


def _mask_digits(words):
    """Replaces all digits of words by 0."""
    return tf.strings.regex_replace(words, "[0-9]", "0")


def _classes(words):
    """Returns the possible classes of words, the most specific first: list of string `[words]`."""
    shape = tf.fill(tf.shape(words), "xX")
    for pattern, name in reversed(_SHAPES.items()):
        shape = tf.where(tf.strings.regex_full_match(words, pattern), name, shape)
    hyphen = tf.where(tf.strings.regex_full_match(words, ".+-.+"), "-", "")
    lower = tf.strings.lower(words, "utf-8")
    endings = [tf.strings.regex_replace(lower, f"^.*(.{{{n}}})$", "~\\1") for n in (3, 2, 1)]
    return [tf.strings.join(["<", shape, hyphen, ending, ">"]) for ending in [*endings, ""]]
