"""Text generation: a language model continues prompts, all in one graph.

Start with `TextGenerator`. A prompt is the forced beginning of a search or of a sample, and the
same graph gives the probability of whole texts. `serving/README.md` describes the requests.
"""

import functools
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.data.base_tokenizer import valid_utf8
from t2t_keras.data.batching import shift_right
from t2t_keras.data.texts import as_batch
from t2t_keras.errors import TextError
from t2t_keras.graphs import kept_function
from t2t_keras.models.language_model import TransformerLM
from t2t_keras.settings import documented
from t2t_keras.tasks.given_translations import Scores, log_prob
from t2t_keras.tasks.requests import SAMPLING, TEXT, RequestKind, ranked
from t2t_keras.tasks.search import EARLY_STOPS, SearchPredictor
from t2t_keras.tasks.search_settings import GeneratorSettings
from t2t_keras.tasks.text_io import Reader
from t2t_keras.types import Texts


class Generation(NamedTuple):
    """One continuation of one prompt.

    Attributes:
        text: the prompt with its continuation.
        score: log P / length penalty of the whole text: higher is better; -inf, with an empty text,
            if there are no more.
    """

    text: str
    score: float


class _Continuations(NamedTuple):
    """Continuations of a batch, as tensors."""

    texts: tf.Tensor  # string [batch, n], with their prompts
    continuations: tf.Tensor  # string [batch, n]
    scores: tf.Tensor  # float32 [batch, n]
    truncated: tf.Tensor  # bool [batch], whether the prompt was cut


def _best(generator, text):
    return _first(generator.continue_texts(text, 1))


def _n_best(generator, text):
    batch = generator.continue_texts(text, generator.settings.beam_size)
    return {"texts": batch.texts, "scores": batch.scores, "truncated": batch.truncated}


def _sample(generator, text, seed, **options):
    return _first(generator.draw(text, seeds=seed, **options))


def _score(generator, text):
    (log_p, tokens), truncated = generator.score_texts(text)
    return {"log_probability": log_p, "tokens": tokens, "truncated": truncated}


def _first(batch):
    return {
        "text": batch.texts[:, 0],
        "continuation": batch.continuations[:, 0],
        "score": batch.scores[:, 0],
        "truncated": batch.truncated,
    }


_RANKED = ("texts", "scores")
_SEARCH = {"of_prompts": True, "searches": True}
_ALL = RequestKind(_n_best, (TEXT,), (), *_RANKED, **_SEARCH)
REQUESTS = {
    "serving_default": RequestKind(_best, (TEXT,), (), "text", "score", ranking=_ALL, **_SEARCH),
    "n_best": ranked(_ALL),
    "sample": RequestKind(_sample, (TEXT, *SAMPLING), (), "text", "score", of_prompts=True),
    "score": RequestKind(_score, (TEXT,)),
}
"""{name: `RequestKind`}, those of `TextGenerator.requests`."""


