"""transformers' `generate` on a MarianMT of the same size, random weights and a forced length."""

import torch
from common import SIZES, answer, decoding_figures, median_time
from transformers import MarianConfig, MarianMTModel


def measure(size, dtype, batch, beam, source, target, repeats, threads, lock=None):
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high")  # TF32 on GPUs, which is TensorFlow's default
    device = "cuda" if torch.cuda.is_available() else "cpu"
    layers, dim, inner, heads, vocab, _ = SIZES[size]
    config = MarianConfig(
        vocab_size=vocab,
        d_model=dim,
        max_position_embeddings=512,
        pad_token_id=vocab - 1,
        decoder_start_token_id=vocab - 1,
        eos_token_id=0,
        forced_eos_token_id=None,
        **{f"{side}_layers": layers for side in ("encoder", "decoder")},
        **{f"{side}_ffn_dim": inner for side in ("encoder", "decoder")},
        **{f"{side}_attention_heads": heads for side in ("encoder", "decoder")},
    )
    model = MarianMTModel(config).to(device, getattr(torch, dtype)).eval()
    ids = torch.randint(1, vocab - 1, (batch, source), device=device)

    def decode():
        with torch.inference_mode():
            return model.generate(
                ids, num_beams=beam, min_new_tokens=target, max_new_tokens=target, do_sample=False
            ).cpu()

    seconds = median_time(decode, repeats, lock=lock)
    tokens = decode()[:, 1:].numel()  # behind the start
    assert tokens == batch * target, "an output has another length"
    return decoding_figures(seconds, tokens, batch, target)


answer(measure)
