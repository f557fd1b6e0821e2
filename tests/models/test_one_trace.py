"""TensorFlow traces a function again if its first trace made variables, such as an optimizer's."""

import numpy as np

import t2t_keras as t2t


def test_a_training_step_is_traced_once():
    traces = []

    class Counting(t2t.Transformer):
        def train_step(self, data):
            traces.append(1)  # Python runs while the graph is made only
            return super().train_step(data)

    sizes = dict.fromkeys(["num_encoder_layers", "num_decoder_layers", "num_heads"], 1)
    model = Counting(t2t.TransformerConfig(50, model_dim=8, feed_forward_dim=16, **sizes))
    model.compile(t2t.adam(8), t2t.LabelSmoothedCrossEntropy(), metrics=[t2t.Perplexity()])
    ids = np.ones([4, 3], "int32")
    for _ in range(2):
        model.fit({"source_ids": ids, "target_ids": ids}, ids, batch_size=2, verbose=0)
    assert len(traces) == 1
    assert model.optimizer.iterations == 4
