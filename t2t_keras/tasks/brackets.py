"""What may come next in a linearized tree: an automaton that a search's steps run through.

It opens before it closes, closes what is open, takes every word once and in order, and ends when
the tree is whole. Brackets are bounded in depth, in how many open at one place, and by the tokens
that are left: a bracket opens only if all that is open and every word to come still has its place.
So whatever the model says, each hypothesis becomes a tree over the sentence's words in time.

The automaton reads symbols: the ids of a `TreeTokenizer` below its `target_size`, and that number
itself for the echo of a word, whichever word it is.
"""

import dataclasses
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.decoding.state import IMPOSSIBLE, gather_beams

LEAST_TOKENS = 3
"""A tree has so many tokens more than its words: two of one bracket, and the end."""


class Brackets(NamedTuple):
    """Where each hypothesis stands.

    Attributes:
        left: int32 [batch, beams], tokens that it may still have, the end counted.
        words: int32 [batch, beams], words that it has not taken yet.
        echo: int32 [batch, beams], 1 if the echo of the word just taken must follow, else 0.
        opened: int32 [batch, beams], brackets opened since anything else.
        depth: int32 [batch, beams], brackets that are open.
        labels: int32 [batch, beams, depth bound], numbers of their labels, outermost first.
    """

    left: tf.Tensor
    words: tf.Tensor
    echo: tf.Tensor
    opened: tf.Tensor
    depth: tf.Tensor
    labels: tf.Tensor


class Words(NamedTuple):
    """What the rules know of each sentence; the fields of `BracketAutomaton` of these names."""

    counts: tf.Tensor
    word_ids: tf.Tensor
    tags: tf.Tensor
    max_lengths: tf.Tensor


class Constrained(NamedTuple):
    """The state of a step that keeps the rules.

    Attributes:
        words: `Words`, all tensors [batch, ...].
        brackets: `Brackets`.
        state: that of the step within.
    """

    words: Words
    brackets: Brackets
    state: Any


