"""A text file translated to a text file by CTranslate2 and SentencePiece, with our weights."""

import time

import ctranslate2
import sentencepiece
from common import answer, divide_threads


def measure(model, input, output, dtype, batch, beam, length_penalty, threads, parts):
    engine = ctranslate2.Translator(model, compute_type=dtype, **divide_threads(threads, parts))
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


answer(measure)
