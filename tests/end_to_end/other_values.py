"""Another value for every field of a config, by what it must change."""

MODEL = {
    "vocab_size": 331,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "model_dim": 32,
    "feed_forward_dim": 48,
    "heads": 4,
    "key_dim": 6,
    "value_dim": 6,
    "dropout": 0.4,
    "positions": "sinusoidal",
    "residual": "pre_norm",
    "norm_epsilon": 0.1,
    "scoring": "additive",
    "selection": "hard",
    "inverse_temperature": 4.0,
    "window": 2,
    "projections": "separate",
    "feed_forward": "convolution",
    "attention_dropout": 0.5,
    "activation_dropout": 0.5,
    "source_word_dropout": 0.5,
    "target_word_dropout": 0.5,
    "init_scale": 0.5,
}
DATA = {
    "folder": "other",
    "source_language": "fr",
    "target_language": "fr",
    "train_split": "more",
    "tokenizer": "unigram",
    "bpe_dropout": 0.5,
    "subword_copies": 2,
    "max_length": 20,
    "max_length_ratio": 1.2,
    "batching": "packed",
    "tokens_per_batch": 150,
}
OPTIMIZER = {
    "cooldown_share": 1.0,
    "warmup_steps": 3,
    "learning_rate_scale": 2.0,
    "beta_1": 0.8,
    "beta_2": 0.9,
    "epsilon": 0.1,
    "weight_decay": 0.5,
    "clip_norm": 0.05,
    "optimizer": "muon",
}
RUN = {
    "seed": 2,
    "steps": 6,
    "log_every": 1,
    "validate_every": 1,
    "validation_sentences": 2,
    "label_smoothing": 0.2,
    "r_drop": 2.0,
    "r_drop_from": 2,
    "both_directions_until": 2,
    "checkpoint_every": 1,
    "checkpoint_minutes": 1e-9,
    "keep_checkpoints": 3,
    "average_last": 1,
    "ema_decay": 0.9,
    "micro_batches": 2,
}
DECODE = {"beam_size": 1, "length_penalty": 5.0, "extra_length": 1}
KNN = {"k": 1, "temperature": 0.01, "interpolation": 0.9, "subset_size": 7}
# Two runs, or two stages, each; test_stages.py and test_checkpoints.py look at them, too. The other
# fields say when something is done that all tests of whole runs look at.
SLOW = {
    "r_drop_from",
    "both_directions_until",
    "keep_checkpoints",
    "steps",
    "log_every",
    "validate_every",
    "validation_sentences",
    "checkpoint_every",
    "average_last",
}
ELSEWHERE = {
    "largest_gradient_norm",
    "tfds",
    "tfds_data_dir",
    "validation_split",
    "test_split",
    "max_positions",
    "parts_at_once",
}
NUMERICS = {"mixed_precision", "deterministic"}  # test_numerics.py
