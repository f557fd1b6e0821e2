"""More trees out of few: what a small treebank does not show often enough to be learned.

Copies of a tree differ in two ways. Constituents are exchanged for others of the same label under
a parent of the same label, from any sentence (data recombination: Jia and Liang 2016; Shi et al.
2021 for parsing). And words are replaced by their class, rare ones more often, so that classes are
learned in all places where an unknown word may stand.
"""

import collections
import random

import tensorflow as tf

from t2t_keras.data.treebank import Tree
from t2t_keras.errors import InputError


class TreeVariation:
    """Draws copies of trees that vary.

    Args:
        trees: list of `Tree`, what copies are made of.
        tokenizer: `TreeTokenizer`.
        exchange: share of constituents that are exchanged in a copy.
        class_weight: a word seen n times is replaced by its class with the probability
            class_weight / (class_weight + n).

    Raises:
        InputError: if exchange is no share or class_weight is negative.
    """

    def __init__(self, trees, tokenizer, exchange=0.1, class_weight=0.8):
        if not 0 <= exchange <= 1:
            raise InputError(f"exchange is {exchange}: give a share from 0 to 1.")
        if class_weight < 0:
            raise InputError(f"class_weight is {class_weight}: give 0 or more.")
        self.trees, self._exchange = list(trees), exchange
        self._pools = collections.defaultdict(list)
        for tree in self.trees:
            for parent, child in _pairs(tree):
                self._pools[parent.label, child.label].append(child)
        counts = collections.Counter(word for tree in self.trees for word in tree.words())
        classes = tokenizer.classes_of(tf.constant(list(counts), tf.string)).numpy()
        self._classes = {
            word: (name.decode(), class_weight / (class_weight + counts[word]))
            for word, name in zip(counts, classes, strict=True)
        }

    def copies(self, seed):
        """Yields a (`Tree`, its words or classes) of each tree; the same for the same seed."""
        chance = random.Random(seed)
        for original in self.trees:
            tree = self._varied(original, chance)
            yield tree, [self._word(word, chance) for word in tree.words()]

    def _varied(self, tree, chance):
        if tree.is_word:
            return tree
        children = []
        for child in tree.children:
            if not child.is_word and chance.random() < self._exchange:
                children.append(chance.choice(self._pools[tree.label, child.label]))
            else:
                children.append(self._varied(child, chance))
        return Tree(tree.label, tuple(children))

    def _word(self, word, chance):
        name, share = self._classes[word]
        return name if chance.random() < share else word


def _pairs(tree):
    """Yields (parent, constituent) of all constituents but the outermost."""
    for _, node in tree.walk():
        for child in () if node.is_word else node.children:
            if not child.is_word:
                yield node, child