@functools.partial(documented, settings=GeneratorSettings)
class TextGenerator(SearchPredictor):
    """Continues prompts with a language model and a tokenizer.

    A prompt is read without an end token, and the text continues it until its end, or until
    `max_extra_tokens` more tokens or the model's maximum length. The Python methods run the same
    graph that is exported; `texts` are prompts in the forms of `data.texts.as_list`, "" begins a
    text.

    Args:
        model: `TransformerLM`, or a model that offers a search the same methods.
        tokenizer: `Tokenizer`.
        **settings: see below, such as beam_size=1. They are also attributes. Like the model they
            may be replaced; the next call then traces new graphs.

    Raises:
        InputError: if a setting is out of range, or the vocabulary sizes of model and tokenizer
            differ. In a call: if texts is a single string, an element is not a string, or a prompt
            has more tokens than max_source_length or the model's positions allow.

    Example:
        >>> tokenizer = t2t.train_tokenizer("wordpiece", ["a house", "a dog"] * 9, vocab_size=280)
        >>> model = t2t.TransformerLM(t2t.TransformerConfig.tiny(tokenizer.vocab_size))
        >>> generator = t2t.TextGenerator(model, tokenizer, max_extra_tokens=5)
        >>> generator(["a"])[0].startswith("a")
        True
        >>> [[first, second]] = generator.sample(["a"], n=2, seed=1, top_k=10)
    """

    task = "language_model"
    settings_type = GeneratorSettings
    model_type = TransformerLM
    requests = REQUESTS

    def __call__(self, texts: Texts) -> list[str]:
        """Returns each prompt, without white space at its end, and its best continuation."""
        return [best.text for [best] in self.n_best(texts, 1)]

    def n_best(self, texts: Texts, n: int | None = None) -> list[list[Generation]]:
        """Returns the n best continuations of each prompt, best first; n: None for beam_size."""
        rows, outputs = self.best_rows(n, text=as_batch(texts))
        self._require_whole(outputs["truncated"], self.max_prompt)
        return [[Generation(*pair) for pair in row] for row in rows]

    def sample(
        self,
        texts: Texts,
        n: int = 1,
        seed: Any = 0,
        temperature: float = 1.0,
        top_k: int | None = None,
        top_p: float | None = None,
    ) -> list[list[Generation]]:
        """Draws n continuations of each prompt at random, token by token, in the order drawn.

        Arguments and errors as for `Translator.sample`.
        """
        rows, outputs = self.drawn_rows(n, seed, temperature, top_k, top_p, text=as_batch(texts))
        self._require_whole(outputs["truncated"][::n], self.max_prompt)
        return [[Generation(*pair) for pair in row] for row in rows]

    def score(self, texts: Texts) -> Scores:
        """Returns the log-probabilities of whole texts, their ends included.

        Raises:
            InputError: if a text has more than `max_text` tokens, or as in a call.
        """
        outputs = self.run("score", text=as_batch(texts))
        self._require_whole(outputs["truncated"], self.max_text)
        return Scores(outputs["log_probability"], outputs["tokens"])

    def score_rows(self, inputs: dict, labels: Any, weights: Any) -> Scores:
        """Returns the log-probabilities of rows of a batch of `TextStream`.

        Labels with a weight above 0 count.
        """
        names = tuple(inputs)

        def graph(self, labels, weights, *values):
            return self._scores(dict(zip(names, values, strict=True)), labels, weights > 0)

        specs = [
            tf.TensorSpec([None, None], x) for x in (tf.int32, tf.float32, *[tf.int32] * len(names))
        ]
        scores = kept_function(self, f"rows {' '.join(names)}", graph, specs)
        return scores(labels, weights, *inputs.values())

    @property
    def max_text(self) -> int:
        """The maximum tokens of a whole text, its end included."""
        longest = self.settings.max_source_length + self.settings.max_extra_tokens
        return min(longest, self.model.max_length or longest)

    @property
    def max_prompt(self) -> int:
        """The maximum tokens of a prompt; at least one more has room."""
        return min(self.settings.max_source_length, self.max_text - 1)

    @staticmethod
    def _require_whole(truncated, limit):
        for index in tf.where(truncated)[:1, 0].numpy():
            raise TextError(
                f"has more than {limit} tokens, the limit of max_source_length (of a whole text "
                "with max_extra_tokens) and of the model's positions: shorten it.",
                index,
            )

    # Inside graphs.

    def continue_texts(self, texts: tf.Tensor, n_best: int = 1) -> _Continuations:
        """Returns the `_Continuations` [batch, n_best] of prompts, string [batch], by a search."""
        return self._continue(texts, n_best=n_best, **EARLY_STOPS)

    def draw(self, texts: tf.Tensor, *, seeds: tf.Tensor, **options: tf.Tensor) -> _Continuations:
        """Returns the `_Continuations` [batch, 1] of prompts, string [batch], drawn at random.

        Args:
            seeds, **options: see `find`; options are temperature, top_k, top_p.
        """
        return self._continue(texts, draws=True, seeds=seeds, **options)

    def score_texts(self, texts: tf.Tensor) -> tuple[Scores, tf.Tensor]:
        """Returns the `Scores` of texts, string [batch], and bool [batch], whether truncated."""
        encoded = Reader(self.tokenizer, self.max_text).encode(texts)
        inputs = {"target_ids": shift_right(encoded.ids, self.tokenizer.bos_id)}
        return self._scores(inputs, encoded.ids, ops.is_token(encoded.ids)), encoded.truncated

    def _scores(self, inputs, labels, counts):
        log_probs = log_prob(self.model, inputs, labels, counts, self.tokenizer.vocab_size)
        return Scores(log_probs, tf.math.count_nonzero(counts, axis=1, dtype=tf.int32))

    def encode(self, texts: tf.Tensor) -> tf.Tensor:
        """Returns the ids of texts, string [batch]: int32 [batch, length], ends included."""
        return Reader(self.tokenizer, self.max_text).encode(texts).ids

    def saved_call(self, text: tf.Tensor) -> dict:
        return _best(self, text)

    def _continue(self, texts, **options):
        """Returns the `_Continuations` of prompts; options: see `find`."""
        with ops.on_host():
            prompts, truncated = Reader(self.tokenizer, self.max_prompt).encode_prefix(texts)
            ids = prompts.to_tensor()  # [batch, prompt]
            lengths = tf.cast(prompts.row_lengths(), tf.int32)
        max_lengths = tf.minimum(lengths + self.settings.max_extra_tokens, self.max_text)
        options |= {"length_penalty": self.settings.length_penalty, "prefix_ids": ids}
        hypotheses = self.find(self.model, ids, max_lengths, **options)
        with ops.on_host():
            return self._as_texts(hypotheses, texts, ids, truncated)

    def _as_texts(self, hypotheses, texts, prompt_ids, truncated):
        """Returns the `_Continuations` of `Hypotheses` [batch, n]; texts are the prompts."""
        batch, n, length = tf.unstack(tf.shape(hypotheses.ids))
        whole = self.tokenizer.decode(tf.reshape(hypotheses.ids, [batch * n, length]))
        whole = tf.reshape(whole, [batch, n])
        begin = self.tokenizer.decode(prompt_ids)[:, tf.newaxis]  # as its tokens are read back
        size = tf.broadcast_to(tf.strings.length(begin), [batch, n])
        exists = tf.math.is_finite(hypotheses.scores)
        follows = exists & (tf.strings.substr(whole, tf.zeros_like(size), size) == begin)
        size = tf.minimum(size, tf.strings.length(whole))
        rest = tf.strings.substr(whole, size, tf.strings.length(whole) - size)
        rest = tf.where(follows, rest, "")
        prompts = tf.strings.regex_replace(valid_utf8(texts), r"\s+$", "")[:, tf.newaxis]
        # The prompt stays as given, whatever normalization its tokens went through.
        whole = tf.where(follows, prompts + rest, tf.where(exists, whole, ""))
        return _Continuations(whole, rest, hypotheses.scores, truncated)
