"""PyTorch's `nn.Transformer`: a training step on a full batch, as a user of it would write it.

Dropout is ours and the paper's: none of attention weights and inside of feed-forward networks. It
keeps what the layer has beyond the paper, biases of projections and two further norms.
"""

import math

import torch
from common import SIZES, TRAINING_LENGTH, answer, median_time


class Model(torch.nn.Module):
    """Tied embeddings and sinusoidal positions around `nn.Transformer`."""

    def __init__(self, layers, dim, inner, heads, vocab):
        super().__init__()
        self.scale = dim**0.5
        self.embedding = torch.nn.Embedding(vocab, dim)
        torch.nn.init.normal_(self.embedding.weight, std=dim**-0.5)
        self.transformer = torch.nn.Transformer(
            dim, heads, layers, layers, inner, 0.1, batch_first=True
        )
        for layer in [*self.transformer.encoder.layers, *self.transformer.decoder.layers]:
            layer.dropout.p = 0.0  # between the two products of a feed-forward network
        for module in self.transformer.modules():
            if isinstance(module, torch.nn.MultiheadAttention):
                module.dropout = 0.0
        self.dropout = torch.nn.Dropout(0.1)
        rates = torch.exp(torch.arange(0, dim, 2) * (-math.log(10_000) / dim))
        angles = torch.arange(512)[:, None] * rates
        waves = torch.stack([torch.sin(angles), torch.cos(angles)], -1)
        self.register_buffer("positions", waves.flatten(1))

    def embed(self, ids):
        x = self.embedding(ids) * self.scale + self.positions[: ids.shape[1]]
        return self.dropout(x)

    def forward(self, source, target):
        length = target.shape[1]
        square = torch.full((length, length), float("-inf"), device=target.device)
        causal = torch.triu(square, 1)
        padding = (source == 0).float() * -1e9
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
        )
        return hidden @ self.embedding.weight.T


def measure(size, dtype, repeats, threads, compile=False, lock=None):
    torch.manual_seed(0)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision("high")  # TF32 on GPUs, which is TensorFlow's default
    device = "cuda" if torch.cuda.is_available() else "cpu"
    *sizes, batch = SIZES[size]
    vocab = sizes[-1]
    model = Model(*sizes).to(device)

    def loss_of(source, target):
        logits = model(source, target)
        return torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), target.flatten(), label_smoothing=0.1, ignore_index=0
        )

    if compile:
        loss_of = torch.compile(loss_of)
    optimizer = torch.optim.Adam(model.parameters(), 1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)
    source, target = torch.randint(1, vocab, (2, batch, TRAINING_LENGTH), device=device)

    def step():
        optimizer.zero_grad()
        with torch.autocast(device, torch.bfloat16, enabled=dtype == "bfloat16"):
            loss = loss_of(source, target)
        loss.backward()
        optimizer.step()

    wait = torch.cuda.synchronize if device == "cuda" else None
    seconds = median_time(step, repeats, warm_up=2, wait=wait, compiles=compile, lock=lock)
    return {"target tokens/s": batch * TRAINING_LENGTH / seconds}


answer(measure)
