"""Samples of the lines of a file: a seed for each line, and the sampling of a run or an export."""

import dataclasses

import numpy as np
import tensorflow as tf

from pipelines.modes import Search, require_translator
from t2t_keras.errors import InputError
from t2t_keras.tasks.text_io import as_str, warn_truncated


@dataclasses.dataclass(frozen=True)
class Sampling(Search):
    """Draws translations, with the arguments of `Translator.sample`.

    A line's samples depend only on the seed and its number, not on other lines.
    """

    seed: int = 0
    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def check(self, asked):
        super().check(asked)
        beam_size = asked.decoding.get("beam_size")
        if beam_size is not None:
            raise InputError(
                f"--beam_size={beam_size} is for a search, not for --sample: leave one of them out."
            )

    def signature(self, n_best):
        return "sample"

    def of_predictor(self, predictor, n, languages):
        require_translator(predictor, "--sample")
        options = dataclasses.asdict(self) | languages

        def results(lines, numbers):
            seeds = self._seeds(numbers, n)
            texts = [line for line in lines for _ in range(n)]
            found = predictor.sample(texts, **(options | {"seed": seeds}))
            return _rows([pair for row in found for pair in row], n)

        return results

    def of_signature(self, answer, outputs, n):
        def results(lines, numbers):
            seeds = self._seeds(numbers, n)
            found = answer(
                text=tf.repeat(tf.constant(lines, tf.string), n),
                seed=tf.constant(seeds, tf.int32),
                temperature=tf.fill([len(seeds)], self.temperature),
                top_k=tf.fill([len(seeds)], self.top_k or 0),
                top_p=tf.fill([len(seeds)], self.top_p or 1.0),
            )
            warn_truncated(found["truncated"][::n])
            texts = map(as_str, found["translation"].numpy())
            return _rows(list(zip(texts, found["score"].numpy(), strict=True)), n)

        return results

    def _seeds(self, numbers, n):
        """Returns a seed for each of n samples of each line, a list of int."""
        return [
            int(np.random.SeedSequence([self.seed % 2**32, number, i]).generate_state(1)[0] >> 1)
            for number in numbers
            for i in range(n)
        ]


def _rows(items, n):
    return [items[start : start + n] for start in range(0, len(items), n)]
