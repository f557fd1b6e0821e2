"""Translation: strings in, strings out, all in one graph (paper, section 6.1)."""

from typing import NamedTuple

import tensorflow as tf

from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.graphs import graph_function
from t2t_keras.tasks import alignment, scoring
from t2t_keras.tasks.reading import Reader, as_str, as_tensor, require_one_vocabulary, tell_of_cuts

_PATIENCE = 2
"""The n best take at most so many times the steps of the best one."""

_REACH = 1.5
"""Nothing is waited for that would be so many times as long as the best one found."""

_TEXTS = tf.TensorSpec([None], tf.string)


class Translation(NamedTuple):
    """One translation of one sentence.

    Attributes:
        text: str.
        score: float, log P / length penalty: higher is better, 0 is certain; -inf and an empty text
            stand where there are no more translations.
    """

    text: str
    score: float


class Translations(NamedTuple):
    """The translations of a batch as the graph has them.

    Attributes:
        texts: string [batch, n_best], best first.
        scores: float32 [batch, n_best]; -inf marks that a sentence has no further translation.
        truncated: bool [batch], whether the source was longer than the translator's limit.
    """

    texts: tf.Tensor
    scores: tf.Tensor
    truncated: tf.Tensor


class Translator(tf.Module):
    """Translates text with a model and a tokenizer.

    A source is its tokens and the end token. A translation is at most `extra_length` tokens
    longer than its source and never longer than the model's positions reach. Text without any
    token, empty or only spaces, has the empty translation. The graph that the methods for Python
    run is the one that is exported.

    Args:
        model: `Transformer`, or whatever has its `encode`, `initial_state`, `for_rows`,
            `reorder`, `max_length`.
        tokenizer: `Tokenizer`.
        beam_size: live hypotheses of a sentence; 1 is greedy search.
        length_penalty: α of the score; more than 0 favours longer translations.
        extra_length: how many tokens a translation may be longer than its source.
        max_source_length: tokens of a source, its end included; what goes beyond is cut off.

    Raises:
        InputError: if a setting is out of its range, or model and tokenizer do not belong together.

    Example:
        >>> translator = Translator(model, tokenizer, beam_size=4, length_penalty=0.6)
        >>> translator(["Hello world."])
        ['Hallo Welt.']
        >>> translator.n_best(["Hello world."], 2)[0]
        [Translation(text='Hallo Welt.', score=-0.3), Translation(text='Hallo, Welt.', score=-0.9)]
    """

    def __init__(
        self,
        model,
        tokenizer,
        beam_size=4,
        length_penalty=0.6,
        extra_length=50,
        max_source_length=512,
    ):
        super().__init__(name="translator")
        for name, value, least in (
            ("beam_size", beam_size, 1),
            ("extra_length", extra_length, 0),
            ("max_source_length", max_source_length, 1),
        ):
            require_whole_number(name, value, least)
        require_one_vocabulary(model, tokenizer)
        self.model = model
        self.tokenizer = tokenizer
        self.beam_size = beam_size
        self.length_penalty = length_penalty
        self.extra_length = extra_length
        longest = model.max_length or max_source_length + extra_length
        self.max_source_length = min(max_source_length, longest)
        self.sources = Reader(tokenizer, self.max_source_length)
        self.targets = Reader(tokenizer, min(max_source_length + extra_length, longest))

    def __call__(self, texts, prefix=None):
        """Returns the best translation of each text.

        Args:
            texts: list of str.
            prefix: list of str or None, how each translation must begin; "" leaves it free.

        Returns:
            List of str.

        Raises:
            InputError: if texts is a single string, or prefix has another length.
        """
        best = self._best(*_as_tensors(texts, prefix))
        tell_of_cuts(best.truncated)
        return [as_str(text) for (text,) in best.texts.numpy()]

    def n_best(self, texts, n=None, prefix=None):
        """Returns the best translations of each text, best first.

        Args:
            texts: list of str.
            n: int up to beam_size, the translations wanted of each text; beam_size if None.
            prefix: list of str or None, how each translation must begin; "" leaves it free.

        Returns:
            A list of n `Translation` for each text; a score of -inf marks that there are no more.
            Where too few end within twice the steps that the best one took, the last ones are
            beginnings of translations.

        Raises:
            InputError: if n is out of its range, texts a single string, or prefix of another
                length.
        """
        n = self.beam_size if n is None else n
        if not 1 <= n <= self.beam_size:
            raise InputError(f"n is {n}: give 1 to beam_size, which is {self.beam_size}.")
        # The search for one stops earlier, and finds the same one, unless the longer search meets
        # a better one beyond its reach.
        search = self._best if n == 1 else self._beam
        found = search(*_as_tensors(texts, prefix))
        tell_of_cuts(found.truncated)
        return [
            [Translation(as_str(text), float(score)) for text, score in zip(*row, strict=True)]
            for row in zip(found.texts[:, :n].numpy(), found.scores[:, :n].numpy(), strict=True)
        ]

    @graph_function(input_signature=[_TEXTS, _TEXTS])
    def _best(self, texts, prefixes):
        return self.translate(texts, prefixes)

    @graph_function(input_signature=[_TEXTS, _TEXTS])
    def _beam(self, texts, prefixes):
        return self.translate(texts, prefixes, self.beam_size)

    def translate(self, texts, prefixes=None, n_best=1):
        """Translates inside a graph.

        Args:
            texts: string [batch].
            prefixes: string [batch] or None, how each translation must begin; "" leaves it free.
            n_best: int up to beam_size.

        Returns:
            `Translations`.
        """
        sources = self.sources.read(texts)
        prefix_ids = self._prefix_ids(sources.ids, prefixes)
        hypotheses = self.search(sources.ids, prefix_ids, n_best)
        shape = tf.shape(hypotheses.ids)
        texts = self.tokenizer.decode(tf.reshape(hypotheses.ids, [shape[0] * n_best, shape[2]]))
        texts = tf.reshape(texts, [shape[0], n_best])
        return Translations(texts, hypotheses.scores, sources.truncated)

    def encode(self, texts):
        """Returns the model's source ids of texts string [batch]: int32 [batch, source]."""
        return self.sources.read(texts).ids

    def translate_ids(self, source_ids):
        """Finds the best translations of ids inside a graph.

        Args:
            source_ids: int32 [batch, source], each within the vocabulary; padding is dropped and
                a missing end appended, see `Reader.take`.

        Returns:
            `Hypotheses` [batch, beam_size]; of a source without tokens the empty one.
        """
        source_ids = self.sources.take(source_ids).ids
        return self.search(source_ids, self._prefix_ids(source_ids), self.beam_size)

    def score(self, texts, translations):
        """Finds how likely given translations are, inside a graph.

        Args:
            texts: string [batch].
            translations: string [batch]; what goes beyond the longest translation that the
                translator itself would give is cut off.

        Returns:
            `Scores`; log P / length penalty is what a search would give as score.
        """
        source_ids, target_ids = self.sources.read(texts).ids, self.targets.read(translations).ids
        return scoring.score(self.model, source_ids, target_ids, self.tokenizer.bos_id)

    def align(self, texts, translations):
        """Finds which part of its text each piece of given translations looks at, inside a graph.

        Args:
            texts: string [batch].
            translations: string [batch], cut off like those of `score`.

        Returns:
            `Alignment`.
        """
        sources, target_ids = self.sources.locate(texts), self.targets.read(translations).ids
        return alignment.align(self.model, self.tokenizer, sources, target_ids)

    def search(self, source_ids, prefix_ids=None, n_best=1):
        """Finds the best translations of tokens.

        Args:
            source_ids: int32 [batch, source], each source with its end token, then 0.
            prefix_ids: int32 [batch, prefix] or None, how each translation must begin, then 0.
            n_best: int up to beam_size.

        Returns:
            `Hypotheses` [batch, n_best].
        """
        batch = tf.shape(source_ids)[0]
        max_lengths = _lengths(source_ids) + self.extra_length
        if self.model.max_length:
            max_lengths = tf.minimum(max_lengths, self.model.max_length)
        state = self.model.initial_state(self.model.encode(source_ids), self.beam_size)

        def search(step):
            return beam_search(
                step,
                state,
                start_ids=tf.fill([batch], self.tokenizer.bos_id),
                end_id=self.tokenizer.eos_id,
                beam_size=self.beam_size,
                max_lengths=max_lengths,
                length_penalty=self.length_penalty,
                n_best=n_best,
                prefix_ids=prefix_ids,
                patience=_PATIENCE,
                reach=_REACH,
                reorder=self.model.reorder,
            )

        return self.model.for_rows(batch * self.beam_size, search)

    def _prefix_ids(self, source_ids, prefixes=None):
        """Returns int32 [batch, prefix]: the prefixes' tokens, or the end for an empty source."""
        end_id = self.tokenizer.eos_id
        nothing = _lengths(source_ids) == 1  # [batch], the end alone
        if prefixes is None:
            return tf.where(nothing, end_id, 0)[:, tf.newaxis]
        ids = self.targets.begin(prefixes)
        nothing &= ids.row_lengths() == 0
        ends = tf.RaggedTensor.from_row_lengths(
            tf.fill([tf.math.count_nonzero(nothing)], end_id), tf.cast(nothing, tf.int64)
        )
        return tf.concat([ids, ends], axis=1).to_tensor()


def _lengths(ids):
    return tf.math.count_nonzero(ids, axis=1, dtype=tf.int32)


def _as_tensors(texts, prefix):
    texts = as_tensor(texts)
    count = len(texts)
    prefix = tf.fill([count], "") if prefix is None else as_tensor(prefix, "prefix")
    if len(prefix) != count:
        raise InputError(
            f"prefix has {len(prefix)} strings for {count} texts: give one for each text."
        )
    return texts, prefix
