"""No dead settings: every field of a config, changed, changes what can be seen of a run."""

import csv
import gzip
import random
import shutil
import types

import keras
import numpy as np
import pytest
import sacrebleu
import sentencepiece
import tensorflow as tf

from pipelines import experiment, tasks, training
from pipelines.configs import multi30k_en_de
from pipelines.tasks import make_task
from pipelines.workdir import Workdir, with_knn
from t2t_keras.data.streams import training_batches
from t2t_keras.data.tokenizers import load_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import CheckpointReader
from tests.end_to_end.binaries import pairs, write_folder
from tests.end_to_end.small_config import small_config

MODEL = {
    "vocab_size": 331, "num_encoder_layers": 2, "num_decoder_layers": 2, "model_dim": 32,
    "feed_forward_dim": 48, "num_heads": 4, "key_dim": 6, "value_dim": 6, "dropout": 0.4,
    "position_embedding": "sinusoidal", "norm": "pre", "norm_epsilon": 0.1,
    "attention_score": "additive", "attention_weights": "hard", "attention_temperature": 0.25,
    "attention_window": 2, "fused_qkv": False, "feed_forward": "convolution",
    "attention_dropout": 0.5, "activation_dropout": 0.5, "activation": "silu",
    "attention_bias": True, "embedding_sharing": "target", "scale_embedding": False,
    "output_bias": True, "max_positions": 70,
}  # fmt: skip
DATA = {
    "folder": "other", "source_language": "fr", "target_language": "fr", "train_split": "more",
    "tokenizer": "unigram", "bpe_dropout": 0.5, "subword_copies": 2, "max_length": 20,
    "max_length_ratio": 1.2, "batching": "packed", "tokens_per_batch": 150,
    "tokens_per_replica": 150, "placeholders": 4,
}  # fmt: skip
OPTIMIZER = {
    "decay_fraction": 1.0, "warmup_steps": 3, "learning_rate_scale": 2.0, "beta_1": 0.8,
    "beta_2": 0.9, "epsilon": 0.1, "weight_decay": 0.5, "global_clipnorm": 0.05,
    "optimizer": "muon",
}  # fmt: skip
RUN = {
    "steps": 6, "log_every": 1, "validate_every": 3, "validation_sentences": 2,
    "checkpoint_every": 1000, "checkpoint_minutes": 1e-9, "keep_checkpoints": 3,
    "average_checkpoints": 3, "ema_decay": 0.9,
}  # fmt: skip
COMPILE = {
    "micro_batches": 2, "parallel_micro_batches": 2, "label_smoothing": 0.2,
    "steps_per_execution": 3, "xla": True,
}  # fmt: skip
DECODE = {
    "beam_size": 1, "length_penalty": 5.0, "max_extra_tokens": 1, "max_target_length": 2,
    "length_penalty_offset": 0.0, "min_target_length": 1, "no_repeat_ngram_size": 1,
    "repetition_penalty": 9.0,
}  # fmt: skip
KNN = {"k": 1, "temperature": 0.01, "interpolation": 0.9, "subset_size": 7}
ELSEWHERE = {
    "seed", "stop_above_grad_norm",  # below
    "tfds", "tfds_import", "tfds_data_dir", "validation_split", "test_split",  # below
    "errors",  # test_binaries.py
    "protected_pattern",  # tests/tasks/test_spans.py
    "max_relative_distance", "source_vocab_size",  # tests/models/test_variations.py
    "corpora",  # test_many_languages.py
    "sampling_temperature",  # tests/data/test_streams.py
    "placeholder_fraction",  # test_placeholder_runs.py
    "mixed_precision", "deterministic", "tf32",  # test_settings_of_the_process.py
}  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = write_folder(tmp_path_factory.mktemp("corpus"))
    more = list(pairs(60, seed=9))
    for side, language in enumerate(("en", "de")):
        text = "\n".join(pair[side] for pair in more) + "\n"
        (folder / f"more.{language}").write_text(text)
    with (folder / "train.en").open("a") as english, (folder / "train.de").open("a") as german:
        english.write("one\n" + "one " * 30 + "\n")  # one pair for each filter
        german.write("eins zwei\n" + "eins " * 30 + "\n")
    for split in ("train", "val", "more"):
        text = (folder / f"{split}.de").read_text().upper()
        (folder / f"{split}.fr.gz").write_bytes(gzip.compress(text.encode()))
    return folder


