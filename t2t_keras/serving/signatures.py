"""Signatures of exported predictors: one for each row of the tables of their requests.

Exports, their verification and the clients of exports read the rows, see `tasks.requests`, and
ignore outputs that no row names. Every input is required, since requests over REST must give all
inputs.
"""

from t2t_keras.graphs import graph_function
from t2t_keras.serving.request_checks import validated
from t2t_keras.tasks.bundles import PREDICTORS
from t2t_keras.tasks.translation import Translator

SIGNATURES = {name: row for name, row in Translator.requests.items() if not row.on_request}
"""{name: `RequestKind`} that an export of a translator has by default."""


def signature_function(request, predictor):
    """Returns the `tf.function` of requests to a predictor, which checks its inputs."""
    inputs = request.inputs_of(predictor)

    @graph_function(input_signature=[x.spec for x in inputs])
    def signature(*values):
        given = dict(zip(inputs, values, strict=True))
        given = validated(predictor.tokenizer.vocab_size, given)
        outputs = request.graph(predictor, **given)
        return {name: outputs[name] for name in request.outputs or outputs}

    return signature


def signature_of(name, outputs):
    """Returns the `RequestKind` of an export of any task; None if none has such outputs.

    `outputs` are names; an export may contain more than are known here.
    """
    for predictor in PREDICTORS.values():
        row = predictor.requests.get(name)
        if row and row.answer and {row.answer, row.score or row.answer} <= set(outputs):
            return row
    return None
