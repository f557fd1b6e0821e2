"""Signatures of exported translators, parsers and classifiers: one row for each.

A row defines how the signature is made and tested, and the meaning of its outputs. The graphs, with
the inputs and outputs of each, are in `signature_graphs.py`. Exports, their verification and the
clients of exports read the rows and ignore outputs that no row names.
"""

import dataclasses
import functools
from collections.abc import Callable

from t2t_keras.serving import samples
from t2t_keras.serving import signature_graphs as graphs


@dataclasses.dataclass(frozen=True)
class Signature:
    """A signature: how it is made and tested, and the meaning of its outputs.

    Call it with a predictor to make its `tf.function`.
    """

    # function of a predictor, and of the functions of `calls`, to the `tf.function`
    make: Callable | None = None
    # function of a predictor and lines to the inputs of a request, see `samples.py`
    samples: Callable | None = None
    # output with the text, label or ids that a search or a classifier chose
    answer: str | None = None
    # output by which it chose: the score of each answer, or the probabilities of classes
    score: str | None = None
    details: tuple = ()  # outputs that describe each answer; the first counts tokens
    # the `Signature` that returns all answers, of which this one returns the best
    ranking: "Signature | None" = None
    # function of a predictor to the names of the signatures that this one calls
    calls: Callable | None = None

    def __call__(self, predictor, *called):
        return self.make(predictor, *called)

    @property
    def is_drawn(self):
        """Whether its answers are drawn at random."""
        return self.answer is not None and self.ranking is None


def _called(*names):
    """Returns a function of a predictor: the names, `marked_…` if its documents have marks."""
    marked = tuple(f"marked_{name}" for name in names)
    return lambda predictor: marked if predictor.protection.reads_marks else names


def _of_marked(make):
    """Returns the function of a signature of texts with marks, see `Translator.marked`."""
    return lambda translator: make(translator.marked())


CALLED = {
    "marked_serving_default": _of_marked(graphs.best),
    "marked_align": _of_marked(graphs.align),
}
"""{name: function} of those that others call and that are never exported."""


def _itself(signature):
    return dataclasses.replace(signature, ranking=signature)


def _all_of(make, inputs):
    return Signature(functools.partial(make, ranking=True), inputs, "translations", "scores")


_N_BEST = Signature(graphs.n_best, samples.text, "translations", "scores")
_PREFIXES = _all_of(graphs.prefix, samples.text_and_prefix)
_TERMS = _all_of(graphs.terms, samples.text_and_terms)
_DETAILS = ("tokens", "spans", "log_probabilities", "source_spans")

SIGNATURES = {
    "serving_default": Signature(
        graphs.best, samples.text, "translation", "score", ranking=_N_BEST
    ),
    "n_best": _itself(_N_BEST),
    "prefix": Signature(
        graphs.prefix, samples.text_and_prefix, "translation", "score", ranking=_PREFIXES
    ),
    "score": Signature(graphs.score, samples.text_and_translation),
    "decode_ids": _itself(Signature(graphs.decode_ids, samples.source_ids, "target_ids", "scores")),
    "align": Signature(graphs.align, samples.text_and_translation),
    "document": Signature(  # ranked as documents of one sentence
        graphs.document,
        samples.text,
        "translation",
        ranking=_N_BEST,
        calls=_called("serving_default", "align"),
    ),
}
"""{name: `Signature`} that an export of a translator has by default."""

ON_REQUEST = {
    "n_best_tokens": Signature(
        graphs.n_best_tokens, samples.text, "translations", "scores", _DETAILS, _N_BEST
    ),
    "sample": Signature(graphs.sample, samples.text_and_sampling, "translation", "score"),
    "terms": Signature(
        graphs.terms, samples.text_and_terms, "translation", "score", ranking=_TERMS
    ),
    "document_terms": Signature(
        graphs.document_terms,
        samples.text_and_terms,
        "translation",
        ranking=_TERMS,
        calls=_called("serving_default", "align"),
    ),
}
"""{name: `Signature`} that it has where they are named, since each is one more search."""

_PARSES = Signature(graphs.parser_n_best, samples.text, "trees", "scores")
_CLASSES = Signature(graphs.classifier_n_best, samples.text, "labels", "probabilities")

OF_TASKS = {
    "translation": SIGNATURES | ON_REQUEST,
    "parsing": {
        "serving_default": Signature(
            graphs.parser_best, samples.text, "tree", "score", ranking=_PARSES
        ),
        "n_best": _itself(_PARSES),
    },
    "classification": {
        "serving_default": Signature(
            graphs.classifier_best, samples.text, "label", "probabilities", ranking=_CLASSES
        ),
        "n_best": _itself(_CLASSES),
    },
}


def signatures_of(predictor):
    """Returns {name: `Signature`} of a predictor's task."""
    return OF_TASKS[predictor.task]


def signature_of(name, outputs):
    """Returns the `Signature` of an export of any task; None if none has such outputs.

    Args:
        name: its name.
        outputs: the names of its outputs; an export may contain more than are known here.
    """
    for signatures in OF_TASKS.values():
        signature = signatures.get(name, Signature())
        if {signature.answer, signature.score or signature.answer} <= set(outputs):
            return signature
    return None
