"""Common parts of predictors that search: n-best lists, beam search and sampling."""

import dataclasses

import numpy as np
import tensorflow as tf
from absl import logging

from t2t_keras import ops
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.decoding.compiled_loop import CompiledLoop
from t2t_keras.decoding.sampling import sample
from t2t_keras.decoding.token_records import AttendingModel, TokenRecords
from t2t_keras.decoding.token_rules import RuledModel, rules_of
from t2t_keras.errors import InputError
from t2t_keras.models.search_steps import has_room, require_own_steps, step_products
from t2t_keras.settings import COUNT, Range, SamplingSettings, settings_of
from t2t_keras.tasks.bundles import Predictor
from t2t_keras.tasks.text_io import as_str

PLAIN_CALLS = 100
"""Calls of a predictor on a GPU before XLA compiles its searches: fewer do not repay the compiling.
BUILD_NOTES.md has the measurement."""

EARLY_STOPS = {"n_best_patience": 2, "stopping_length_ratio": 1.5}
"""Arguments of `beam_search`: an n-best search ends after twice the steps of the best hypothesis,
and no search waits for hypotheses longer than 1.5 times the best finished one."""


@dataclasses.dataclass
class Searches:
    """The state that a predictor's searches share; a new one when a part of it is replaced."""

    calls: int = 0  # on a GPU so far
    without_xla: bool = False  # whether XLA failed to compile one


_SEED = settings_of(SamplingSettings)["seed"].allowed


