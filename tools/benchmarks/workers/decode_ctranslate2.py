"""CTranslate2's search on the same architecture with random weights and a forced length."""

import math
import pathlib
import tempfile

import ctranslate2
import numpy as np
from common import (
    SIZES,
    answer,
    decoding_figures,
    divide_threads,
    median_time,
    shortlist_table,
)
from ctranslate2.specs import TransformerSpec


def write_model(folder, layers, dim, inner, heads, vocab):
    rng = np.random.default_rng(0)
    spec = TransformerSpec.from_config(layers, heads, pre_norm=False)

    def linear(s, outputs, inputs):
        scale = (2 / (inputs + outputs)) ** 0.5
        s.weight = rng.normal(0, scale, (outputs, inputs)).astype("float32")
        s.bias = np.zeros(outputs, "float32")

    def norm(s):
        s.gamma, s.beta = np.ones(dim, "float32"), np.zeros(dim, "float32")

    def feed_forward(s):
        linear(s.linear_0, inner, dim)
        linear(s.linear_1, dim, inner)
        norm(s.layer_norm)

    angles = np.arange(512)[:, None] * np.exp(np.arange(0, dim, 2) * (-np.log(10_000) / dim))
    table = np.stack([np.sin(angles), np.cos(angles)], -1).reshape(512, dim).astype("float32")
    shared = rng.normal(0, dim**-0.5, (vocab, dim)).astype("float32")
    spec.encoder.embeddings[0].weight = spec.decoder.embeddings.weight = shared
    for side in (spec.encoder, spec.decoder):
        side.scale_embeddings, side.position_encodings.encodings = True, table
        for layer in side.layer:
            linear(layer.self_attention.linear[0], 3 * dim, dim)
            linear(layer.self_attention.linear[1], dim, dim)
            norm(layer.self_attention.layer_norm)
            feed_forward(layer.ffn)
    for layer in spec.decoder.layer:
        cross = layer.attention
        linear(cross.linear[0], dim, dim)
        linear(cross.linear[1], 2 * dim, dim)
        linear(cross.linear[2], dim, dim)
        norm(cross.layer_norm)
    linear(spec.decoder.projection, vocab, dim)
    spec.decoder.projection.weight = shared
    tokens = ["<blank>", "<s>", "</s>", "<unk>"] + [f"t{i}" for i in range(vocab - 4)]
    spec.register_source_vocabulary(tokens)
    spec.register_target_vocabulary(tokens)
    spec.validate()
    spec.optimize()
    spec.save(folder)


def write_shortlist(folder, vocab):
    """Writes the vocabulary map: source tokens, a tab, their targets; no token: of every text."""
    lists, frequent = shortlist_table(vocab)
    names = ["<blank>", "<s>", "</s>", "<unk>"] + [f"t{i}" for i in range(vocab - 4)]
    rows = {"": frequent} | dict(zip(names, lists, strict=True))
    lines = (f"{name}\t{' '.join(names[i] for i in row)}\n" for name, row in rows.items())
    pathlib.Path(folder, "vmap.txt").write_text("".join(lines))


def measure(size, dtype, shortlist, batch, beam, source, target, repeats, threads, parts):
    *sizes, _ = SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, *sizes)
        if shortlist:
            write_shortlist(folder, sizes[-1])
        engine = ctranslate2.Translator(
            folder, compute_type=dtype, **divide_threads(threads, parts)
        )
    ids = np.random.default_rng(1).integers(0, sizes[-1] - 4, (batch, source - 1))
    sentences = [[f"t{i}" for i in row] + ["</s>"] for row in ids]

    def decode():
        return engine.translate_batch(
            sentences,
            beam_size=beam,
            length_penalty=0.6,
            max_decoding_length=target,
            min_decoding_length=target,
            max_batch_size=math.ceil(batch / parts),
            use_vmap=shortlist,
        )

    seconds = median_time(decode, repeats)
    tokens = sum(len(result.hypotheses[0]) for result in decode())
    return decoding_figures(seconds, tokens, batch, target)


answer(measure)
