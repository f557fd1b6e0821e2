"""Words and linearized trees to ids, for parsing: one closed vocabulary, words whole.

A treebank of a few thousand sentences has too few rare words for pieces of them to be learned. A
word that is too rare for an id of its own has the id of its class instead, as is usual for small
treebanks (Petrov and Klein 2007): its shape and as much of its ending as is seen often enough.
"""

import collections
import json
import os

import tensorflow as tf

from t2t_keras.data.ids import UNKNOWN_ID
from t2t_keras.data.tokenizers import Tokenizer
from t2t_keras.data.treebank import NORMALIZED_TAG
from t2t_keras.errors import InputError

MARKS = {",": ",", ".": ".", "?": ".", "!": ".", ":": ":", ";": ":", "--": ":", "...": ":"}
MARKS |= {"``": "``", "`": "``", "''": "''", '"': "''"}
"""The tag of each punctuation mark in the Penn Treebank, whatever the sentence."""

_MARK_TAGS = frozenset(MARKS.values())
_SPECIAL = ["<pad>", "</s>", "<unk>", "<s>"]  # ids 0 to 3
_RARE = 2  # words seen so many times at most are what the classes are learned from
_CLASS_SEEN = 10  # words a class needs to have an id
_SHAPES = {  # the first that fits
    r"[^\p{L}0]*": ".",  # neither letters nor digits
    r"\P{L}*": "0",
    r"\P{Lu}*": "x",
    r"\P{Ll}*": "XX",
    r"\p{Lu}\P{Lu}*": "Xx",
}


