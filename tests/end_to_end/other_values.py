"""Another value for every field of a config, by what it must change."""

MODEL = {
    "vocab_size": 331,
    "num_encoder_layers": 2,
    "num_decoder_layers": 2,
    "model_dim": 32,
    "feed_forward_dim": 48,
    "num_heads": 4,
    "key_dim": 6,
    "value_dim": 6,
    "dropout": 0.4,
    "position_embedding": "sinusoidal",
    "norm": "pre",
    "norm_epsilon": 0.1,
    "attention_score": "additive",
    "attention_weights": "hard",
    "attention_temperature": 0.25,
    "attention_window": 2,
    "fused_qkv": False,
    "feed_forward": "convolution",
    "attention_dropout": 0.5,
    "activation_dropout": 0.5,
    "activation": "silu",
    "attention_bias": True,
    "embedding_sharing": "target",
    "scale_embedding": False,
    "output_bias": True,
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
    "tokens_per_replica": 150,
    "placeholders": 4,
}
OPTIMIZER = {
    "decay_fraction": 1.0,
    "warmup_steps": 3,
    "learning_rate_scale": 2.0,
    "beta_1": 0.8,
    "beta_2": 0.9,
    "epsilon": 0.1,
    "weight_decay": 0.5,
    "global_clipnorm": 0.05,
    "optimizer": "muon",
}
RUN = {
    "seed": 2,
    "steps": 6,
    "log_every": 1,
    "validate_every": 1,
    "validation_sentences": 2,
    "label_smoothing": 0.2,
    "checkpoint_every": 1,
    "checkpoint_minutes": 1e-9,
    "keep_checkpoints": 3,
    "average_checkpoints": 1,
    "ema_decay": 0.9,
    "micro_batches": 2,
    "steps_per_execution": 3,
}
DECODE = {
    "beam_size": 1,
    "length_penalty": 5.0,
    "max_extra_tokens": 1,
    "max_target_length": 2,
    "length_penalty_offset": 0.0,
}
KNN = {"k": 1, "temperature": 0.01, "interpolation": 0.9, "subset_size": 7}
# A run or two each; test_checkpoints.py looks at them, too. The other fields say when something is
# done that all tests of whole runs look at; test_losses_and_metrics.py looks at the smoothing,
# test_micro_batches.py at micro-batches, test_callbacks.py at several steps together.
SLOW = {
    "micro_batches",
    "steps_per_execution",
    "keep_checkpoints",
    "steps",
    "log_every",
    "validate_every",
    "validation_sentences",
    "label_smoothing",
    "checkpoint_every",
    "checkpoint_minutes",
    "average_checkpoints",
}
ELSEWHERE = {
    "stop_above_grad_norm",
    "tfds",
    "errors",  # test_binaries.py
    "protected_pattern",  # tests/tasks/test_spans.py
    "tfds_import",
    "tfds_data_dir",
    "validation_split",
    "test_split",
    "max_positions",
    "max_relative_distance",  # tests/models/test_variations.py
    "source_vocab_size",  # tests/models/test_variations.py
    "parallel_micro_batches",
    "corpora",  # test_many_languages.py
    "sampling_temperature",  # tests/data/test_mixture.py
    "placeholder_fraction",  # test_placeholder_tokens.py
    "xla",  # test_accelerators.py
}
NUMERICS = {"mixed_precision", "deterministic", "tf32"}  # test_numerics.py
