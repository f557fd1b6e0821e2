"""The paper's experiments, checked by a dry run on mock data."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from pipelines import experiment
from pipelines.configs import (
    imdb_reviews,
    wmt14_en_de_base,
    wmt14_en_de_big,
    wmt14_en_fr_base,
    wmt14_en_fr_big,
)
from pipelines.workdir import Workdir
from t2t_keras.data.streams import training_batches

# Table 3, base and big; sections 5.1 to 5.4 and 6.1.
BASE = {
    "num_encoder_layers": 6, "num_decoder_layers": 6, "model_dim": 512, "feed_forward_dim": 2048,
    "num_heads": 8, "dropout": 0.1, "position_embedding": "sinusoidal", "norm": "post",
    "attention_dropout": 0.0, "activation_dropout": 0.0,
}  # fmt: skip
BIG = BASE | {"model_dim": 1024, "feed_forward_dim": 4096, "num_heads": 16, "dropout": 0.3}
TRAIN = {
    "warmup_steps": 4_000, "learning_rate_scale": 1.0, "beta_1": 0.9, "beta_2": 0.98,
    "epsilon": 1e-9, "weight_decay": 0.0, "label_smoothing": 0.1, "ema_decay": 0.0,
}  # fmt: skip
DECODE = {
    "beam_size": 4, "length_penalty": 0.6, "max_extra_tokens": 50, "max_target_length": None,
    "min_target_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0,
    "length_penalty_offset": 5.0, "protected_pattern": "",  # Wu et al. 2016, equation 14
}  # fmt: skip

EXPERIMENTS = [
    (wmt14_en_de_base, BASE, {"steps": 100_000, "average_checkpoints": 5}, 37_000, "de"),
    (wmt14_en_de_big, BIG, {"steps": 300_000, "average_checkpoints": 20}, 37_000, "de"),
    (wmt14_en_fr_base, BASE, {"steps": 100_000, "average_checkpoints": 5}, 32_000, "fr"),
    (wmt14_en_fr_big, BIG | {"dropout": 0.1}, {"steps": 300_000, "average_checkpoints": 20}, 32_000,
     "fr"),
]  # fmt: skip


@pytest.mark.parametrize(("module", "model", "train", "vocab_size", "language"), EXPERIMENTS)
def test_the_constants_are_the_papers(module, model, train, vocab_size, language):
    config = module.get_config()
    assert {name: config.model[name] for name in BASE} == model
    assert {name: config.train[name] for name in TRAIN} == TRAIN
    assert {name: config.train[name] for name in train} == train
    assert dict(config.decode) == DECODE
    assert config.model.vocab_size == vocab_size
    assert config.data.tokens_per_batch == 25_000
    assert config.data.bpe_dropout == 0
    assert config.data.subword_copies == 1
    assert config.data.tfds == f"wmt14_translate/{language}-en"
    assert config.data.tokenizer == {"de": "bpe", "fr": "wordpiece"}[language]
    experiment.check(config)


@pytest.mark.slow
@pytest.mark.parametrize(("module", "changes"), [
    (wmt14_en_fr_big, {"model.num_encoder_layers": 1, "model.num_decoder_layers": 1}),
    (imdb_reviews, {"model.attention_window": 16}),
])  # fmt: skip
def test_a_dry_run_on_mock_data(module, changes, tmp_path):
    config = module.get_config()
    small = {"model.vocab_size": 330, "data.tfds_data_dir": str(tmp_path)}  # mock text has no more
    config.update_from_flattened_dict(small | changes)
    with tfds.testing.mock_data(num_examples=40):
        workdir, task = Workdir(tmp_path / "work"), experiment.check(config)
        experiment.prepare(task, workdir)
        assert len(task.evaluation_examples(config.data.test_split, 5)[0]) == 5
    batcher = task.make_batcher(replicas=1)
    batches = training_batches(workdir.tokens, config.data.train_split, batcher, seed=1)
    model = task.make_model()
    experiment.compile_model(task, model)
    history = model.fit(batches, steps_per_epoch=2, verbose=0).history
    assert np.isfinite(history["loss"][0])
