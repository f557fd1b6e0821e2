"""Shared code of our workers: models of the peers' sizes."""

from common import SIZES

from t2t_keras import Transformer, TransformerConfig, Translator
from t2t_keras.data.word_piece import WordPieceTokenizer


def config(size):
    """Returns the `TransformerConfig` of a size."""
    layers, dim, inner, heads, vocab, _ = SIZES[size]
    return TransformerConfig(
        vocab,
        num_encoder_layers=layers,
        num_decoder_layers=layers,
        model_dim=dim,
        feed_forward_dim=inner,
        num_heads=heads,
    )


def endless_translator(size, beam_size, source_length, target_length, dtype="float32"):
    """Returns a `Translator` of random weights that always takes `target_length` tokens.

    The vectors of the end and of padding are 0, and so are their logits: never among the best.
    """
    model = Transformer(config(size), dtype=dtype)
    matrix = model.embedding.matrix
    tokenizer = _tokenizer(matrix.shape[0])
    values = matrix.numpy()
    values[[tokenizer.pad_id, tokenizer.eos_id]] = 0
    matrix.assign(values)
    max_extra_tokens = target_length - source_length
    return Translator(model, tokenizer, beam_size, max_extra_tokens=max_extra_tokens)


def _tokenizer(vocab_size):
    special = ["<pad>", "</s>", "<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = [*special, *(f"w{i}" for i in range(vocab_size - len(special)))]
    return WordPieceTokenizer("wordpiece", "\n".join(pieces).encode())
