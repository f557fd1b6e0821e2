"""Placeholders: tokens that represent spans which a translation must leave unchanged.

A vocabulary may reserve some, `Tokenizer.placeholder_ids`; no text is encoded as one of them. In a
marked text, placeholder k is the private-use character U+E000 + k: `MarkedTokenizer` encodes it as
the token, and decodes the token as the character.

`MarkedCorpus` teaches a model to copy them. In a fraction of the training pairs it replaces words
that have one counterpart on the other side by the same mark on both sides, or puts one mark
before and one after them. Counterparts are numbers and names that are equal on both sides, and
words that are usually translated as one word, which `learn_counterparts` finds.
"""

import collections
import functools
import random
import re

import numpy as np
import tensorflow as tf

from t2t_keras.data.base_tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, TokenOffsets
from t2t_keras.data.corpora import stream_pairs
from t2t_keras.data.ragged import keep_where
from t2t_keras.settings import MAX_PLACEHOLDERS
from t2t_keras.types import Corpus, Encoder, Texts

_FIRST_BYTE, _LEAD, _SECOND = BOS_ID + 1, 0xEE, 0x80
_MARKS = re.compile(f"[\ue001-{chr(0xE000 + MAX_PLACEHOLDERS)}]")
_LETTERS = (
    r"(?:[^\W\d_]|[\u0300-\u036f\u064b-\u065f\u0900-\u0963\u0970-\u0dff])+"  # with their marks
)
_WORD = re.compile(rf"\d+(?:[.,:]\d+)*|{_LETTERS}(?:[-'’]{_LETTERS})*")
_MOST_SPANS = 3
_LEARNED_PAIRS, _MOST_WORDS, _LEAST_COUNT, _LEAST_DICE = 20_000, 60, 5, 0.5


def mark_of(number):
    """Returns the mark of a placeholder, given by its number from 1, in a text."""
    return chr(0xE000 + number)


def without_marks(text):
    """Returns a str in which U+FFFD replaces the marks of placeholders."""
    return _MARKS.sub("\ufffd", text)


