"""Settings that cannot work are refused before anything is done."""

import pytest

from pipelines import experiment
from pipelines.workdir import Workdir
from t2t_keras.data.tokenizers import load_tokenizer
from t2t_keras.errors import InputError
from tests.end_to_end.small_config import small_config

NAN = float("nan")


@pytest.mark.parametrize(("changes", "message"), [
    ({"data.batching": "piles"}, "data.batching is 'piles'"),
    ({"data.tokenizer": "wordpiece", "data.bpe_dropout": 0.1}, "a wordpiece vocabulary"),
    ({"train.average_checkpoints": 3}, "train.keep_checkpoints is 2, fewer than"),
    ({"data.max_length": 61}, "data.max_length is 61, more than model.max_positions 60"),
    ({"train.warmup_steps": 0}, "warmup_steps is 0"),
    ({"train.label_smoothing": 1.5}, "smoothing is 1.5"),
    ({"train.ema_decay": 1.0}, "ema_decay is 1.0"),
    ({"train.optimizer": "sgd"}, "optimizer is .sgd.: give one of adam, muon"),
    ({"train.steps": 0}, "train.steps is 0"),
    ({"train.mixed_precision": "True"},
     "mixed_precision is 'True': give one of bfloat16, float16, '' .empty."),
    ({"data.tokens_per_replica": 50}, "tokens_per_batch is 200 and .*replica is 50: give one"),
    ({"data.tokens_per_batch": 0}, "tokens_per_batch is 0 and .*replica is 0: give one"),
    ({"train.seed": -1}, "train.seed is -1: give a whole number from 0 to 4,294,967,295"),
    ({"train.steps": True}, "train.steps is True: give a whole number"),
    ({"decode.length_penalty": NAN}, "decode.length_penalty is nan: give a number from -10 to"),
    ({"decode.max_target_length": 0}, "decode.max_target_length is 0: give a whole number from"),
    ({"data.placeholders": 64}, "data.placeholders is 64: give a whole number from 0 to 63"),
    ({"data.placeholder_fraction": 1.5}, "placeholder_fraction is 1.5: give a number above 0"),
    ({"knn.k": 4, "knn.temperature": 0.0}, "temperature is 0"),
    ({"knn.k": 4, "knn.interpolation": 1.0}, "interpolation is 1"),
])  # fmt: skip
def test_settings_that_cannot_work_are_refused_before_anything_is_done(changes, message):
    config = small_config("nowhere")
    for name, value in changes.items():
        part, field = name.split(".")
        config[part][field] = value
    with pytest.raises(ValueError, match=message):
        experiment.check(config)


def test_a_field_of_decoding_of_another_task_is_refused():
    config = small_config("nowhere")
    config.decode.constrained = True
    with pytest.raises(ValueError, match=r"decode\.constrained is not a setting of a Translator"):
        experiment.check(config)


def test_a_workdir_without_data_or_checkpoints_takes_another_config(tmp_path):
    workdir, config = Workdir(tmp_path / "run"), small_config("nowhere")
    workdir.save_config(config)
    config.model.vocab_size = 299
    workdir.save_config(config)
    workdir.vocabulary.mkdir()  # as far as a run came that was killed at once
    config.model.vocab_size = 300
    workdir.save_config(config)
    (workdir.vocabulary / "tokenizer.json").write_text("{}")
    config.model.vocab_size = 299
    with pytest.raises(ValueError, match=r"holds a run with model.vocab_size = 300, not 299"):
        workdir.save_config(config)
    config.model.vocab_size = 300
    config.train.optimizer = "muon"
    workdir.save_config(config)
    workdir.checkpoints.mkdir()  # likewise
    config.train.ema_decay = 0.5
    workdir.save_config(config)
    config.train.ema_decay = 0.0
    workdir.save_config(config)
    (workdir.checkpoints / ".step_00000002.unfinished").mkdir()  # killed during its first save
    config.train.ema_decay = 0.5
    workdir.save_config(config)
    config.train.ema_decay = 0.0
    workdir.save_config(config)
    (workdir.checkpoints / "step_00000002").mkdir()
    config.train.ema_decay = 0.9
    with pytest.raises(ValueError, match=r"checkpoints of train.ema_decay = 0.0, not 0.9"):
        workdir.save_config(config)
    config.train.update(ema_decay=0.0, optimizer="adam")
    with pytest.raises(ValueError, match=r"checkpoints of train.optimizer = 'muon', not 'adam'"):
        workdir.save_config(config)
    assert workdir.load_config().train.optimizer == "muon"


def test_damaged_parts_of_a_workdir_are_named(tmp_path):
    workdir = Workdir(tmp_path)
    (tmp_path / "config.json").write_text('{"model": ')
    with pytest.raises(ValueError, match=r"config.json is damaged .*delete it"):
        workdir.load_config()
    workdir.vocabulary.mkdir()
    for name, content in {"tokenizer.json": '{"kind": "bpe"}', "sentencepiece.model": "x"}.items():
        (workdir.vocabulary / name).write_text(content)
    with pytest.raises(ValueError, match=r"the tokenizer in .* is damaged"):
        load_tokenizer(workdir.vocabulary)


def test_a_field_that_no_task_has_is_refused():
    config = small_config("nowhere")
    config.train.lerning_rate = 1.0
    with pytest.raises(InputError, match=r"config\.train has no field 'lerning_rate'"):
        experiment.check(config)
