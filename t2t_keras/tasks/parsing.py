"""Constituency parsing: words in, trees out, all in one graph (paper, section 6.3)."""

import re
from typing import NamedTuple

import tensorflow as tf

from t2t_keras.data.treebank import NORMALIZED_TAG, parse_tree
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.graphs import graph_function
from t2t_keras.tasks.brackets import LEAST_TOKENS, BracketAutomaton
from t2t_keras.tasks.reading import as_str, as_tensor, require_one_vocabulary

_TEXTS = tf.TensorSpec([None], tf.string)


class Parse(NamedTuple):
    """One parse of one sentence.

    Attributes:
        text: str, the tree on one line, `(S (NP (PRP It)) (VP (VBZ works)))`; empty where there is
            none.
        score: float, log P / length penalty: higher is better; -inf stands where there are no more
            parses.
    """

    text: str
    score: float


class Parses(NamedTuple):
    """The parses of a batch as the graph has them.

    Attributes:
        texts: string [batch, n_best], best first.
        scores: float32 [batch, n_best]; -inf marks that a sentence has no further parse.
    """

    texts: tf.Tensor
    scores: tf.Tensor


class Parser(tf.Module):
    """Parses sentences with a model and a tokenizer of trees.

    A sentence is its words with spaces between them, `It works .`, as a treebank cuts them. The
    search can only find trees over exactly these words, whatever the weights: see
    `BracketAutomaton`. Round brackets in words become -LRB- and -RRB-, as in treebanks. Words
    beyond `max_source_length` hang under the outermost bracket. A sentence without a word has the
    empty text for a parse. The graph that the methods for Python run is the one that is exported.

    Args:
        model: `Transformer`, or whatever has its `encode`, `initial_state`, `step`, `reorder`,
            `max_length`.
        tokenizer: `TreeTokenizer`.
        beam_size: live hypotheses of a sentence.
        length_penalty: α of the score.
        extra_length: how many tokens a linearized tree may have more than its sentence, echoes not
            counted.
        max_source_length: tokens of a sentence that the model reads, its end included.
        max_depth: brackets open at a time.
        max_opened: brackets that open one right after the other.
        constrained: False lets the search find anything; what is no tree over the sentence's words
            gives the empty text. Only to see what the rules are good for.

    Raises:
        InputError: if a setting is out of its range, or model and tokenizer do not belong together.

    Example:
        >>> parser = Parser(model, tokenizer)
        >>> parser(["It works ."])
        ['(S (NP (PRP It)) (VP (VBZ works)) (. .))']
    """

    def __init__(
        self,
        model,
        tokenizer,
        beam_size=21,
        length_penalty=0.3,
        extra_length=300,
        max_source_length=512,
        max_depth=64,
        max_opened=8,
        constrained=True,
    ):
        super().__init__(name="parser")
        for name, value, least in (
            ("beam_size", beam_size, 1),
            ("extra_length", extra_length, LEAST_TOKENS),
            ("max_source_length", max_source_length, 2),
            ("max_depth", max_depth, 1),
            ("max_opened", max_opened, 1),
        ):
            require_whole_number(name, value, least)
        require_one_vocabulary(model, tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.extra_length = extra_length
        self._tokens_of_a_word = 2 if tokenizer.copy_words else 1
        self.max_words = max_source_length - 1
        if model.max_length:
            longest = (model.max_length - LEAST_TOKENS) // self._tokens_of_a_word
            self.max_words = min(self.max_words, longest)
        self.max_depth = max_depth
        self.max_opened = max_opened
        self.constrained = constrained

    def __call__(self, sentences):
        """Returns the best parse of each sentence.

        Args:
            sentences: list of str, words with spaces between them, or of lists of words.

        Returns:
            List of str, trees on one line each.

        Raises:
            InputError: if sentences is a single string, or a word holds a space or nothing.
        """
        return [as_str(text) for (text,) in self._best(_as_tensor(sentences)).texts.numpy()]

    def trees(self, sentences):
        """Returns the best parse of each sentence as a `Tree`; None for one without a word."""
        return [parse_tree(text) for text in self(sentences)]

    def n_best(self, sentences, n=None):
        """Returns the best parses of each sentence, best first.

        Args:
            sentences: as for a call.
            n: int up to beam_size, the parses wanted of each sentence; beam_size if None.

        Returns:
            A list of n `Parse` for each sentence; a score of -inf marks that there are no more.

        Raises:
            InputError: if n is out of its range, or sentences no good.
        """
        n = self.beam_size if n is None else n
        if not 1 <= n <= self.beam_size:
            raise InputError(f"n is {n}: give 1 to beam_size, which is {self.beam_size}.")
        # The search for one stops earlier, and finds the same one.
        found = (self._best if n == 1 else self._beam)(_as_tensor(sentences))
        return [
            [Parse(as_str(text), float(score)) for text, score in zip(*row, strict=True)]
            for row in zip(found.texts[:, :n].numpy(), found.scores[:, :n].numpy(), strict=True)
        ]

    @graph_function(input_signature=[_TEXTS])
    def _best(self, texts):
        return self.parse(texts)

    @graph_function(input_signature=[_TEXTS])
    def _beam(self, texts):
        return self.parse(texts, self.beam_size)

    def parse(self, texts, n_best=1):
        """Parses inside a graph.

        Args:
            texts: string [batch], words with spaces between them.
            n_best: int up to beam_size.

        Returns:
            `Parses`.
        """
        words = _words(texts)  # [batch, (words)]
        read = words[:, : self.max_words]
        source_ids = self._source_ids(read)
        automaton = self._automaton(read, source_ids)
        hypotheses = self._search(source_ids, automaton, n_best)
        if self.constrained:
            trees = self._bracketed(hypotheses.ids, words)
        else:
            good, symbols = automaton.follow(hypotheses.ids)
            trees = tf.where(good, self._bracketed(symbols, words), "")
        # Without a word, the rules have a search end at once.
        return Parses(tf.where(automaton.counts[:, tf.newaxis] > 0, trees, ""), hypotheses.scores)

    def encode(self, texts):
        """Returns the model's source ids of texts string [batch]: int32 [batch, source]."""
        return self._source_ids(_words(texts)[:, : self.max_words])

    def _source_ids(self, words):
        ids = self.tokenizer.encode(tf.strings.reduce_join(words, axis=1, separator=" "))
        ids = tf.concat([ids, tf.fill([ids.nrows(), 1], self.tokenizer.eos_id)], axis=1)
        # Not even a batch of nothing has sequences of length 0.
        return ids.to_tensor(shape=tf.maximum(ids.bounding_shape(), [0, 1]))

    def _automaton(self, words, source_ids):
        counts = tf.cast(words.row_lengths(), tf.int32)
        max_lengths = self._tokens_of_a_word * counts + 1 + self.extra_length
        if self.model.max_length:
            max_lengths = tf.minimum(max_lengths, self.model.max_length)
        tags, free_tags = self.tokenizer.allowed_tags(words)
        return BracketAutomaton(
            self.tokenizer,
            counts,
            source_ids,
            tags if self.constrained else tf.zeros_like(tags),
            free_tags if self.constrained else tf.ones_like(free_tags),
            max_lengths,
            self.max_depth,
            self.max_opened if self.constrained else self.max_depth,
        )

    def _search(self, source_ids, automaton, n_best):
        batch = tf.shape(source_ids)[0]
        state = self.model.initial_state(self.model.encode(source_ids), self.beam_size)
        reorder = self.model.reorder
        if self.constrained:
            state = automaton.constrained_state(state, self.beam_size)
            reorder = automaton.reordering(reorder)

        def search(step):
            return beam_search(
                automaton.constrain(step) if self.constrained else step,
                state,
                start_ids=tf.fill([batch], self.tokenizer.bos_id),
                end_id=self.tokenizer.eos_id,
                beam_size=self.beam_size,
                max_lengths=automaton.max_lengths,
                length_penalty=self.length_penalty,
                n_best=n_best,
                reorder=reorder,
            )

        return self.model.for_rows(batch * self.beam_size, search)

    def _bracketed(self, ids, words):
        """Writes trees in brackets.

        Args:
            ids: int32 [batch, n_best, length], linearized trees, the end and padding behind them.
            words: RaggedTensor string [batch, (words)]; what a tree has no token for hangs under
                its outermost bracket.

        Returns:
            string [batch, n_best].
        """
        first_closer, first_tag = self.tokenizer.first_closer, self.tokenizer.first_tag
        takes = (ids >= first_tag) & (ids < self.tokenizer.target_size)
        place = tf.maximum(tf.cumsum(tf.cast(takes, tf.int32), axis=2) - 1, 0)
        # One column more, so that there is something to gather from where nobody has a word.
        padded = tf.pad(words.to_tensor(""), [[0, 0], [0, 1]])
        place = tf.minimum(place, tf.shape(padded)[1] - 1)
        word = tf.gather(padded, place, axis=1, batch_dims=1)  # [batch, n_best, length]
        marks = self.tokenizer.punctuation_tags(word)
        piece = self.tokenizer.pieces(ids)
        tag = tf.where((piece == NORMALIZED_TAG) & (marks != ""), marks, piece)
        shown = tf.where(takes, tf.strings.join([" (", tag, " ", word, ")"]), "")
        closes = (ids >= first_closer) & (ids < first_tag)
        opens = (ids >= self.tokenizer.first_opener) & (ids < first_closer)
        shown = tf.where(closes, ")", tf.where(opens, tf.strings.join([" ", piece]), shown))
        text = tf.strings.regex_replace(tf.strings.reduce_join(shown, axis=2), "^ ", "")
        rest = words[:, self.max_words :]
        marks = self.tokenizer.punctuation_tags(rest.values)
        tag = tf.where(marks != "", marks, NORMALIZED_TAG)
        rest = rest.with_values(tf.strings.join([" (", tag, " ", rest.values, ")"]))
        rest = tf.strings.reduce_join(rest, axis=1)[:, tf.newaxis]
        inside = tf.strings.regex_replace(text, r"\)$", "")
        return tf.where((text != "") & (rest != ""), inside + rest + ")", text)


def _words(texts):
    """Cuts sentences into words that can stand in a tree, RaggedTensor string [batch, (words)]."""
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
    for bracket, name in (("(", "-LRB-"), (")", "-RRB-")):
        texts = tf.strings.regex_replace(texts, rf"\{bracket}", name)
    return tf.strings.split(texts)


def _as_tensor(sentences):
    if isinstance(sentences, str | bytes):
        raise InputError(f"sentences is the string {sentences!r}: give a list of sentences.")
    return as_tensor([_as_line(sentence) for sentence in sentences])


def _as_line(sentence):
    if isinstance(sentence, str | bytes):
        return sentence
    words = [as_str(word) if isinstance(word, bytes) else word for word in sentence]
    for word in words:
        if not re.fullmatch(r"\S+", word, re.ASCII):
            raise InputError(f"a word of a sentence is {word!r}: give words without space.")
    return " ".join(words)