@pytest.fixture
def config(folder):
    return small_config(folder)


def test_the_tables_name_every_field():
    config = multi30k_en_de.get_config()
    fields = [field for part, fields in config.items() if part != "task" for field in fields]
    tables = [*MODEL, *DATA, *OPTIMIZER, *RUN, *COMPILE, *DECODE, *KNN, *ELSEWHERE]
    assert sorted(tables) == sorted(fields)


def assert_differs(first, second, field=None):
    same = [np.array_equal(a, b) for a, b in zip(first, second, strict=False)]
    assert len(first) != len(second) or not all(same), field


@pytest.mark.slow
def test_model_fields_change_the_graph(folder):
    """The shapes of the weights, or what the model says of a sentence in training."""

    def graph(config):
        keras.utils.set_random_seed(0)
        model = make_task(config).make_model()
        ids = tf.constant([[5, 6, 7, 8]])
        logits = model({"source_ids": ids, "target_ids": ids}, training=True)
        return [*(weight.shape for weight in model.weights), logits.numpy()]

    before = graph(small_config(folder))
    for field, value in MODEL.items():
        config = small_config(folder)
        config.model[field] = value
        assert_differs(before, graph(config), field)


def data(config, path):
    """The first batches of training."""
    workdir = Workdir(path)
    experiment.prepare(make_task(config), workdir)
    batcher = make_task(config).make_batcher(replicas=1)
    batches = training_batches(workdir.tokens, config.data.train_split, batcher, seed=1)
    return [array for batch in batches.take(4) for array in keras.tree.flatten(batch)]


@pytest.fixture(scope="module")
def usual_data(folder, tmp_path_factory):
    return data(small_config(folder), tmp_path_factory.mktemp("usual"))


@pytest.mark.parametrize("field", [
    pytest.param(field, marks=[] if field in ("folder", "max_length") else pytest.mark.slow)
    for field in DATA
])  # fmt: skip
def test_a_data_field_changes_the_batches(config, field, usual_data, tmp_path):
    config.data[field] = DATA[field]
    if field == "tokens_per_replica":
        config.data.tokens_per_batch = 0
    if field == "folder":
        (tmp_path / "other").mkdir()
        config.data.folder = str(write_folder(tmp_path / "other"))
    if field == "tokenizer":
        config.data.max_length = 60
    assert_differs(usual_data, data(config, tmp_path / "after"))


def test_a_sentencepiece_model_is_the_vocabulary_of_a_run(config, folder, tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        input=f"{folder}/train.en,{folder}/train.de",
        model_prefix=str(tmp_path / "spm"),
        vocab_size=40,
        minloglevel=2,
    )
    config.data.tokenizer = str(tmp_path / "spm.model")
    tokenizer, workdir = load_tokenizer(config.data.tokenizer), Workdir(tmp_path / "run")
    assert tokenizer.vocab_size == 41  # with padding
    with pytest.raises(InputError, match=r"vocab_size is \d+, and .* has 41 ids.*vocab_size=41"):
        experiment.prepare(make_task(config), workdir)
    config.model.vocab_size = 41
    data(config, workdir.path)
    assert load_tokenizer(workdir.vocabulary).fingerprint() == tokenizer.fingerprint()
    (tmp_path / "spm.model").unlink()
    data(config, workdir.path)  # the run has its own copy
    with pytest.raises(
        InputError, match=r"data.tokenizer is '.*spm.model': give bpe.* no such file"
    ):
        experiment.prepare(make_task(config), Workdir(tmp_path / "other"))
    config.data.update(tokenizer="vocabulary", train_split="absent")  # which is not looked for
    with pytest.raises(InputError, match=r"data.tokenizer is 'vocabulary'.*in its own workdir"):
        Workdir(tmp_path / "new").save_run(make_task(config))
    assert not (tmp_path / "new").exists()


