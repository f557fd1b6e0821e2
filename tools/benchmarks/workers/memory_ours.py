"""The most memory that training takes: one step of a small model with a large vocabulary."""

import resource

import numpy as np
from common import answer

from t2t_keras import LabelSmoothedCrossEntropy, Transformer, TransformerConfig, adam


def measure(tokens, vocab, length, threads):
    model = Transformer(TransformerConfig.tiny(vocab, num_encoder_layers=1, num_decoder_layers=1))
    model.compile(optimizer=adam(model.config.model_dim), loss=LabelSmoothedCrossEntropy(0.1))

    def most():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

    def step(rows):
        ids = np.ones((rows, length), "int32")
        inputs = {"source_ids": ids, "target_ids": ids}
        model.train_on_batch(inputs, ids, np.ones_like(ids, "float32"))

    step(1)
    before = most()
    step(tokens // length)
    return {"MiB": most() - before}


answer(measure)
