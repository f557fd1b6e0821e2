"""The built-in corpus in both directions: one model that translates English and German."""

import pytest

from pipelines import train
from pipelines.configs import grammar_en_de
from pipelines.workdir import Workdir
from t2t_keras.training.metrics_log import MetricsLog


@pytest.mark.slow(minutes=8)
def test_one_model_learns_the_grammar_in_both_directions(tmp_path):
    config = grammar_en_de.get_config()
    config.data.corpora = "english_german:en=de"
    config.data.tfds_data_dir = str(tmp_path / "datasets")
    config.train.update(steps=3_000, validate_every=3_000, validation_sentences=200)
    train.train(config, Workdir(tmp_path / "run"))
    log = MetricsLog(tmp_path / "run", step=3_000)
    scores = {
        name: log.values(f"validation_bleu{name}")[-1][1] for name in ("_en-de", "_de-en", "")
    }
    assert min(scores["_en-de"], scores["_de-en"]) > 80, scores
    assert scores[""] == pytest.approx((scores["_en-de"] + scores["_de-en"]) / 2, rel=1e-3)