class MarkedTokenizer:
    """A tokenizer of texts with marks, made of a `Tokenizer` with tokens of bytes.

    `placeholder_ids` are the ids of the tokens of the placeholders.
    """

    adds_eos = True
    pad_id, eos_id, unk_id, bos_id = PAD_ID, EOS_ID, UNK_ID, BOS_ID

    def __init__(self, tokenizer: Encoder, placeholder_ids: range):
        self.placeholder_ids = placeholder_ids
        self._tokenizer = tokenizer

    @property
    def target(self):
        """The tokenizer of the targets: this one."""
        return self

    @property
    def vocab_size(self) -> int:
        """The number of ids."""
        return self._tokenizer.vocab_size

    @property
    def languages(self):
        """The `LanguageTemplate` of a model of many languages; None for a bilingual model."""
        return getattr(self._tokenizer, "languages", None)

    def encode(self, texts: Texts) -> tf.RaggedTensor:
        """Encodes texts, as `Tokenizer.encode` does, with a token for each mark."""
        ids = self._tokenizer.encode(texts)
        values, is_first = self._merge(ids.values)
        return keep_where(is_first, ids.with_values(values))[0]

    def encode_with_offsets(self, texts: Texts) -> TokenOffsets:
        """Encodes texts with offsets, as `Tokenizer.encode_with_offsets` does."""
        tokens = self._tokenizer.encode_with_offsets(texts)
        values, is_first = self._merge(tokens.ids.values)
        tokens = tokens._replace(ids=tokens.ids.with_values(values))
        return TokenOffsets(*keep_where(is_first, *tokens))

    def _merge(self, values):
        """Returns ids, int32 [tokens], with a placeholder for the first byte of each mark.

        Also bool [tokens], false for the second and third byte of a mark.
        """
        first, second, third = (tf.pad(values, [[0, 2]])[i:][: tf.size(values)] for i in range(3))
        number = third - (_FIRST_BYTE + _SECOND)  # of a continuation byte: its six bits
        is_mark = (first == _FIRST_BYTE + _LEAD) & (second == _FIRST_BYTE + _SECOND)
        is_mark &= (number >= 1) & (number <= len(self.placeholder_ids))
        before = tf.pad(is_mark, [[2, 0]])
        values = tf.where(is_mark, self.placeholder_ids.start + number - 1, values)
        return values, ~(before[1:-1] | before[:-2])

    def decode(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor:
        """Joins tokens to text, as `Tokenizer.decode` does, with a mark for each placeholder.

        Bytes that spell U+E000 to U+E0FF are dropped: only placeholders make marks.
        """
        if isinstance(ids, tf.RaggedTensor):
            ids = ids.to_tensor()
        second = tf.pad(ids, [[0, 0], [0, 1]])[:, 1:]
        is_spelled = (ids == _FIRST_BYTE + _LEAD) & (second >= _FIRST_BYTE + _SECOND)
        is_spelled &= second <= _FIRST_BYTE + _SECOND + 3
        ids = tf.where(is_spelled, PAD_ID, ids)
        number = ids - self.placeholder_ids.start + 1
        is_placeholder = (number >= 1) & (number <= len(self.placeholder_ids))
        parts = [
            tf.where(is_placeholder, _FIRST_BYTE + _LEAD, ids),
            tf.where(is_placeholder, _FIRST_BYTE + _SECOND, PAD_ID),
            tf.where(is_placeholder, _FIRST_BYTE + _SECOND + number, PAD_ID),
        ]
        size = tf.shape(ids)
        return self._tokenizer.decode(tf.reshape(tf.stack(parts, axis=2), [size[0], 3 * size[1]]))

    def pieces(self, ids: tf.Tensor | tf.RaggedTensor) -> tf.Tensor | tf.RaggedTensor:
        """Returns the text of each id, as `Tokenizer.pieces` does."""
        return self._tokenizer.pieces(ids)

    def fingerprint(self) -> str:
        """Returns a str: if it is equal, all texts are encoded equally."""
        return repr((self._tokenizer.fingerprint(), self.placeholder_ids))


class MarkedCorpus:
    """A corpus whose training split, `split`, contains marks of placeholders in some of its pairs.

    The draw depends only on the seed and on the number of the pair. Characters of the text that are
    themselves marks become U+FFFD. Pairs without counterparts stay unchanged.

    Args:
        placeholders: 1 to `MAX_PLACEHOLDERS`.
        fraction: above 0 up to 1, of the pairs.

    Example:

    >>> tokenizer = train_tokenizer("bpe", lines, 8_000, placeholders=8)
    >>> corpus = MarkedCorpus(corpus, "train", 8, fraction=0.2, seed=1)
    >>> marked = MarkedTokenizer(tokenizer, tokenizer.placeholder_ids)
    >>> write_shards(corpus, "train", marked, directory)
    """

    def __init__(self, corpus: Corpus, split: str, placeholders: int, fraction: float, seed: int):
        self._corpus, self._split = corpus, split
        self._placeholders, self._fraction, self._seed = placeholders, fraction, seed

    def examples(self, split: str) -> tf.data.Dataset:
        """Returns the pairs of a split."""
        examples = self._corpus.examples(split)
        if split != self._split:
            return examples
        return stream_pairs(lambda: self._pairs(examples), int(examples.cardinality()))

    @functools.cached_property
    def _counterparts(self):
        pairs = _texts(self._corpus.examples(self._split).take(_LEARNED_PAIRS))
        return learn_counterparts(pairs)

    def _pairs(self, examples):
        for number, pair in enumerate(_texts(examples)):
            texts = [without_marks(text) for text in pair]
            rng = random.Random(f"{self._seed} {number}")
            if rng.random() < self._fraction:
                texts = mark_pair(*texts, self._counterparts, self._placeholders, rng)
            yield [text.encode("utf-8", "surrogateescape") for text in texts]


def _texts(examples):
    """Yields the texts of pairs, str each; bytes that are not UTF-8 are escaped."""
    for batch in examples.batch(1024).as_numpy_iterator():
        for pair in zip(batch["source"], batch["target"], strict=True):
            yield [text.decode("utf-8", "surrogateescape") for text in pair]


def mark_pair(
    source: str,
    target: str,
    counterparts: dict[str, str],
    placeholders: int,
    rng: random.Random,
) -> tuple[str, str]:
    """Puts the same marks, at most `placeholders`, into a source and its target.

    `counterparts` are words that differ, {word of a source: word of its target}. Each mark occurs
    once on each side, ascending in the source. Without a word that occurs exactly once on each
    side there are none.
    """
    matches = list(_matches(source, target, counterparts))
    chosen = sorted(rng.sample(range(len(matches)), min(rng.randint(1, _MOST_SPANS), len(matches))))
    # Words are replaced, by one mark each, or enclosed by two.
    counts = [rng.randint(1, 2) for _ in chosen]
    while sum(counts) > placeholders:
        counts[counts.index(max(counts))] -= 1
    numbers = iter(sorted(rng.sample(range(1, placeholders + 1), sum(counts))))
    edits = [[], []]
    for place, count in zip(chosen, counts, strict=True):
        marks = [mark_of(next(numbers)) for _ in range(count)]
        for side, match in zip(edits, matches[place], strict=True):
            if marks:
                side.append((*match.span(), f" {match[0]} ".join(marks)))
    return [_replaced(text, side) for text, side in zip((source, target), edits, strict=True)]


def _matches(source, target, counterparts):
    """Yields matches of `_WORD` for the words that occur once on each side, in source order."""
    sources, targets = (_once(text) for text in (source, target))
    firsts = [next(iter(words), None) for words in (sources, targets)]
    for word, match in sources.items():
        # A capital letter at the beginning of both sides is no sign of a name.
        is_name = len(word) > 1 and word[0].isupper() and [word, word] != firsts
        other = word if word[0].isdigit() or is_name else ""
        other = other if other in targets else counterparts.get(word)
        if other in targets:
            yield match, targets.pop(other)


def _once(text):
    """Returns the matches of words that occur once in a text, {word: match}, in order."""
    matches = list(_WORD.finditer(text))
    counts = collections.Counter(match[0] for match in matches)
    return {match[0]: match for match in matches if counts[match[0]] == 1}


def _replaced(text, edits):
    """Returns a text with some parts replaced; edits: (begin, end, new text) of each."""
    for begin, end, other in sorted(edits, reverse=True):
        text = text[:begin] + other + text[end:]
    return text


def learn_counterparts(pairs):
    """Returns words of sources and the words that translate them, {word: word}, from pairs of str.

    Each word has the highest Dice coefficient with the other, 2 · pairs with both / (pairs with one
    + pairs with the other). It is at least 0.5, and at least 5 pairs contain both words.
    """
    numbers, keys = ({}, {}), [np.zeros([0], np.int64)]
    for pair in pairs:
        sides = [dict.fromkeys(_WORD.findall(text)) for text in pair]
        if max(map(len, sides)) <= _MOST_WORDS:
            source, target = (
                np.array([known.setdefault(word, len(known)) for word in words], np.int64)
                for known, words in zip(numbers, sides, strict=True)
            )
            keys.append((source[:, np.newaxis] << 32 | target).ravel())
            # How many pairs have each word is counted with a word that no text has.
            keys += [source << 32 | 2**31, 2**62 | target]
    keys, counts = np.unique(np.concatenate(keys), return_counts=True)
    source, target = keys >> 32, keys & (2**32 - 1)
    is_pair = (source < 2**30) & (target < 2**31)
    totals = counts[target == 2**31], counts[source == 2**30]
    source, target, counts = (x[is_pair] for x in (source, target, counts))
    strength = 2 * counts / (totals[0][source] + totals[1][target])
    order = np.lexsort((target, source, -strength))
    order = order[(counts >= _LEAST_COUNT)[order] & (strength >= _LEAST_DICE)[order]]
    best = [set(order[np.unique(side[order], return_index=True)[1]]) for side in (source, target)]
    words = [list(known) for known in numbers]
    return {words[0][source[i]]: words[1][target[i]] for i in order if i in best[0] & best[1]}