def test_a_field_of_a_newer_version_is_named(config, tmp_path):
    workdir = Workdir(tmp_path / "run")
    with config.unlocked():
        config.decode.new = 1
    workdir.save_config(config)
    with pytest.raises(InputError, match=r"config.json has decode.new, .* use the version"):
        workdir.load_predictor()
    with config.unlocked():
        config.model.new = 1
    with pytest.raises(InputError, match=r"has no field 'new'.* the version of t2t_keras"):
        make_task(config).make_model()


def test_a_split_that_may_be_another_one_is_refused(config):
    """Where the corpus has a split "test", and data.test_split names another one."""
    task = make_task(config)
    assert experiment.choose_split(task, "validation") == "val"  # there is no "validation"
    config.data.test_split = "more"
    with pytest.raises(InputError, match=r"--split=test may be .* 'test' or 'more', which data.te"):
        experiment.choose_split(task, "test")
    assert experiment.choose_split(task, "more") == "more"
    config.data.test_split = "test"
    assert experiment.choose_split(task, "test") == "test"


@pytest.mark.parametrize(("files", "message"), [
    ({"test.en": b"one\n", "test.de": b"eins\nzwei\n"}, "test.en has 1 lines and .* has 2"),
    ({"test.en": b"one\n"}, "split 'test' needs one file named test.de or test.de.gz, or test"),
    ({"test.en": b"one\n", "test.de.xz": b"1"}, "split 'test' needs one file named test.de or"),
    ({"test.en": b"one\n", "test.de": b"\xff\n"}, "test.de line 1 is not valid UTF-8"),
    ({"test.de": b"1\n", "test.en": b"1\n", "test.tok.en": b"1\n"}, "'test.tok.en'"),
])  # fmt: skip
def test_a_bad_split_is_never_replaced_by_another(config, files, message, tmp_path):
    for name, content in ({"val.en": b"one\n", "val.de": b"eins\n"} | files).items():
        (tmp_path / name).write_bytes(content)
    config.data.update(folder=str(tmp_path), test_split="val")
    with pytest.raises(InputError, match=message):
        experiment.choose_split(make_task(config), "test")


def test_bleu_has_the_tokenizer_of_the_target_language(config):
    config.data.target_language = "zh"
    references, near = ["我喜歡一隻狗。", "她看見兩隻貓。"], ["我喜歡一隻貓。", "她看見兩隻狗。"]
    score = make_task(config).score(near, references)
    expected = sacrebleu.BLEU(tokenize="zh").corpus_score(near, [references]).score
    assert score["bleu"] == pytest.approx(expected) and 30 < expected < 100