class SearchPredictor(Predictor):
    """A predictor whose answers a beam search finds.

    Its requests `serving_default` and `n_best` give the best answer and `beam_size` answers to each
    text.

    Attributes:
        precompute: function (key, make) → tensor, which keeps tensors that depend only on weights,
            see `ops.with_step_products`. An export sets it on a copy.
        step_products: function of a model, see `models.search_steps.step_products`.
    """

    model_attributes = ("encode", "initial_state", "step", "reorder", "max_length")
    precompute = staticmethod(ops.compute_now)
    step_products = staticmethod(step_products)

    def check(self):
        super().check()
        require_own_steps(self.model)

    def run_on_gpu(self, call):
        """Returns call(), whose search XLA compiles after `PLAIN_CALLS` calls.

        If XLA fails, this and later searches run without it.
        """
        searches = self.searches()  # another thread may replace them
        searches.calls += 1
        if searches.calls <= PLAIN_CALLS or searches.without_xla:
            return call()
        try:
            with ops.traced_with(dataclasses.replace(ops.options(), compiled_search=True)):
                return call()
        except InputError:
            raise
        except Exception as error:  # of XLA, or of the input: then the plain search raises it
            reason = str(error).strip().partition("\n")[0]
        result = call()
        searches.without_xla = True
        logging.info("Searches continue without XLA, which cannot compile them: %s", reason)
        return result

    def check_n(self, n):
        """Returns n, or beam_size for None; raises InputError if n is out of range."""
        beam_size = self.settings.beam_size
        n = beam_size if n is None else n
        return Range(1, beam_size, whole=True, most_name="beam_size").check("n", n)

    def best_rows(self, n, **inputs):
        """Searches for the n best answers to each text.

        Args:
            n: int up to beam_size; None: beam_size.
            **inputs: as for `run`.

        Returns:
            For each text a list of n (answer, score), str and float, best first; and all outputs of
            the request.
        """
        n = self.check_n(n)
        # The 1-best search stops earlier. Its result is the same unless the longer search finds a
        # better hypothesis that the shorter one does not wait for.
        name = "serving_default" if n == 1 else "n_best"
        request, outputs = self.requests[name], self.run(name, **inputs)
        texts, scores = (
            x[:, np.newaxis] if x.shape.rank == 1 else x[:, :n]
            for x in (outputs[request.answer], outputs[request.score])
        )
        return [
            [(as_str(text), float(score)) for text, score in zip(*row, strict=True)]
            for row in zip(texts.numpy(), scores.numpy(), strict=True)
        ], outputs

    def drawn_rows(self, n, seed, temperature, top_k, top_p, **inputs):
        """Draws n samples of each text.

        Args:
            n, seed, temperature, top_k, top_p: as for `Translator.sample`.
            **inputs: text and other inputs of the request `sample`, string [batch].

        Returns:
            For each text a list of n (answer, score), str and float, in the order drawn; and all
            outputs of the request.

        Raises:
            InputError: if a setting is out of its range.
        """
        settings = {"temperature": temperature, "top_k": top_k, "top_p": top_p}
        temperature, top_k, top_p = SamplingSettings.checked(settings).values()
        n, count = COUNT.check("n", n), len(inputs["text"])
        request, outputs = (
            self.requests["sample"],
            self.run(
                "sample",
                seed=tf.constant(row_seeds(seed, count, n), tf.int32, [count * n, 2]),
                temperature=tf.fill([count * n], temperature),
                top_k=tf.fill([count * n], top_k or 0),
                top_p=tf.fill([count * n], top_p or 1.0),
                **{name: tf.repeat(column, n) for name, column in inputs.items()},
            ),
        )
        pairs = zip(outputs[request.answer].numpy(), outputs[request.score].numpy(), strict=True)
        drawn = [(as_str(text), float(score)) for text, score in pairs]
        return [drawn[i : i + n] for i in range(0, count * n, n)], outputs

    def find(
        self,
        model,
        source_ids,
        max_lengths,
        prefix_ids=None,
        constraint=None,
        has_text=None,
        draws=False,
        **options,
    ):
        """Returns the `Hypotheses` of a beam search over encoded sources, or of samples.

        Args:
            model: `SearchableModel`, the predictor's own or a wrapper of it.
            source_ids: int32 [batch, source], 0 on padding.
            max_lengths: int32 [batch], tokens.
            prefix_ids, constraint: as for `beam_search`; samples never contain `reserved` tokens.
            has_text: bool [batch, source], with it hypotheses have `TokenRecords`; or None.
            draws: whether to draw one sample of each source.
            **options: further arguments of `beam_search` or `sample`, whose seeds are int32
                [batch, 2], or [batch] in place of pairs with 0.
        """
        rules = rules_of(self.settings, self.tokenizer.eos_id)  # none with default settings
        reserved = None if constraint is None else constraint.reserved
        if rules:
            model = RuledModel(model, rules, prefix_ids, reserved)
        if has_text is not None:
            model, options["records"] = AttendingModel(model, has_text), TokenRecords
        beams = 1 if draws else self.settings.beam_size
        state = model.initial_state(model.encode(source_ids), beams)
        options |= {
            "bos_ids": tf.fill([tf.shape(max_lengths)[0]], self.tokenizer.bos_id),
            "eos_id": self.tokenizer.eos_id,
            "max_lengths": max_lengths,
            "prefix_ids": prefix_ids,
        }
        is_free = constraint is None and has_text is None
        if not draws and ops.options().compiled_search and is_free and has_room(model):
            options["loop"] = CompiledLoop(model)
        products = self.step_products(self.model)
        with ops.with_step_products(**products, precompute=self.precompute):
            if draws:
                seeds = tf.convert_to_tensor(options["seeds"], tf.int32)
                if seeds.shape.rank == 1:
                    seeds = tf.pad(seeds[:, tf.newaxis], [[0, 0], [0, 1]])
                options["seeds"] = seeds
                return sample(model.step, state, banned=reserved, **options)
            return beam_search(
                model.step,
                state,
                reorder=model.reorder,
                beam_size=beams,
                constraint=constraint,
                **options,
            )

    def searches(self):
        """Returns the `Searches` of the present model and settings."""
        graphs = self.graphs  # another thread may replace it
        if "searches" not in graphs:
            graphs["searches"] = Searches()
        return graphs["searches"]


def row_seeds(seed, count, n):
    """Returns the two numbers of each sample's seed, a list of count · n pairs, text by text.

    They are (seed, number of the row), or, if each text has its own seed, (seed of the text, number
    of the sample).

    Raises:
        InputError: if a seed is not a 32-bit integer, or there is not one for each text.
    """
    if getattr(seed, "ndim", 1) == 0:  # an array or a tensor of one number
        seed = np.asarray(seed).item()
    if not hasattr(seed, "__iter__"):
        seed = _SEED.check("seed", seed)
        return [(seed, row) for row in range(count * n)]
    seeds = [_SEED.check(f"seed[{i}]", x) for i, x in enumerate(seed)]
    if len(seeds) != count:
        raise InputError(f"seed has {len(seeds)} numbers for {count} texts: give one for each.")
    return [(x, j) for x in seeds for j in range(n)]
