"""The paper's base model on WMT14 English–German: every field of a run, at the paper's value.

The other configs start from this one and state their changes; `--explain_config` lists how a config
differs from it.
"""

import dataclasses

import ml_collections
from ml_collections import config_dict

from t2t_keras.models.config import TransformerConfig


def sizes(config):
    """Returns the fields of a `TransformerConfig` except head widths, which the others imply."""
    fields = dataclasses.asdict(config)
    del fields["key_dim"], fields["value_dim"]
    return fields


def get_config():
    """Returns the config of the paper's base model (sections 5 and 6.1)."""
    return ml_collections.ConfigDict(
        {
            "task": "translation",  # or "parsing", "classification": see pipelines/tasks.py
            "model": sizes(TransformerConfig.base(vocab_size=37_000))
            | {
                "key_dim": config_dict.placeholder(int),  # None: model_dim / heads
                "value_dim": config_dict.placeholder(int),  # None: key_dim
                "attention_window": config_dict.placeholder(int),  # None: no window
                "source_vocab_size": config_dict.placeholder(int),  # None: vocab_size
            },
            "data": {
                # A TFDS translation dataset by name or, if folder is not empty, a folder of aligned
                # text files, where split "train" is train.*.en and train.*.de, plain or .gz.
                "tfds": "wmt14_translate/de-en",
                "tfds_import": "",  # module to import first, which registers a dataset of your own
                "tfds_data_dir": "",  # where TFDS keeps its datasets; empty: its own default
                "folder": "",
                "source_language": "en",
                "target_language": "de",
                "train_split": "train",
                "validation_split": "validation",
                "test_split": "test",
                "errors": "strict",  # or "replace": U+FFFD for what is not UTF-8 in a folder's text
                "tokenizer": "bpe",  # or "unigram", "wordpiece"
                "bpe_dropout": 0.0,  # fraction of merges left out at random in the training text
                "subword_copies": 1,  # copies of the training text, each segmented at random
                "max_length": 256,  # longest training sentence, in tokens; longer pairs are dropped
                "max_length_ratio": 4.0,  # a side longer than this many times the other: dropped
                "batching": "buckets",  # or "packed": several pairs in a row
                # Source tokens of a global batch, and as many target tokens; 0 if
                # tokens_per_replica is set, which gives those of each device's part.
                "tokens_per_batch": 25_000,
                "tokens_per_replica": 0,
            },
            "train": {
                "steps": 100_000,
                "seed": 1,
                "warmup_steps": 4_000,
                "learning_rate_scale": 1.0,  # times d_model^-0.5 · min(step^-0.5, …): equation 3
                "decay_fraction": 0.0,  # of the steps: the last ones, with linear decay to 0
                "optimizer": "adam",  # or "muon": orthogonal updates of the matrices
                "beta_1": 0.9,
                "beta_2": 0.98,
                "epsilon": 1e-9,
                "weight_decay": 0.0,  # decoupled: a step subtracts rate · weight_decay · weight
                "global_clipnorm": 0.0,  # longer gradients are scaled down to this norm; 0: none
                "ema_decay": 0.0,  # of an exponential moving average of the weights; 0: none
                "micro_batches": 1,  # gradient accumulation: parts of each device's batch
                "parallel_micro_batches": 1,  # run in parallel, for small models on CPUs
                "label_smoothing": 0.1,
                # "bfloat16" or "float16": matrix products in it, weights and loss in float32.
                # float16 is for GPUs without bfloat16 (V100, T4), with loss scaling. Empty: all
                # in float32.
                "mixed_precision": "",
                "tf32": True,  # float32 products with 10 bits of mantissa, on GPUs that have TF32
                "xla": False,  # XLA compiles the steps, for at most 16 shapes of padded batches
                "steps_per_execution": 1,  # steps that one call runs; more are faster on GPUs
                # The same bits at every run, at some cost in speed: on GPUs TensorFlow then takes
                # other kernels for the loss and for the gradients of embeddings.
                "deterministic": False,
                "max_grad_norm": 1e4,  # training stops with an error above it: it has diverged
                "log_every": 100,
                "validate_every": 5_000,
                # Translated for BLEU at each validation, on the first of several GPUs; 0: none.
                "validation_sentences": 1_000,
                "checkpoint_every": 1_000,  # steps
                "checkpoint_minutes": 10.0,  # and whenever this many minutes have passed; 0: never
                "keep_checkpoints": 20,
                "average_checkpoints": 5,  # checkpoints averaged at the end of training; 0: none
            },
            "decode": {
                "beam_size": 4,
                "length_penalty": 0.6,
                "max_extra_tokens": 50,  # tokens by which a translation may exceed its source
                "max_target_length": config_dict.placeholder(int),  # of a translation; None: any
                "length_penalty_offset": 5.0,  # k of ((k + length) / (k + 1))^α; 0: length^α
            },
            # kNN-MT: predictions interpolated with nearest neighbours in the training text.
            "knn": {
                "k": 0,  # nearest neighbours that predict each token; 0: the model alone
                "temperature": 20.0,  # T: lower values favor the nearest
                "interpolation": 0.25,  # λ, the weight of their predictions
                "subset_size": 8_192,  # tokens of similar pairs that a sentence is compared with
            },
        }
    )