@dataclasses.dataclass(frozen=True)
class BracketAutomaton:
    """The rules of one batch of sentences.

    Args:
        tokenizer: `TreeTokenizer`.
        counts: int32 [batch], words of each sentence.
        word_ids: int32 [batch, longest + 1], their ids.
        tags: int32 [batch, longest + 1], the only symbol that may stand for each word, 0 for any of
            `free_tags`, -1 for any tag.
        free_tags: bool [target_size + 1].
        max_lengths: int32 [batch], the most tokens of each tree, the end counted; at least
            `LEAST_TOKENS` more than one for each word, or than two with echoes.
        max_depth: int, brackets open at a time.
        max_opened: int, brackets that open one right after the other.
    """

    tokenizer: TreeTokenizer
    counts: tf.Tensor
    word_ids: tf.Tensor
    tags: tf.Tensor
    free_tags: tf.Tensor
    max_lengths: tf.Tensor
    max_depth: int
    max_opened: int

    @property
    def _echo(self):
        """The symbol of all echoes."""
        return self.tokenizer.target_size

    def start(self, beams):
        """Returns the `Brackets` of hypotheses without a token."""
        batch = tf.size(self.counts)
        nothing = tf.zeros([batch, beams], tf.int32)
        return Brackets(
            left=nothing + self.max_lengths[:, tf.newaxis],
            words=nothing + self.counts[:, tf.newaxis],
            echo=nothing,
            opened=nothing,
            depth=nothing,
            labels=tf.zeros([batch, beams, self.max_depth], tf.int32),
        )

    def read(self, symbols, old):
        """Returns the `Brackets` after one more symbol, int32 [batch, beams].

        The start token changes none. A symbol that was not allowed gives a state without meaning,
        but never an error: a search also steps hypotheses that are out of the race.
        """
        kinds = self._kinds(symbols)
        labels = tf.where(
            (tf.range(self.max_depth) == old.depth[..., tf.newaxis]) & kinds.opens[..., tf.newaxis],
            kinds.label[..., tf.newaxis],
            old.labels,
        )
        opens, closes, takes, echoes = (tf.cast(kind, tf.int32) for kind in kinds[1:])
        return Brackets(
            left=old.left - opens - closes - takes - echoes,
            words=tf.maximum(old.words - takes, 0),
            echo=takes if self.tokenizer.copy_words else old.echo,
            opened=(old.opened + 1) * opens,
            depth=tf.clip_by_value(old.depth + opens - closes, 0, self.max_depth),
            labels=labels,
        )

    def allowed(self, state):
        """Says which symbols may come next, bool [batch, beams, target_size + 1]."""
        tokens_of_a_word = 2 if self.tokenizer.copy_words else 1
        to_finish = tokens_of_a_word * state.words + state.depth + 1
        echo, inside, first = (
            state.echo > 0,
            state.depth > 0,
            state.words == self.counts[:, tf.newaxis],
        )
        take = ~echo & (state.words > 0) & inside
        open_ = (
            ~echo
            & (state.words > 0)
            & (inside | first)
            & (state.depth < self.max_depth)
            & (state.opened < self.max_opened)
            & (state.left >= to_finish + 2)  # one for the bracket that opens, one to close it
        )
        # What is innermost holds something if it did not open just now; the outermost holds all.
        close = ~echo & inside & (state.opened == 0) & ((state.depth > 1) | (state.words == 0))
        end = ~(echo | take | open_ | close)

        symbols = tf.range(self._echo + 1)
        kinds = self._kinds(symbols)
        innermost = tf.gather(
            state.labels, tf.maximum(state.depth - 1, 0), axis=2, batch_dims=2
        )  # [batch, beams]
        return (
            (open_[..., tf.newaxis] & kinds.opens)
            | (close[..., tf.newaxis] & kinds.closes & (kinds.label == innermost[..., tf.newaxis]))
            | (take[..., tf.newaxis] & kinds.takes & self._tags_of_next_word(state))
            | (echo[..., tf.newaxis] & kinds.echoes)
            | (end[..., tf.newaxis] & (symbols == self.tokenizer.eos_id))
        )

    def _tags_of_next_word(self, state):
        """Says which tags may stand for it, bool [batch, beams, target_size + 1]."""
        tag = self._of_word(self.tags, self.counts[:, tf.newaxis] - state.words)[..., tf.newaxis]
        own = tf.range(self._echo + 1) == tag
        return tf.where(tag > 0, own, self.free_tags | (tag < 0))

    def _of_word(self, values, places):
        """Returns values [batch, longest + 1] of the words at places, [batch, beams]."""
        places = tf.clip_by_value(places, 0, tf.shape(values)[1] - 1)
        return tf.gather(values, places, axis=1, batch_dims=1)

    def _last_word_ids(self, state):
        """Returns the id of the word that was taken last, int32 [batch, beams]."""
        return self._of_word(self.word_ids, self.counts[:, tf.newaxis] - state.words - 1)

    def _kinds(self, symbols):
        vocabulary = self.tokenizer
        opens = (symbols >= vocabulary.first_opener) & (symbols < vocabulary.first_closer)
        closes = (symbols >= vocabulary.first_closer) & (symbols < vocabulary.first_tag)
        takes = (symbols >= vocabulary.first_tag) & (symbols < vocabulary.target_size)
        label = symbols - tf.where(opens, vocabulary.first_opener, vocabulary.first_closer)
        return _Kinds(label, opens, closes, takes, symbols == self._echo)

    def constrained_state(self, state, beams):
        """Returns the `Constrained` state of hypotheses without a token."""
        words = Words(self.counts, self.word_ids, self.tags, self.max_lengths)
        return Constrained(words, self.start(beams), state)

    def constrain(self, step):
        """Makes a step function keep the rules.

        Args:
            step: function (ids [batch, beams], state) → (logits [batch, beams, vocab], state).

        Returns:
            Function (symbols, `Constrained`) → (logits [batch, beams, target_size + 1],
            `Constrained`); the logits of what is not allowed are -inf.
        """

        def constrained(symbols, old):
            # A search may leave out sentences that are done: the words are those of the state.
            rules = dataclasses.replace(self, **old.words._asdict())
            ids = tf.where(symbols == self._echo, rules._last_word_ids(old.brackets), symbols)
            brackets = rules.read(symbols, old.brackets)
            logits, state = step(ids, old.state)
            logits = tf.cast(logits[..., : self._echo], tf.float32)
            # An echo is never a choice: whatever stands there, its probability is 1.
            logits = tf.pad(logits, [[0, 0], [0, 0], [0, 1]])
            logits = tf.where(rules.allowed(brackets), logits, IMPOSSIBLE)
            return logits, Constrained(old.words, brackets, state)

        return constrained

    @staticmethod
    def reordering(reorder):
        """Makes a state's `reorder`, as `beam_search` takes it, that of a constrained step's."""
        return lambda old, parents: Constrained(
            old.words, gather_beams(old.brackets, parents), reorder(old.state, parents)
        )

    def follow(self, ids):
        """Finds out which sequences keep the rules to their end.

        Args:
            ids: int32 [batch, beams, length]; what stands behind the end is passed over.

        Returns:
            bool [batch, beams], and the sequences as symbols, int32 [batch, beams, length], 0 for
            what is none.
        """
        ends = tf.cast(ids == self.tokenizer.eos_id, tf.int32)
        counts = tf.cumsum(ends, axis=2, exclusive=True) == 0
        length = tf.shape(ids)[2]

        def read(place, state, good, symbols):
            token = ids[:, :, place]
            echo = tf.where(token == self._last_word_ids(state), self._echo, -1)
            symbol = tf.where(token < self._echo, token, -1)
            symbol = tf.where(state.echo > 0, echo, symbol)
            chosen = tf.one_hot(symbol, self._echo + 1, on_value=True, off_value=False)
            fits = tf.reduce_any(chosen & self.allowed(state), axis=2) | ~counts[:, :, place]
            state = self.read(symbol, state)
            return place + 1, state, good & fits, symbols.write(place, tf.maximum(symbol, 0))

        _, _, good, symbols = tf.while_loop(
            lambda place, *_: place < length,
            read,
            (
                tf.constant(0),
                self.start(ids.shape[1]),
                tf.reduce_any(ends > 0, axis=2),
                tf.TensorArray(tf.int32, size=length, element_shape=[None, ids.shape[1]]),
            ),
        )
        return good, tf.transpose(symbols.stack(), [1, 2, 0])


class _Kinds(NamedTuple):
    """The number of symbols' labels, and which of them open, close, take a word, echo it."""

    label: tf.Tensor
    opens: tf.Tensor
    closes: tf.Tensor
    takes: tf.Tensor
    echoes: tf.Tensor
