"""Constituency parsing: words in, trees out, all in one graph (paper, section 6.3).

Start with `Parser`. Its search can only find trees over the sentence's words, by the automaton in
`parse_constraints.py`. `score_parses` scores parses by EVALB's rules.
"""

import functools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import tensorflow as tf
from absl import logging

from t2t_keras.data.base_tokenizer import blank_to_empty, valid_utf8
from t2t_keras.data.texts import as_list, as_strings
from t2t_keras.data.treebank import NORMALIZED_TAG, Tree, as_trees, parse_tree
from t2t_keras.errors import InputError
from t2t_keras.evaluation.bracketing import error_warning, score_trees
from t2t_keras.settings import documented
from t2t_keras.tasks.parse_constraints import BracketAutomaton, ConstrainedModel
from t2t_keras.tasks.requests import TEXT, RequestKind, ranked
from t2t_keras.tasks.search import SearchPredictor
from t2t_keras.tasks.search_settings import MIN_EXTRA_TOKENS, ParserSettings
from t2t_keras.tasks.text_io import append_end
from t2t_keras.types import Texts


class Parse(NamedTuple):
    """One parse of one sentence.

    Attributes:
        text: the tree on one line, `(S (NP (PRP It)) (VP (VBZ works)))`; empty if there is no
            parse.
        score: log P / length penalty: higher is better; -inf if there are no more parses.
    """

    text: str
    score: float


class Parses(NamedTuple):
    """The parses of a batch, as tensors."""

    texts: tf.Tensor  # string [batch, n_best], best first
    scores: tf.Tensor  # float32 [batch, n_best]; -inf if a sentence has no further parse


def _best(parser, text):
    parsed = parser.parse(text)
    return {"tree": parsed.texts[:, 0], "score": parsed.scores[:, 0]}


def _n_best(parser, text):
    parsed = parser.parse(text, parser.settings.beam_size)
    return {"trees": parsed.texts, "scores": parsed.scores}


_ALL = RequestKind(_n_best, (TEXT,), (), "trees", "scores", searches=True)
_BEST = RequestKind(_best, (TEXT,), (), "tree", "score", ranking=_ALL, searches=True)
REQUESTS = {"serving_default": _BEST, "n_best": ranked(_ALL)}
"""{name: `RequestKind`}, those of `Parser.requests`."""


