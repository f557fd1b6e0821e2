"""Text in and out of a model: encoding with a length limit, strings to tensors and back, batching.

`Reader` turns texts into padded ids with the end token and truncates texts beyond its limit.
`map_by_length` applies a function of batches, such as a `Translator`, to any number of lines;
`predict` does so with a progress bar.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras import ops
from t2t_keras.data.base_tokenizer import TokenOffsets, blank_to_empty, valid_utf8
from t2t_keras.data.language_template import prepend
from t2t_keras.data.texts import as_batch, as_list, elements
from t2t_keras.errors import InputError, TextError, require_whole_number
from t2t_keras.settings import COUNT

_CHARACTERS_PER_TOKEN = 64
LINES_OF_A_BATCH = 64  # on a CPU
_LINES_OF_A_GPU, _CHARACTERS_OF_A_GPU = 1_024, 32_768


class EncodedTexts(NamedTuple):
    """Encoded texts."""

    # int32 [batch, length], each row's tokens and the end token, then 0; no end token if the
    # tokenizer's `adds_eos` is False
    ids: tf.Tensor
    truncated: tf.Tensor  # bool [batch], whether tokens were dropped


class Reader:
    """Encodes texts as sequences of at most `limit` tokens, including the end token.

    Tokens beyond the limit are dropped. Before tokenization, characters beyond 64 times the limit
    are dropped as well, so that the cost of a text is bounded.

    The methods take texts, string [batch], and `first_ids`, int32 [batch], which precede the tokens
    of each text and count in the limit; None: none.
    """

    def __init__(self, tokenizer, limit):
        self.tokenizer = tokenizer
        self.limit = limit
        self._eos_id = tokenizer.eos_id if getattr(tokenizer, "adds_eos", True) else None
        self._most = limit - (self._eos_id is not None)  # tokens without the end

    def encode(self, texts, first_ids=None):
        """Returns the `EncodedTexts` of texts."""
        texts, clipped = self._clip(texts)
        ids = prepend(first_ids, self.tokenizer.encode(texts))
        clipped |= ids.row_lengths() > self._most
        return EncodedTexts(append_end(ids, self._eos_id, self._most), clipped)

    def encode_prefix(self, texts, first_ids=None):
        """Encodes texts without the end token.

        Returns:
            RaggedTensor int32 [batch, (length)], and bool [batch], whether tokens were dropped.
        """
        texts, clipped = self._clip(texts)
        ids = prepend(first_ids, self.tokenizer.encode(texts))
        return ids[:, : self.limit], clipped | (ids.row_lengths() > self.limit)

    def encode_with_offsets(self, texts, first_ids=None):
        """Returns the ids of `encode` with each token's span of characters in the text.

        They are `TokenOffsets` of dense int32 [batch, length]; first ids, the end token and padding
        have spans 0, 0.
        """
        tokens = self.tokenizer.encode_with_offsets(self._clip(texts)[0])
        ids = append_end(prepend(first_ids, tokens.ids), self._eos_id, self._most)
        before = None if first_ids is None else tf.zeros_like(first_ids)
        shape = tf.shape(ids, tf.int64)
        is_kept = tf.range(shape[1]) < self._most
        starts, ends = (
            tf.where(is_kept, prepend(before, offsets).to_tensor(shape=shape), 0)
            for offsets in (tokens.starts, tokens.ends)
        )
        return TokenOffsets(ids, starts, ends)

    def from_ids(self, ids):
        """Returns the `EncodedTexts` of ids, int32 [batch, length].

        Padding and everything after the first end token is dropped; a missing end is appended.
        """
        ended = tf.cumsum(tf.cast(ids == self.tokenizer.eos_id, tf.int32), axis=1) > 0
        ids = tf.ragged.boolean_mask(ids, ~ended & (ids != self.tokenizer.pad_id))
        truncated = ids.row_lengths() > self._most
        return EncodedTexts(append_end(ids, self._eos_id, self._most), truncated)

    def _clip(self, texts):
        """Returns texts as valid UTF-8 of bounded length, and bool [batch], whether clipped.

        Blank texts are empty; see `is_blank`.
        """
        most = _CHARACTERS_PER_TOKEN * self.limit
        texts = as_batch(texts)
        texts = tf.strings.regex_replace(texts, r"\s+$", "")  # a line may include its line feed
        kept = valid_utf8(tf.strings.substr(texts, 0, 4 * most))  # the bytes of `most` characters
        clipped = tf.strings.length(texts) > 4 * most
        clipped |= tf.strings.length(kept, unit="UTF8_CHAR") > most
        return blank_to_empty(tf.strings.substr(kept, 0, most, unit="UTF8_CHAR")), clipped


def append_end(ids, eos_id=None, most=None):
    """Appends the end id, if given, to ragged ids [batch, (length)] and pads them with 0.

    Returns:
        int32 [batch, longest], at least [batch, 1]; of each row at most `most` ids and the end.
    """
    lengths = ids.row_lengths()
    if most is not None:
        lengths = tf.minimum(lengths, most)
    longest = tf.reduce_max(tf.pad(lengths, [[0, 1]]))  # 0 for an empty batch
    longest = tf.maximum(longest, 1) if eos_id is None else longest + 1
    dense = ids.to_tensor(shape=tf.stack([tf.size(lengths, longest.dtype), longest]))
    if eos_id is None:
        return dense
    return tf.where(tf.range(longest) == lengths[:, tf.newaxis], eos_id, dense)


def warn_truncated(truncated):
    """Logs a warning if texts of a batch, bool [batch], were truncated."""
    if count := np.count_nonzero(truncated):
        logging.warning(
            "%d of %d texts were longer than the model's limit and were truncated",
            count,
            len(truncated),
        )


def check_vocab_size(model, tokenizer):
    """Raises InputError if the vocabulary sizes differ."""
    config = getattr(model, "config", None)
    if config is None:
        return
    for name, size, needed in (
        ("vocab_size", config.vocab_size, tokenizer.target.vocab_size),
        ("source_vocab_size", config.encoder_vocab_size, tokenizer.vocab_size),
    ):
        if size != needed:
            raise InputError(
                f"the model has {size} ids and the tokenizer {needed}: make the model with "
                f"{name}={needed}, or load the tokenizer it learned with."
            )


def as_tensor(texts, name="texts"):
    """Returns texts as a string tensor [batch]; arguments and errors as for `as_list`."""
    return tf.constant(as_list(texts, name), tf.string)


def language_codes(template, count, source_language, target_language):
    """Returns the codes of a batch's languages, as a graph takes them.

    Args:
        template: `LanguageTemplate`, or None for a model of two languages.
        count: int, texts of the batch.
        source_language, target_language: a str for all texts, the code of each in the forms of
            `as_list`, or None.

    Returns:
        List of two string tensors [count], "" for a language that the model does not read; none for
        a model of two languages.

    Raises:
        InputError: if a language is missing or unknown, or the model has no languages.
    """
    given = {"source_language": source_language, "target_language": target_language}
    if template is not None:
        return [_codes(template, name, codes, count) for name, codes in given.items()]
    refuse_languages(**given)
    return []


def refuse_languages(**given):
    """Raises InputError if a bilingual model is given a language, {name: codes or None}."""
    for name, codes in given.items():
        if codes is not None:
            raise InputError(
                f"{name} is {codes!r}, and this model translates from one language into one other: "
                "leave it out."
            )


def _codes(template, name, codes, count):
    if codes is None:
        template.require_unread(name)
        codes = ""
    elif isinstance(codes, str):
        if codes or template.reads(name):
            template.id_of(name, codes)
    else:
        codes = as_list(codes, name)
        if len(codes) != count:
            raise InputError(
                f"{name} has {len(codes)} codes for {count} texts: give one for each text, or one "
                "str for all."
            )
        for row, code in enumerate(map(as_str, codes)):
            if code or template.reads(name):
                template.id_of(f"{name}[{row}]", code)
    return tf.broadcast_to(tf.constant(codes, tf.string), [count])


def predict(predictor, texts, batch_size=None, verbose=0, length=len):
    """Returns predictor(texts) as a list, by `map_by_length`; verbose: 1 shows a progress bar."""
    bar = keras.utils.Progbar(len(texts), unit_name="text") if verbose else None

    def counted(batch):
        results = predictor(batch)
        if bar is not None:
            bar.add(len(batch))
        return results

    return list(map_by_length(counted, texts, batch_size, length=length))


def without_repeats(results):
    """Leaves out results whose text equals a better result's, and markers of missing results.

    Several hypotheses (sequences of tokens) may have the same text.

    Args:
        results: list of (text, score), best first; a score of -inf marks a missing result. At least
            one remains.
    """
    first = {}
    for result in results:
        if not first or result[1] > -math.inf:
            first.setdefault(result[0], result)
    return list(first.values())


def as_str(text):
    """Decodes bytes that a graph returned; bytes that are not UTF-8 become U+FFFD."""
    return text.decode("utf-8", "replace")


def _default_size(longest):
    """Returns the number of lines in a batch, given the characters of its longest line."""
    if ops.visible_device() == "cpu":
        return LINES_OF_A_BATCH
    return min(max(_CHARACTERS_OF_A_GPU // max(longest, 1), 1), _LINES_OF_A_GPU)


def map_by_length(
    function: Callable,
    lines: Iterable,
    batch_size: int | None = None,
    window: int = 64,
    num_parallel_batches: int = 1,
    length: Callable = len,
) -> Iterator:
    """Applies a function to batches of lines of similar length and yields results in input order.

    Batches of mixed lengths waste time on padding and on finished hypotheses, so each window of
    lines is sorted by length.

    Several batches in parallel, each on one core, use a CPU better than one batch whose operations
    are split between cores. TensorFlow must be configured for this before any other call:
    `tf.config.threading.set_intra_op_parallelism_threads(1)`.

    Args:
        function: from a list of str to a sequence with one result for each; called from several
            threads if `num_parallel_batches` is more than 1.
        lines: iterable of str, read one window at a time.
        batch_size: lines of a batch. None: 64 on CPUs; on GPUs as many as fill one, up to 1,024 and
            32,768 characters with padding, some 8,000 tokens.
        window: batches that are sorted together, of 64 lines if batch_size is None.
        num_parallel_batches: batches processed in parallel, one thread each. A window with fewer
            lines than they could take is divided evenly between them.
        length: function of a line to its length, if lines are not plain str.

    Raises:
        InputError: if batch_size, window or num_parallel_batches is below 1 or not whole.
        TextError: as the function raises it, with the line's index in `lines`.

    Example:
        >>> for translation in map_by_length(translator, open("text.en")):
        ...     print(translation)
    """
    if batch_size is not None:
        COUNT.check("batch_size", batch_size)
    require_whole_number("window", window)
    require_whole_number("num_parallel_batches", num_parallel_batches)
    lines, done = elements(lines, "lines"), 0

    def call(indices):
        try:
            return function([chunk[i] for i in indices])
        except TextError as error:
            raise TextError(error.reason, done + indices[error.index]) from error

    with ThreadPoolExecutor(num_parallel_batches) as pool:
        while chunk := list(itertools.islice(lines, (batch_size or LINES_OF_A_BATCH) * window)):
            lengths = list(map(length, chunk))
            # Longest first: a batch that exceeds the memory fails early.
            order = sorted(range(len(chunk)), key=lambda i: -lengths[i])
            batches, most = [], math.ceil(len(chunk) / num_parallel_batches)
            while order:
                size = min(batch_size or _default_size(lengths[order[0]]), most)
                batches.append(order[:size])
                order = order[size:]
            outputs = (map if num_parallel_batches == 1 else pool.map)(call, batches)
            results = [None] * len(chunk)
            for indices, batch in zip(batches, outputs, strict=True):
                for index, result in zip(indices, batch, strict=True):
                    results[index] = result
            yield from results
            done += len(chunk)
