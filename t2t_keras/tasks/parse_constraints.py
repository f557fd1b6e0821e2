"""Constrained decoding of linearized trees: an automaton inside the beam search's graph.

The automaton allows a closing bracket only if a bracket is open, each word once and in order,
and the end only after a complete tree. Three limits apply: depth, brackets opened in a row, and
tokens left. A bracket may open only if the tokens left suffice for all open brackets and all
remaining words. With any weights every hypothesis is therefore a tree over the sentence's words.

Symbols are the ids of a `TreeTokenizer` below its `target_size`. The symbol `target_size` is the
echo (copy) of any word. Start with `ConstrainedModel.step`.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.decoding.hypotheses import NEG_INF, gather_beams


class ParserState(NamedTuple):
    """The automaton's state of each hypothesis."""

    left: tf.Tensor  # int32 [batch, beams], tokens left until the maximum length, including the end
    words: tf.Tensor  # int32 [batch, beams], words not taken yet
    echo: tf.Tensor  # int32 [batch, beams], 1 if the echo of the last word must follow, else 0
    opened: tf.Tensor  # int32 [batch, beams], brackets opened in a row
    depth: tf.Tensor  # int32 [batch, beams], open brackets
    labels: tf.Tensor  # int32 [batch, beams, max_depth], indices of their labels, outermost first


class Constrained(NamedTuple):
    """The state of a `ConstrainedModel`."""

    words: dict  # the tensors [batch, ...] of a `BracketAutomaton`, by name
    parser: ParserState
    state: Any  # state of the model inside


@dataclasses.dataclass(frozen=True)
class BracketAutomaton:
    """The automaton for one batch of sentences."""

    tokenizer: TreeTokenizer
    counts: tf.Tensor  # int32 [batch], words of each sentence
    word_ids: tf.Tensor  # int32 [batch, longest + 1], their ids
    # int32 [batch, longest + 1], the only valid tag symbol of each word, 0 for any of `free_tags`,
    # -1 for any tag
    tags: tf.Tensor
    free_tags: tf.Tensor  # bool [target_size + 1]
    # int32 [batch], maximum tokens of each tree, including the end; at least one token for each
    # word (two with echoes) and `search_settings.MIN_EXTRA_TOKENS`
    max_lengths: tf.Tensor
    max_depth: int  # maximum number of open brackets
    max_opened: int  # maximum number of brackets opened in a row

    @property
    def _echo(self):
        """The symbol of all echoes."""
        return self.tokenizer.target_size

    def initial_state(self, beams):
        """Returns the `ParserState` of empty hypotheses."""
        batch = tf.size(self.counts)
        zeros = tf.zeros([batch, beams], tf.int32)
        return ParserState(
            left=zeros + self.max_lengths[:, tf.newaxis],
            words=zeros + self.counts[:, tf.newaxis],
            echo=zeros,
            opened=zeros,
            depth=zeros,
            labels=tf.zeros([batch, beams, self.max_depth], tf.int32),
        )

    def advance(self, symbols, old):
        """Returns the `ParserState` after one more symbol, int32 [batch, beams].

        The start token changes nothing. An invalid symbol gives a meaningless state but no error,
        since a search also steps hypotheses of probability 0.
        """
        label, *kinds = self._kinds(symbols)
        is_new = tf.range(self.max_depth) == old.depth[..., tf.newaxis]
        is_new &= kinds[0][..., tf.newaxis]
        labels = tf.where(is_new, label[..., tf.newaxis], old.labels)
        opens, closes, takes, echoes = (tf.cast(kind, tf.int32) for kind in kinds)
        return ParserState(
            left=old.left - opens - closes - takes - echoes,
            words=tf.maximum(old.words - takes, 0),
            echo=takes if self.tokenizer.copy_words else old.echo,
            opened=(old.opened + 1) * opens,
            depth=tf.clip_by_value(old.depth + opens - closes, 0, self.max_depth),
            labels=labels,
        )

    def valid_symbols(self, state):
        """Returns which symbols may come next, bool [batch, beams, target_size + 1]."""
        tokens_of_a_word = 2 if self.tokenizer.copy_words else 1
        to_finish = tokens_of_a_word * state.words + state.depth + 1
        echo, inside, first = (
            state.echo > 0,
            state.depth > 0,
            state.words == self.counts[:, tf.newaxis],
        )  # each [batch, beams]
        take = ~echo & (state.words > 0) & inside
        open_ = (
            ~echo
            & (state.words > 0)
            & (inside | first)
            & (state.depth < self.max_depth)
            & (state.opened < self.max_opened)
            & (state.left >= to_finish + 2)  # one token to open the bracket, one to close it
        )
        # A bracket is not empty unless it was just opened; the outermost closes after all words.
        close = ~echo & inside & (state.opened == 0) & ((state.depth > 1) | (state.words == 0))
        end = ~(echo | take | open_ | close)

        symbols = tf.range(self._echo + 1)
        label, opens, closes, takes, echoes = self._kinds(symbols)
        depth = tf.maximum(state.depth - 1, 0)
        innermost = tf.gather(state.labels, depth, axis=2, batch_dims=2)  # [batch, beams]
        return (
            (open_[..., tf.newaxis] & opens)
            | (close[..., tf.newaxis] & closes & (label == innermost[..., tf.newaxis]))
            | (take[..., tf.newaxis] & takes & self._tags_of_next_word(state))
            | (echo[..., tf.newaxis] & echoes)
            | (end[..., tf.newaxis] & (symbols == self.tokenizer.eos_id))
        )

    def _tags_of_next_word(self, state):
        """Returns the valid tags of the next word, bool [batch, beams, target_size + 1]."""
        tag = self._of_word(self.tags, self.counts[:, tf.newaxis] - state.words)[..., tf.newaxis]
        own = tf.range(self._echo + 1) == tag
        return tf.where(tag > 0, own, self.free_tags | (tag < 0))

    def _of_word(self, values, indices):
        """Gathers values [batch, longest + 1] of the words with these indices, [batch, beams]."""
        indices = tf.clip_by_value(indices, 0, tf.shape(values)[1] - 1)
        return tf.gather(values, indices, axis=1, batch_dims=1)

    def last_word_ids(self, state):
        """Returns the id of the last word taken, int32 [batch, beams]."""
        return self._of_word(self.word_ids, self.counts[:, tf.newaxis] - state.words - 1)

    def _kinds(self, symbols):
        """Returns the label index of symbols, and which open, close, take a word, or echo it."""
        vocabulary = self.tokenizer
        opens = (symbols >= vocabulary.first_opener) & (symbols < vocabulary.first_closer)
        closes = (symbols >= vocabulary.first_closer) & (symbols < vocabulary.first_tag)
        takes = (symbols >= vocabulary.first_tag) & (symbols < vocabulary.target_size)
        label = symbols - tf.where(opens, vocabulary.first_opener, vocabulary.first_closer)
        return label, opens, closes, takes, symbols == self._echo

    def accepts(self, ids):
        """Tests which sequences are valid trees.

        Args:
            ids: int32 [batch, beams, length]; tokens after the end are ignored.

        Returns:
            bool [batch, beams], and the sequences as symbols, int32 [batch, beams, length], 0 for
            ids that are not symbols.
        """
        ends = tf.cast(ids == self.tokenizer.eos_id, tf.int32)
        before_end = tf.cumsum(ends, axis=2, exclusive=True) == 0  # [batch, beams, length]
        length = tf.shape(ids)[2]

        def read(position, state, valid, symbols):
            token = ids[:, :, position]
            echo = tf.where(token == self.last_word_ids(state), self._echo, -1)
            symbol = tf.where(token < self._echo, token, -1)
            symbol = tf.where(state.echo > 0, echo, symbol)
            chosen = tf.one_hot(symbol, self._echo + 1, on_value=True, off_value=False)
            fits = tf.reduce_any(chosen & self.valid_symbols(state), axis=2)
            fits |= ~before_end[:, :, position]
            state = self.advance(symbol, state)
            symbols = symbols.write(position, tf.maximum(symbol, 0))
            return position + 1, state, valid & fits, symbols

        _, _, valid, symbols = tf.while_loop(
            lambda position, *_: position < length,
            read,
            (
                tf.constant(0),
                self.initial_state(ids.shape[1]),
                tf.reduce_any(ends > 0, axis=2),
                tf.TensorArray(tf.int32, size=length, element_shape=[None, ids.shape[1]]),
            ),
        )
        return valid, tf.transpose(symbols.stack(), [1, 2, 0])