class TreeTokenizer(Tokenizer):
    """Whole words, unknown ones by their class, and the symbols of linearized trees.

    Ids are, in this order: the four special ones, `(NP` of all labels, `)NP` of all labels, the
    tags, the classes, the words. A word that looks like a symbol has the symbol's id. In words,
    all digits are one and the same.

    Args:
        kind: `trees`.
        model: bytes, the JSON that `learn` makes.

    Attributes:
        labels: list of str.
        tags: list of str, `["XX"]` if tags are normalized.
        target_size: int, the ids below it are all that a linearized tree has, but for echoes.
        echo: bool, whether every word follows its tag in a linearized tree. So a decoder knows at
            which word it is, and learns sooner where to look.
    """

    kinds = ("trees",)
    model_file = "trees.json"

    def __init__(self, kind, model):
        content = json.loads(model)
        self.labels, self.tags, self.echo = content["labels"], content["tags"], content["echo"]
        symbols = [mark + label for mark in "()" for label in self.labels] + self.tags
        pieces = [*_SPECIAL, *symbols, *content["classes"], *content["words"]]
        super().__init__(kind, model, tf.constant(pieces))
        self.first_opener = len(_SPECIAL)
        self.first_closer = self.first_opener + len(self.labels)
        self.first_tag = self.first_closer + len(self.labels)
        self.target_size = self.first_tag + len(self.tags)
        ids = {piece: number for number, piece in reversed(list(enumerate(pieces)))}
        self._table = _table(list(ids), tf.constant(list(ids.values())), UNKNOWN_ID)
        marks = content["marks"]
        self._mark_tags = _table(list(marks), tf.constant(list(marks.values())), "")
        self._unsure = tf.constant(content["unsure"], tf.string)

    def encode(self, texts):
        words = tf.strings.split(tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8"))
        ids = self._table.lookup(words.values)
        plain = _plain(words.values)
        for names in (plain, *_classes(plain)):
            ids = tf.where(ids == UNKNOWN_ID, self._table.lookup(names), ids)
        return words.with_values(ids)

    def classes_of(self, words):
        """Returns the class of each word, known or not, string of words' shape [words]."""
        names = tf.fill(tf.shape(words), _SPECIAL[UNKNOWN_ID])
        for candidates in reversed(_classes(_plain(words))):
            known = self._table.lookup(candidates) != UNKNOWN_ID
            names = tf.where(known, candidates, names)
        return names

    def mark_tags(self, words):
        """Returns the tag that a punctuation mark always has, string of the words' shape; "" else.

        Scores leave punctuation out by its tag, so that it must not depend on a model.
        """
        return self._mark_tags.lookup(words)

    def allowed_tags(self, words):
        """Returns which symbols may stand for words in a tree.

        Args:
            words: RaggedTensor string [batch, (words)].

        Returns:
            int32 [batch, longest + 1], the id of a mark's own tag, -1 for a word that may have any
            tag, else 0; and bool [target_size + 1], the tags that these words may have.
        """
        if self.tags == [NORMALIZED_TAG]:
            own = words.with_values(tf.zeros_like(words.values, tf.int32))
        else:
            marks = self.mark_tags(words.values)
            unsure = tf.reduce_any(words.values[:, tf.newaxis] == self._unsure, axis=1)
            free = tf.where(unsure, -1, 0)
            own = words.with_values(tf.where(marks != "", self._table.lookup(marks), free))
        free = [tag not in _MARK_TAGS for tag in self.tags]
        free_tags = tf.constant([False] * self.first_tag + free + [False])
        return tf.pad(own.to_tensor(), [[0, 0], [0, 1]]), free_tags

    def _join(self, ids):
        return tf.strings.reduce_join(self.pieces(ids), axis=1, separator=" ")

    @classmethod
    def load(cls, directory):
        """Reads the tokenizer that `save` wrote into a folder.

        Raises:
            InputError: if there is none.
        """
        try:
            with open(os.path.join(directory, cls.model_file), "rb") as file:
                return cls(cls.kinds[0], file.read())
        except FileNotFoundError as error:
            raise InputError(
                f"{directory} holds no tokenizer of trees ({cls.model_file} is missing); learn one "
                "there first."
            ) from error

    @classmethod
    def learn(cls, trees, vocab_size, tags="kept", echo=False):
        """Learns a vocabulary from trees.

        Args:
            trees: list of `Tree`, prepared, with their own tags.
            vocab_size: how many ids; None for all words that are seen more than once. The paper
                has 16,000, and 32,000 with more text.
            tags: "kept" or "normalized", how linearizations shall have them.
            echo: whether words shall follow their tags there.

        Returns:
            A `TreeTokenizer`.

        Raises:
            InputError: if the trees have fewer or more to tell apart, naming the limit.
        """
        leaves = [leaf for tree in trees for leaf in tree.leaves()]
        seen = collections.defaultdict(collections.Counter)
        for leaf in leaves:
            seen[leaf.children[0]][leaf.label] += 1
        marks, unsure = _marks(seen)
        words, often, classes = _words_and_classes(seen)
        kept = sorted({leaf.label for leaf in leaves} | _MARK_TAGS)
        content = {
            "labels": sorted({node.label for tree in trees for node in _constituents(tree)}),
            "echo": echo,
            "tags": kept if tags == "kept" else [NORMALIZED_TAG],
            "marks": marks,
            "unsure": unsure,
            "classes": classes,
        }
        fixed = len(_SPECIAL) + 2 * len(content["labels"]) + len(content["tags"]) + len(classes)
        if vocab_size is None:
            vocab_size = fixed + max(often, 1)
        if not fixed < vocab_size <= fixed + len(words):
            raise InputError(
                f"vocab_size is {vocab_size}: give {fixed + 1} to {fixed + len(words)}, what these "
                "trees have to tell apart."
            )
        content["words"] = words[: vocab_size - fixed]
        return cls(cls.kinds[0], json.dumps(content, ensure_ascii=False, indent=0).encode())


def _constituents(tree):
    return (node for _, node in tree.walk() if not node.is_word)


def _marks(seen):
    """Returns {mark: its tag}, and marks that have the tag of punctuation now and then."""
    marks, unsure = dict(MARKS), []
    for word, counts in seen.items():
        tags = _MARK_TAGS.intersection(counts)
        if tags and word not in marks and not any(map(str.isalnum, word)):
            if len(counts) == 1:
                [marks[word]] = tags
            else:
                unsure.append(word)  # such as ', a quotation mark or a genitive
    return marks, unsure


def _words_and_classes(seen):
    """Returns words, the most frequent first, how many are seen twice, and the classes to keep."""
    counts, classes = collections.Counter(), collections.Counter()
    for word, name in zip(seen, _plain(tf.constant(list(seen))).numpy(), strict=True):
        counts[name.decode()] += sum(seen[word].values())
    rare = tf.constant([word for word in counts if counts[word] <= _RARE], tf.string)
    for candidates in zip(*(names.numpy() for names in _classes(rare)), strict=True):
        classes.update({name.decode() for name in candidates})
    words = sorted(counts, key=lambda word: (-counts[word], word))
    often = sum(count > 1 for count in counts.values())
    return words, often, sorted(name for name, count in classes.items() if count >= _CLASS_SEEN)


def _plain(words):
    """Makes all digits of words one and the same."""
    return tf.strings.regex_replace(words, "[0-9]", "0")


def _classes(words):
    """Returns the classes that words could have, the narrowest first: list of string [words]."""
    shape = tf.fill(tf.shape(words), "xX")
    for pattern, name in reversed(_SHAPES.items()):
        shape = tf.where(tf.strings.regex_full_match(words, pattern), name, shape)
    hyphen = tf.where(tf.strings.regex_full_match(words, ".+-.+"), "-", "")
    ending = tf.strings.lower(words, "utf-8")
    endings = [tf.strings.regex_replace(ending, f"^.*(.{{{n}}})$", "~\\1") for n in (3, 2, 1)]
    return [tf.strings.join(["<", shape, hyphen, ending, ">"]) for ending in [*endings, ""]]


def _table(keys, values, default):
    values = tf.cast(values, tf.int32) if default == UNKNOWN_ID else values
    return tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(tf.constant(keys, tf.string), values), default
    )
