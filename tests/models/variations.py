"""Fields of a config, of the paper's model and of variations of it."""

VARIATIONS = {
    "paper": {},
    "learned_hard": {
        "position_embedding": "learned",
        "max_positions": 9,
        "norm": "pre",
        "attention_weights": "hard",
    },
    "rotary_unscaled": {"position_embedding": "rotary", "attention_score": "dot_product"},
    "additive_equal_forms": {
        "attention_score": "additive",
        "fused_qkv": False,
        "feed_forward": "convolution",
    },
    "relative": {"position_embedding": "relative", "max_relative_distance": 2, "value_dim": 6},
    "fairseq_sharp": {
        "position_embedding": "fairseq_sinusoidal",
        "norm": "pre",
        "attention_temperature": 1 / 3,
    },
    "local_rotary": {"position_embedding": "rotary", "attention_window": 3},
    "local_relative": {
        "position_embedding": "relative",
        "max_relative_distance": 3,
        "attention_window": 4,
    },
    "pretrained": {
        "activation": "silu",
        "attention_bias": True,
        "embedding_sharing": "none",
        "source_vocab_size": 30,
        "scale_embedding": False,
        "output_bias": True,
    },
    "combined": {
        "attention_window": 4,
        "attention_score": "additive",
        "attention_temperature": 0.5,
        "fused_qkv": False,
        "feed_forward": "convolution",
        "norm": "pre",
        "activation": "gelu",
        "attention_bias": True,
        "embedding_sharing": "target",
        "key_dim": 5,
        "value_dim": 3,
    },
}
