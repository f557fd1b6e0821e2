"""CTranslate2: its search on our architecture, of random weights, and the translation of a file.

python tools/benchmarks/workers/ctranslate2_engine.py FUNCTION SETTINGS, the settings as JSON
"""

import math
import pathlib
import sys
import tempfile
import time

import common
import ctranslate2
import numpy as np
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
    spec.register_source_vocabulary(names_of(vocab))
    spec.register_target_vocabulary(names_of(vocab))
    spec.validate()
    spec.optimize()
    spec.save(folder)


def names_of(vocab):
    return ["<blank>", "<s>", "</s>", "<unk>"] + [f"t{i}" for i in range(vocab - 4)]


def write_shortlist(folder, vocab):
    """Writes the vocabulary map: source tokens, a tab, their targets; no token: of every text."""
    lists, frequent = common.shortlist_table(vocab)
    names = names_of(vocab)
    rows = {"": frequent} | dict(zip(names, lists, strict=True))
    lines = (f"{name}\t{' '.join(names[i] for i in row)}\n" for name, row in rows.items())
    pathlib.Path(folder, "vmap.txt").write_text("".join(lines))


def decode(size, dtype, shortlist, batch, beam, source, target, repeats, threads, parts):
    """A search of random weights, all outputs of one length."""
    *sizes, _ = common.SIZES[size]
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, *sizes)
        if shortlist:
            write_shortlist(folder, sizes[-1])
        engine = ctranslate2.Translator(
            folder, compute_type=dtype, **common.divide_threads(threads, parts)
        )
    ids = np.random.default_rng(1).integers(0, sizes[-1] - 4, (batch, source - 1))
    sentences = [[f"t{i}" for i in row] + ["</s>"] for row in ids]

    def search():
        return engine.translate_batch(
            sentences,
            beam_size=beam,
            length_penalty=0.6,
            max_decoding_length=target,
            min_decoding_length=target,
            max_batch_size=math.ceil(batch / parts),
            use_vmap=shortlist,
        )

    seconds = common.median_time(search, repeats)
    tokens = sum(len(result.hypotheses[0]) for result in search())
    return common.decoding_figures(seconds, tokens, batch, target)


def text_file(model, input, output, dtype, batch, beam, length_penalty, threads, parts):
    """A text file translated to a text file by our weights, with SentencePiece."""
    import sentencepiece  # noqa: PLC0415  a search of random weights does not need it

    engine = ctranslate2.Translator(
        model, compute_type=dtype, **common.divide_threads(threads, parts)
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=f"{model}/sentencepiece.model")
    engine.translate_batch([["</s>"]])
    start = time.perf_counter()
    with open(input, encoding="utf-8") as source, open(output, "w", encoding="utf-8") as target:
        lines = [line.rstrip("\n") for line in source]
        results = engine.translate_batch(
            [[*row, "</s>"] for row in pieces.encode(lines, out_type=str)],
            beam_size=beam,
            length_penalty=length_penalty,
            max_batch_size=batch,
        )
        for result in results:
            print(pieces.decode(result.hypotheses[0]), file=target)
    return {"sentences/s": len(lines) / (time.perf_counter() - start)}


if __name__ == "__main__":
    common.answer(globals()[sys.argv[1]])