@functools.partial(documented, settings=ParserSettings)
class Parser(SearchPredictor):
    """Parses sentences with a model and a tokenizer of trees.

    A sentence consists of words separated by spaces, `It works .`, as in a treebank. If
    `constrained`, the search finds only trees over exactly these words: see `BracketAutomaton`.
    Round brackets in words become -LRB- and -RRB-, as in treebanks. Words beyond `max_words` are
    attached under the outermost bracket. The parse of a sentence without words is empty. The Python
    methods run the same graph that is exported.

    Args:
        model: `Transformer`, or a model with its `encode`, `initial_state`, `step`, `reorder`,
            `max_length`.
        tokenizer: `TreeTokenizer`.
        **settings: see below, such as beam_size=4. They are also attributes. Like the model they
            may be replaced; the next call then traces new graphs.

    Call arguments:
        sentences: str each, words separated by spaces, in the forms of `data.texts.as_list`; or a
            list of lists of words.

    Raises:
        InputError: if a setting is out of range, or the vocabulary sizes of model and tokenizer
            differ. In a call: if sentences is a single string, an element is not a sentence, or a
            word is empty or contains a space.

    Example:
        >>> from t2t_keras.data.tree_tokenizer import TreeTokenizer
        >>> from t2t_keras.data.treebank import parse_tree
        >>> trees = [parse_tree("(S (NP (PRP It)) (VP (VBZ works)) (. .))")]
        >>> tokenizer = TreeTokenizer.train(trees, vocab_size=None)
        >>> model = t2t.Transformer(t2t.TransformerConfig.tiny(tokenizer.vocab_size))
        >>> [text] = t2t.Parser(model, tokenizer, beam_size=2)(["It works ."])
        >>> parse_tree(text).words()  # a tree over these words, trained or not
        ['It', 'works', '.']
    """

    task = "parsing"
    settings_type = ParserSettings
    requests = REQUESTS

    @property
    def max_words(self) -> int:
        """The number of words of a sentence that are parsed; the others are attached."""
        longest, model_length = self.settings.max_source_length - 1, self.model.max_length
        if not model_length:
            return longest
        return min(longest, (model_length - MIN_EXTRA_TOKENS) // self._tokens_of_a_word)

    @property
    def _tokens_of_a_word(self):
        return 2 if self.tokenizer.copy_words else 1

    def __call__(self, sentences: Texts | list[list[str]]) -> list[str]:
        """Returns the best parse of each sentence, one tree on a line each."""
        return [best.text for [best] in self.n_best(sentences, 1)]

    @staticmethod
    def as_list(texts: Texts | list[list[str]]) -> list[bytes]:
        if isinstance(texts, list | tuple):
            texts = [_as_line(f"sentences[{i}]", sentence) for i, sentence in enumerate(texts)]
        return as_list(texts, "sentences")

    def trees(self, sentences: Texts | list[list[str]]) -> list[Tree | None]:
        """Returns the best parse of each sentence as a `Tree`; None if there is none."""
        return [parse_tree(text) for text in self(sentences)]

    def n_best(self, sentences: Texts | list[list[str]], n: int | None = None) -> list[list[Parse]]:
        """Returns the n best parses of each sentence, best first; n: None for beam_size.

        A score of -inf marks a missing parse.

        Raises:
            InputError: if n is out of range, or as in a call.
        """
        rows, _ = self.best_rows(n, text=tf.constant(self.as_list(sentences), tf.string))
        return [[Parse(*pair) for pair in row] for row in rows]

    def parse(self, texts: tf.Tensor, n_best: int = 1) -> Parses:
        """Parses texts, string [batch], words separated by spaces, inside a graph.

        Args: n_best, int up to beam_size.
        """
        words = _words(texts)  # [batch, (words)]
        kept = words[:, : self.max_words]
        source_ids = self._source_ids(kept)
        automaton = self._automaton(kept, source_ids)
        hypotheses = self._search(source_ids, automaton, n_best)
        if self.settings.constrained:
            trees = self._bracketed(hypotheses.ids, words)
        else:
            valid, symbols = automaton.accepts(hypotheses.ids)
            trees = tf.where(valid, self._bracketed(symbols, words), "")
        # A sentence without words has an empty tree.
        return Parses(tf.where(automaton.counts[:, tf.newaxis] > 0, trees, ""), hypotheses.scores)

    def saved_call(self, text: tf.Tensor) -> dict:
        return self.parse(text)._asdict()

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the source ids of texts string [batch]: int32 [batch, source]."""
        return self._source_ids(_words(texts)[:, : self.max_words])

    def _source_ids(self, words):
        ids = self.tokenizer.encode(tf.strings.reduce_join(words, axis=1, separator=" "))
        return append_end(ids, self.tokenizer.eos_id)

    def _automaton(self, words, source_ids):
        settings, counts = self.settings, tf.cast(words.row_lengths(), tf.int32)
        max_lengths = self._tokens_of_a_word * counts + 1 + settings.max_extra_tokens
        if self.model.max_length:
            max_lengths = tf.minimum(max_lengths, self.model.max_length)
        tags, free_tags = self.tokenizer.allowed_tags(words)
        return BracketAutomaton(
            self.tokenizer,
            counts,
            source_ids,
            tags if settings.constrained else tf.zeros_like(tags),
            free_tags if settings.constrained else tf.ones_like(free_tags),
            max_lengths,
            settings.max_depth,
            settings.max_opened if settings.constrained else settings.max_depth,
        )

    def _search(self, source_ids, automaton, n_best):
        settings, model = self.settings, self.model
        if settings.constrained:
            model = ConstrainedModel(model, automaton)
        options = {"n_best": n_best, "length_penalty": settings.length_penalty}
        return self.find(model, source_ids, automaton.max_lengths, **options)

    def _bracketed(self, ids, words):
        """Returns trees in bracket notation, string [batch, n_best].

        Args:
            ids: int32 [batch, n_best, length], linearized trees, then the end and padding.
            words: RaggedTensor string [batch, (words)], also those beyond `max_words`.
        """
        first_closer, first_tag = self.tokenizer.first_closer, self.tokenizer.first_tag
        takes = (ids >= first_tag) & (ids < self.tokenizer.target_size)
        index = tf.maximum(tf.cumsum(tf.cast(takes, tf.int32), axis=2) - 1, 0)
        # One more column, so that the gather is valid for sentences without words.
        padded = tf.pad(words.to_tensor(""), [[0, 0], [0, 1]])
        index = tf.minimum(index, tf.shape(padded)[1] - 1)
        word = tf.gather(padded, index, axis=1, batch_dims=1)  # [batch, n_best, length]
        marks = self.tokenizer.punctuation_tags(word)
        token = self.tokenizer.pieces(ids)
        tag = tf.where((token == NORMALIZED_TAG) & (marks != ""), marks, token)
        shown = tf.where(takes, tf.strings.join([" (", tag, " ", word, ")"]), "")
        closes = (ids >= first_closer) & (ids < first_tag)
        opens = (ids >= self.tokenizer.first_opener) & (ids < first_closer)
        shown = tf.where(closes, ")", tf.where(opens, tf.strings.join([" ", token]), shown))
        text = tf.strings.regex_replace(tf.strings.reduce_join(shown, axis=2), "^ ", "")
        rest = words[:, self.max_words :]
        marks = self.tokenizer.punctuation_tags(rest.values)
        tag = tf.where(marks != "", marks, NORMALIZED_TAG)
        rest = rest.with_values(tf.strings.join([" (", tag, " ", rest.values, ")"]))
        rest = tf.strings.reduce_join(rest, axis=1)[:, tf.newaxis]
        inside = tf.strings.regex_replace(text, r"\)$", "")
        return tf.where((text != "") & (rest != ""), inside + rest + ")", text)


def _words(texts):
    """Splits sentences into words as trees write them, RaggedTensor string [batch, (words)]."""
    texts = blank_to_empty(valid_utf8(texts))
    for bracket, name in (("(", "-LRB-"), (")", "-RRB-")):
        texts = tf.strings.regex_replace(texts, rf"\{bracket}", name)
    return tf.strings.split(texts)


def _as_line(name, sentence):
    if not isinstance(sentence, list | tuple):
        return sentence
    words = as_strings(sentence, name)
    for i, word in enumerate(words):
        if not re.fullmatch(r"\S+", word, re.ASCII):
            raise InputError(f"{name}[{i}] is {word!r}: give words without white space.")
    return " ".join(words)


def score_parses(
    parses: Sequence[str], gold: Sequence[Tree | None], parameters: Any = None
) -> dict:
    """Scores parses against the trees of a treebank, by EVALB's rules.

    Punctuation is left out: the words that the gold trees tag as punctuation.

    Args:
        parses: one tree on a line each, empty if there is no parse.
        gold: trees of `read_treebank` with `keep_empty`.
        parameters: as for `bracketing.score_trees`.

    Returns:
        Dict of float, in percent: f1; f1_of_all, which counts a sentence without a parse as one
            without brackets, while EVALB skips it; exact; and well_formed, sentences that have a
            parse, or no words. Also `errors`, the number of sentences whose words differ (no figure
            includes them), and "all" and "length_40", the dicts of `bracketing.score_trees`.

    Raises:
        InputError: as `bracketing.score_trees`, or if a parse is not the text of a tree.
    """
    trees = [parse_tree(text) for text in as_strings(parses, "parses")]
    gold = as_trees(gold, "gold")
    score = functools.partial(score_trees, parameters=parameters, gold_punctuation=True)
    summaries = score(gold, trees)
    if warning := error_warning(summaries["all"]):
        logging.warning("%s", warning)
    pairs = list(zip(trees, gold, strict=True))
    without_brackets = [tree or Tree("", tuple(right.leaves())) for tree, right in pairs]
    well_formed = sum(tree is not None or not right.words() for tree, right in pairs)
    return {
        "f1": summaries["all"].f1,
        "errors": summaries["all"].errors,
        "f1_of_all": score(gold, without_brackets)["all"].f1,
        "exact": summaries["all"].complete_match,
        "well_formed": 100.0 * well_formed / len(trees),
        **{name: summary.rounded() for name, summary in summaries.items()},
    }
