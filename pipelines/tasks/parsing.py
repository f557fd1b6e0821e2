"""Constituency parsing: a treebank, whole words, labelled bracketing."""

from pipelines.tasks.sequences import SequenceTask
from t2t_keras.data.tokenizers import load_tokenizer
from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.data.treebank import (
    TrainingTrees,
    TreeAugmentation,
    TreebankCorpus,
    normalize_tree,
    read_treebank,
)
from t2t_keras.errors import InputError
from t2t_keras.tasks.parsing import Parser, score_parses


class Task(SequenceTask):
    """Parsing as the binaries see it; the methods are those of `translation.Task`."""

    metric = "f1"

    def check(self):
        data = self._config.data
        self.make_corpus()
        if not 0 < data.train_share <= 1:
            raise InputError(
                f"data.train_share is {data.train_share}: give a share above 0 up to 1."
            )
        if data.copies < 1:
            raise InputError(f"data.copies is {data.copies}: give at least 1.")
        if data.tags not in ("kept", "normalized"):
            raise InputError(f"data.tags is {data.tags!r}: give 'kept' or 'normalized'.")

    def make_corpus(self):
        data = self._config.data
        return TreebankCorpus(data.folder, data.tags, data.echo)

    def train_tokenizer(self, corpus):
        trees, data = self._training_trees(corpus) + self._parsed_trees(), self._config.data
        return TreeTokenizer.train(trees, self._config.model.vocab_size, data.tags, data.echo)

    def load_tokenizer(self, directory):
        return load_tokenizer(directory)

    def training_corpus(self, corpus, tokenizer):
        data = self._config.data
        trees, parsed = (
            [normalize_tree(tree, data.tags) for tree in trees]
            for trees in (self._training_trees(corpus), self._parsed_trees())
        )
        augmentation = TreeAugmentation(trees, tokenizer, data.exchange, data.class_weight)
        return TrainingTrees(
            corpus, data.train_split, augmentation, data.copies, self._config.train.seed, parsed
        )

    def training_tokenizer(self, tokenizer):
        return tokenizer

    def _training_trees(self, corpus):
        share = self._config.data.train_share
        trees = corpus.trees(self._config.data.train_split)
        return [trees[int(place / share)] for place in range(round(share * len(trees)))]

    def _parsed_trees(self):
        path = self._config.data.parsed_trees
        return read_treebank(path) if path else []

    def make_predictor(self, model, tokenizer):
        return Parser(model, tokenizer, **self._config.decode)

    def questions(self, split, limit=None):
        return _questions(self.make_corpus().trees(split)[:limit])

    def questions_of_files(self, source, reference):
        if source or not reference:
            raise InputError("give the trees as --reference; the sentences are their words.")
        return _questions(read_treebank(reference))

    def score(self, outputs, references, **_):
        return score_parses(outputs, references)


def _questions(trees):
    return [" ".join(tree.words()) for tree in trees], trees
