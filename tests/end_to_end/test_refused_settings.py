"""Settings that cannot work are refused before anything is done."""

import contextlib

import pytest

from pipelines import experiment
from pipelines.configs import multi30k_de_lm, multi30k_en_de, sentence_polarity, wsj_parsing
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
    ({"decode.constrained": True}, "decode.constrained is not a setting of a Translator"),
    ({"train.lerning_rate": 1.0}, "config.train has no field 'lerning_rate'"),
    ({"decode.max_target_length": 0}, "decode.max_target_length is 0: give a whole number from"),
    ({"data.placeholders": 64}, "data.placeholders is 64: give a whole number from 0 to 63"),
    ({"data.placeholder_fraction": 1.5}, "placeholder_fraction is 1.5: give a number above 0"),
    ({"data.sampling_temperature": 0.0}, "data.sampling_temperature is 0.0: give a number abo"),
    ({"data.corpora": "a:en=de"}, "data.folder is 'nowhere', and data.corpora is also given"),
    ({"knn.k": 4, "data.corpora": "a:en=de", "data.folder": ""},
     "knn.k is 4: give 0, kNN-MT is for one corpus"),
    ({"data.corpora": "pairs"}, "data.corpora has 'pairs': give PLACE:SOURCE-TARGET"),
    ({"data.corpora": "pairs:en"}, "data.corpora has 'pairs:en': give PLACE:SOURCE-TARGET"),
    ({"data.corpora": ":en-de"}, "data.corpora has ':en-de'"),
    ({"data.corpora": "pairs:en="}, "data.corpora has 'pairs:en='"),
    ({"data.corpora": "a:en=de,a:de-en"}, "data.corpora has a:de-en twice"),
    ({"knn.k": 4, "knn.temperature": 0.0}, "temperature is 0"),
    ({"knn.k": 4, "knn.interpolation": 1.0}, "interpolation is 1"),
])  # fmt: skip
def test_settings_that_cannot_work_are_refused_before_anything_is_done(changes, message):
    refuse(small_config("nowhere"), changes, message)


NEEDS_FOLDER = "data.folder is empty: give --config.data.folder="


@pytest.mark.parametrize(("module", "changes", "message"), [
    (multi30k_en_de, {}, NEEDS_FOLDER),
    (sentence_polarity, {}, NEEDS_FOLDER),
    (sentence_polarity, {"data.folder": "nowhere"}, "there is no folder 'nowhere'"),
    (sentence_polarity, {"data.labels": "pos"}, "labels are .*: give two or more"),
    (sentence_polarity, {"data.placeholders": 4}, "config.data has no field 'placeholders': lea"),
    (sentence_polarity, {"model.pooling": "last"}, "pooling is 'last'"),
    (sentence_polarity, {"model.word_dropout": 1.0}, "word_dropout is 1.0"),
    (wsj_parsing, {}, NEEDS_FOLDER),
    (wsj_parsing, {"data.train_share": 0.0}, "train_share is 0.0"),
    (wsj_parsing, {"data.copies": 0}, "data.copies is 0"),
    (wsj_parsing, {"data.tags": "some"}, "data.tags is 'some'"),
    (multi30k_de_lm, {}, NEEDS_FOLDER),
    (multi30k_de_lm, {"data.folder": "nowhere"}, "there is no folder 'nowhere'"),
    (multi30k_de_lm, {"data.rows": "words"}, "data.rows is 'words': give one of lines, stream"),
])  # fmt: skip
def test_settings_of_each_task_that_cannot_work_are_refused(module, changes, message):
    refuse(module.get_config(), changes, message)


def refuse(config, changes, message):
    for name, value in changes.items():
        part, field = name.split(".")
        with config.unlocked():
            config[part][field] = value
    with pytest.raises(InputError, match=message):
        experiment.check(config)


def test_a_workdir_without_data_or_checkpoints_takes_another_config(tmp_path):
    workdir, config = Workdir(tmp_path / "run"), small_config("nowhere")

    def save(error=None, **changes):
        for part, name in (("model", "vocab_size"), ("train", "optimizer"), ("train", "ema_decay")):
            config[part][name] = changes.get(name, config[part][name])
        with pytest.raises(InputError, match=error) if error else contextlib.nullcontext():
            workdir.save_config(config)

    save()
    save(vocab_size=299)
    workdir.vocabulary.mkdir()  # as far as a run came that was killed at once
    save(vocab_size=300)
    (workdir.vocabulary / "tokenizer.json").write_text("{}")
    save(r"holds a run with model.vocab_size = 300, not 299", vocab_size=299)
    save(vocab_size=300, optimizer="muon")
    workdir.checkpoints.mkdir()  # likewise
    save(ema_decay=0.5)
    (workdir.checkpoints / ".step_00000002.unfinished").mkdir()  # killed during its first save
    save(ema_decay=0.0)
    (workdir.checkpoints / "step_00000002").mkdir()
    save(r"checkpoints of train.ema_decay = 0.0, not 0.9", ema_decay=0.9)
    save(r"checkpoints of train.optimizer = 'muon', not 'adam'", ema_decay=0.0, optimizer="adam")
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