class ConstrainedModel:
    """Wraps a `SearchableModel`, so that a search finds only trees of a `BracketAutomaton`.

    Its tokens are symbols; the logits of invalid ones are -inf.
    """

    def __init__(self, model, automaton):
        self.model = model
        self.automaton = automaton

    @property
    def max_length(self):
        return self.model.max_length

    def encode(self, source_ids):
        return self.model.encode(source_ids)

    def initial_state(self, memory, beams):
        names = ("counts", "word_ids", "tags", "max_lengths")
        words = {name: getattr(self.automaton, name) for name in names}
        parser = self.automaton.initial_state(beams)
        return Constrained(words, parser, self.model.initial_state(memory, beams))

    def step(self, symbols, old):
        # A search may drop finished sentences: the words are those of its state.
        rules = dataclasses.replace(self.automaton, **old.words)
        echo = rules.tokenizer.target_size
        ids = tf.where(symbols == echo, rules.last_word_ids(old.parser), symbols)
        parser = rules.advance(symbols, old.parser)
        logits, state = self.model.step(ids, old.state)
        logits = tf.cast(logits[..., :echo], tf.float32)
        # An echo is always the only valid symbol, so any finite logit gives probability 1.
        logits = tf.pad(logits, [[0, 0], [0, 0], [0, 1]])
        logits = tf.where(rules.valid_symbols(parser), logits, NEG_INF)
        return logits, Constrained(old.words, parser, state)

    def reorder(self, old, parents):
        state = self.model.reorder(old.state, parents)
        return Constrained(old.words, gather_beams(old.parser, parents), state)
