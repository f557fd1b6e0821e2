"""The baseline of parsing: a probabilistic context-free grammar (PCFG) from the same trees.

python tools/pcfg_baseline.py train.mrg.gz dev.mrg.gz --vertical=2 --horizontal=2

Rule probabilities are relative frequencies without smoothing. A unary chain is one symbol. Rules
are binarized from the left. --vertical=2 is parent annotation, --horizontal the number of sisters
kept (Klein and Manning 2003). Rare words become classes as in `TreeTokenizer`. The last line
printed is the JSON of `t2t_keras.evaluation.bracketing`, which skips sentences without a parse.
"""

import argparse
import collections
import json
import sys
import time

import numpy as np

from t2t_keras.data.tree_tokenizer import PUNCTUATION, TreeTokenizer
from t2t_keras.data.treebank import Tree, read_treebank
from t2t_keras.evaluation.bracketing import score_trees

_CHAIN = "→"  # between the labels of a unary chain
_ANCESTOR = "↑"  # before the parent's label that a label remembers
_PART = "…"  # before the sisters that a part of a constituent remembers
_SEEN_OFTEN = 5  # a word seen so often has no tags but those it was seen with
_TAG_PRIOR = 0.1  # added to the counts of a word's tags, shared out as the tags of all words are


class Grammar:
    """A PCFG, and the most likely tree of a sentence under it.

    Args:
        trees: list of `Tree`.
        vertical: 1, or 2 for labels with parent annotation.
        horizontal: sisters kept in the label of a binarized rule; None for all.
    """

    def __init__(self, trees, vertical=1, horizontal=None):
        self._vertical, self._horizontal = vertical, horizontal
        self._tokenizer = TreeTokenizer.train(trees, None)  # a word seen once is unknown
        self._ids = self._ids_of({word for tree in trees for word in tree.words()})

        rules, roots, emissions = (
            collections.Counter(),
            collections.Counter(),
            collections.Counter(),
        )
        for tree in trees:
            roots[self._count(tree, rules, emissions)] += 1
        self._emissions, self._tag_counts = collections.defaultdict(dict), collections.Counter()
        for (tag, word), count in emissions.items():
            self._emissions[word][tag] = count
            self._tag_counts[tag] += count
        self._number(rules, roots)

    def _ids_of(self, words):
        """Returns {word: its id, or that of its class}."""
        words = list(words)
        return dict(zip(words, self._tokenizer.encode(words).values.numpy().tolist(), strict=True))

    def _count(self, tree, rules, emissions, parent=""):
        """Counts the rules of a tree; returns the symbol of its outermost constituent."""
        chain = [tree.label]
        while not tree.is_word and len(tree.children) == 1:
            tree = tree.children[0]
            chain.append(tree.label)
        symbol = _CHAIN.join(chain) + (_ANCESTOR + parent if self._vertical > 1 else "")
        if tree.is_word:
            emissions[tree.label, self._ids[tree.children[0]]] += 1
            rules[symbol, None, None] += 1
            return symbol
        children = [self._count(child, rules, emissions, tree.label) for child in tree.children]
        left, seen = symbol, []
        for child in children[:-2]:
            seen = [*seen, child][-self._horizontal :] if self._horizontal else [*seen, child]
            rest = symbol + _PART + _PART.join(seen if self._horizontal != 0 else [])
            rules[left, child, rest] += 1
            left = rest
        rules[left, children[-2], children[-1]] += 1
        return symbol

    def _number(self, rules, roots):
        """Makes arrays of the rules, sorted by the symbol that they expand."""
        totals = collections.Counter()
        for (symbol, *_), count in rules.items():
            totals[symbol] += count
        self._symbols = sorted(totals)
        number = {symbol: place for place, symbol in enumerate(self._symbols)}
        binary = sorted((number[a], number[b], number[c]) for a, b, c in rules if b is not None)
        self._parents, self._lefts, self._rights = np.array(binary).T
        name = self._symbols
        self._weights = np.log(
            [rules[name[a], name[b], name[c]] / totals[name[a]] for a, b, c in binary]
        ).astype(np.float32)
        self._roots = np.full(len(name), -np.inf, np.float32)
        for symbol, count in roots.items():
            self._roots[number[symbol]] = np.log(count / roots.total())
        # Symbols that can be a word under its tag, by that tag, with the share in which they are.
        self._words_of_tag = collections.defaultdict(list)
        for (symbol, left, _), count in rules.items():
            if left is None:
                tag = symbol.split(_ANCESTOR)[0].split(_CHAIN)[-1]
                self._words_of_tag[tag].append((number[symbol], np.log(count / totals[symbol])))

    def parse(self, words):
        """Returns the most likely `Tree` of a list of str, or None where the grammar has none."""
        if not words:
            return None
        count, size = len(words), len(self._symbols)
        chart = np.full([count, count + 1, size], -np.inf, np.float32)
        alive = np.zeros([count, count + 1, size], bool)
        ids = self._ids_of(set(words))
        for place, word in enumerate(words):
            self._fill_word(chart[place, place + 1], ids[word], PUNCTUATION.get(word))
            alive[place, place + 1] = np.isfinite(chart[place, place + 1])
        for length in range(2, count + 1):
            for start in range(count - length + 1):
                self._fill(chart, alive, start, start + length)
        scores = chart[0, count] + self._roots
        if np.isneginf(scores.max()):
            return None
        [tree] = self._build(chart, words, 0, count, int(scores.argmax()))
        return tree

    def _fill_word(self, cell, word_id, mark):
        """Puts log P of the symbols that can be a word, or a mark of its own tag, into its cell."""
        counts, all_ = self._emissions.get(word_id, {}), self._tag_counts.total()
        for tag, tag_count in self._tag_counts.items():
            seen = counts.get(tag, 0)
            fits = tag == mark if mark else tag not in PUNCTUATION.values()
            if fits and (seen or sum(counts.values()) < _SEEN_OFTEN):
                score = np.log((seen + _TAG_PRIOR * tag_count / all_) / tag_count)
                for symbol, share in self._words_of_tag[tag]:
                    cell[symbol] = share + score

    def _fill(self, chart, alive, start, end):
        """Finds the best score of every symbol over words start to end."""
        left_lives = alive[start, start + 1 : end].any(axis=0)[self._lefts]
        right_lives = alive[start + 1 : end, end].any(axis=0)[self._rights]
        useful = np.flatnonzero(left_lives & right_lives)
        if not len(useful):
            return
        scores = np.full(len(useful), -np.inf, np.float32)
        for split in range(start + 1, end):
            lefts, rights = chart[start, split], chart[split, end]
            np.maximum(
                scores, lefts[self._lefts[useful]] + rights[self._rights[useful]], out=scores
            )
        scores += self._weights[useful]
        parents, first = np.unique(self._parents[useful], return_index=True)
        best = np.maximum.reduceat(scores, first)
        chart[start, end, parents], alive[start, end, parents] = best, best > -np.inf

    def _build(self, chart, words, start, end, symbol):
        """Returns the trees under a symbol over words start to end, as a list."""
        name = self._symbols[symbol]
        if end == start + 1:
            children = [words[start]]
        else:
            rules = np.flatnonzero(self._parents == symbol)
            scores = (
                chart[start, start + 1 : end][:, self._lefts[rules]]
                + chart[start + 1 : end, end][:, self._rights[rules]]
                + self._weights[rules]
            )
            split, rule = np.unravel_index(scores.argmax(), scores.shape)
            split, rule = start + 1 + int(split), rules[rule]
            children = self._build(chart, words, start, split, self._lefts[rule])
            children += self._build(chart, words, split, end, self._rights[rule])
        if _PART in name[1:]:
            return children
        for label in reversed(name.split(_ANCESTOR)[0].split(_CHAIN)):
            children = [Tree(label, tuple(children))]
        return children


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("train", help="trees to read the grammar off")
    parser.add_argument("test", help="trees to score it on")
    parser.add_argument(
        "--vertical", type=int, default=1, choices=(1, 2), help="2: symbols know their parent"
    )
    parser.add_argument("--horizontal", type=int, help="sisters remembered; all if not given")
    parser.add_argument("--longest", type=int, help="words; longer sentences are left out")
    parser.add_argument("--share", type=float, default=1.0, help="of the training trees, in order")
    options = parser.parse_args(arguments)
    train, test = read_treebank(options.train), read_treebank(options.test)
    train = train[: max(1, round(options.share * len(train)))]
    if options.longest:
        test = [tree for tree in test if len(tree.words()) <= options.longest]
    started = time.monotonic()
    grammar = Grammar(train, options.vertical, options.horizontal)
    found = [grammar.parse(tree.words()) for tree in test]
    seconds = round(time.monotonic() - started, 1)
    summaries = {name: one.rounded() for name, one in score_trees(test, found).items()}
    print(json.dumps(summaries | {"seconds": seconds}))


if __name__ == "__main__":
    sys.exit(main())
