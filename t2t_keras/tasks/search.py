"""What `Translator` and `Parser` share: settings, n-best lists and the beam search."""

import tensorflow as tf

from t2t_keras import ops
from t2t_keras.decoding.beam_search import beam_search
from t2t_keras.settings import Range
from t2t_keras.tasks.bundles import Predictor
from t2t_keras.tasks.text_io import as_str, check_vocab_size


class SearchPredictor(Predictor):
    """A predictor whose answers a beam search finds; `settings` become attributes.

    A subclass has the graphs `_best`, of the best answers to a batch, and `_beam`, of `beam_size`
    answers: each returns `texts`, string [batch, n_best], and `scores`, float32 [batch, n_best].
    """

    def __init__(self, model, tokenizer, **settings):
        super().__init__(name=type(self).__name__.lower())
        check_vocab_size(model, tokenizer)
        for name, value in self.check_settings(settings).items():
            setattr(self, name, value)
        self.model = model
        self.tokenizer = tokenizer
        self.precompute = ops.compute_now

    def best_texts(self, *inputs, graph=None):
        """Returns the best answer to each text, a list of str, and what the graph returned.

        graph: function of the inputs; None: `_best`.
        """
        found = (graph or self._best)(*inputs)
        return [as_str(text) for (text,) in found.texts.numpy()], found

    def best_rows(self, n, *inputs, graphs=None):
        """Returns n answers to each text, best first, and what the graph returned.

        Each is (text, score), str and float. n: int up to beam_size; None: beam_size. graphs: two
        functions of the inputs; None: `_best` and `_beam`.
        """
        n = self.beam_size if n is None else n
        n = Range(1, self.beam_size, whole=True, most_name="beam_size").check("n", n)
        # The 1-best search stops earlier. Its result is the same unless the longer search finds a
        # better hypothesis that the shorter one does not wait for.
        best, beam = graphs or (self._best, self._beam)
        found = (best if n == 1 else beam)(*inputs)
        rows = zip(found.texts[:, :n].numpy(), found.scores[:, :n].numpy(), strict=True)
        return [
            [(as_str(text), float(score)) for text, score in zip(*row, strict=True)] for row in rows
        ], found

    def run_beam_search(self, state, max_lengths, n_best, **options):
        """Returns the `Hypotheses` [batch, n_best] of a beam search.

        Args:
            state: what the model's `initial_state` returned.
            max_lengths: int32 [batch], tokens.
            n_best: int up to beam_size.
            **options: further arguments of `beam_search`, by default the model's `step` and
                `reorder`.
        """
        batch = tf.shape(max_lengths)[0]
        options = {"step": self.model.step, "reorder": self.model.reorder} | options

        def search():
            return beam_search(
                state=state,
                bos_ids=tf.fill([batch], self.tokenizer.bos_id),
                eos_id=self.tokenizer.eos_id,
                beam_size=self.beam_size,
                max_lengths=max_lengths,
                n_best=n_best,
                **options,
            )

        return self.model.run_search(search, batch * self.beam_size, precompute=self.precompute)