def test_tfds_fields_choose_the_dataset_and_its_place(config, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(tasks, "TFDSCorpus", lambda *args, **kw: seen.append((args, kw)))
    config.data.update(folder="", tfds="wmt14_translate/de-en", tfds_data_dir=str(tmp_path))
    make_task(config).make_corpus()
    assert seen == [(("wmt14_translate/de-en", "en", "de"), {"data_dir": str(tmp_path)})]


def updates(config):
    """A weight after each of four updates with uneven gradients."""
    optimizer = experiment.make_optimizer(config.train, make_task(config).model_config())
    weight, trace = keras.Variable([[1.0, 2.0], [3.0, 4.0]]), []
    for gradient in ([1.0, 0.1], [-0.5, 0.3], [0.2, 0.2], [0.9, -0.3]):
        optimizer.apply([tf.constant([gradient, gradient[::-1]])], [weight])
        trace.append(weight.numpy())
    return trace


@pytest.mark.parametrize("field", OPTIMIZER)
def test_an_optimizer_field_changes_the_updates(config, field):
    before = updates(config)
    config.train[field] = OPTIMIZER[field]
    assert_differs(before, updates(config))


def test_fields_of_training_reach_the_model(config):
    config.train.update(COMPILE)
    calls = []
    model = types.SimpleNamespace(compile=lambda *args, **options: calls.append((args, options)))
    experiment.compile_model(make_task(config), model)
    [((_, loss), options)] = calls
    assert (model.micro_batches, model.parallel_micro_batches) == (2, 2)
    assert (options["steps_per_execution"], options["jit_compile"]) == (3, True)
    assert loss.get_config()["smoothing"] == 0.2


@pytest.fixture(scope="module")
def prepared(folder, tmp_path_factory):
    """A workdir with vocabulary and tokens of the usual data."""
    workdir = Workdir(tmp_path_factory.mktemp("prepared"))
    experiment.prepare(make_task(small_config(folder)), workdir)
    return workdir


@pytest.mark.slow
def test_fields_of_a_run_decide_what_it_leaves(config, prepared, tmp_path):
    path = shutil.copytree(prepared.path, tmp_path / "run")
    config.train.update(RUN)
    training.train(config, Workdir(path))
    names = sorted(checkpoint.name for checkpoint in (path / "checkpoints").iterdir())
    kinds = ["average_00000006", "ema_00000006"]
    assert names == [*kinds, *(f"step_0000000{step}" for step in (4, 5, 6))]
    rows = list(csv.DictReader((path / "metrics.csv").open()))
    assert [row["step"] for row in rows if row["loss"]] == list("123456")
    assert [row["step"] for row in rows if row["validation_bleu"]] == ["3", "6"]


@pytest.mark.slow
def test_a_gradient_beyond_the_largest_norm_ends_the_run(config, prepared, tmp_path):
    path = shutil.copytree(prepared.path, tmp_path / "run")
    config.train.stop_above_grad_norm = 1e-9
    with pytest.raises(InputError, match="norm became"):
        training.train(config, Workdir(path))


def test_fields_of_decoding_reach_the_predictor(config, prepared):
    config.decode.update(DECODE)
    task = make_task(config)
    tokenizer = task.load_tokenizer(prepared.vocabulary)
    settings = task.make_predictor(task.make_model(), tokenizer).settings
    assert {name: getattr(settings, name) for name in DECODE} == DECODE


def test_fields_of_knn_reach_the_model(config, prepared):
    task = make_task(config)
    model = task.make_model()
    assert with_knn(task, model, prepared.tokens) is model
    config.knn.update(KNN)
    mixed = with_knn(make_task(config), model, prepared.tokens)
    assert {name: getattr(mixed, name) for name in KNN} == KNN


@pytest.mark.slow
def test_the_seed_decides_the_run_whatever_the_preparation_draws(
    folder, prepared, tmp_path, monkeypatch
):
    prepare = experiment.prepare

    def prepare_and_draw(*arguments):
        prepare(*arguments)
        random.seed()
        np.random.seed()
        keras.utils.set_random_seed(random.randrange(1000))

    monkeypatch.setattr(experiment, "prepare", prepare_and_draw)
    weights = []
    for name, seed in {"one": 1, "again": 1, "other": 2}.items():
        path, config = shutil.copytree(prepared.path, tmp_path / name), small_config(folder)
        config.train.update(seed=seed, steps=2, validate_every=100)
        training.train(config, Workdir(path))
        checkpoint = CheckpointReader(path / "checkpoints" / "step_00000002")
        weights.append(checkpoint.read("model/embedding/matrix"))
    np.testing.assert_allclose(weights[0], weights[1], atol=1e-6)
    assert np.abs(weights[0] - weights[2]).max() > 1e-3
