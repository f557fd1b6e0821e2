"""No dead settings: every field of a config, changed, changes what can be seen of a run."""

import gzip
import random
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

from pipelines import experiment, tasks, train
from pipelines.configs import multi30k_en_de
from pipelines.knn import with_knn
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.data.streams import training_batches
from t2t_keras.errors import InputError
from t2t_keras.training.checkpoint_files import CheckpointReader, checkpoint_paths
from tests.end_to_end.binaries import pairs, write_folder
from tests.end_to_end.other_values import (
    DATA,
    DECODE,
    ELSEWHERE,
    KNN,
    MODEL,
    NUMERICS,
    OPTIMIZER,
    RUN,
    SLOW,
)
from tests.end_to_end.small_config import small_config


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
    tables = [*MODEL, *DATA, *OPTIMIZER, *RUN, *DECODE, *KNN, *ELSEWHERE, *NUMERICS]
    assert sorted(tables) == sorted(fields)


def _once(function):
    """Returns `function` of the usual config, called once for all tests."""
    kept = []

    def get(config):
        if not kept:
            kept.append(function(config))
        return kept[0]

    return get


def assert_differs(first, second):
    same = [np.array_equal(a, b) for a, b in zip(first, second, strict=False)]
    assert len(first) != len(second) or not all(same)


def graph(config):
    """The shapes of the weights, and what the model says of a sentence in training."""
    keras.utils.set_random_seed(0)
    model = make_task(config).make_model()
    ids = tf.constant([[5, 6, 7, 8]])
    logits = model({"source_ids": ids, "target_ids": ids}, training=True)
    return [*(weight.shape for weight in model.weights), logits.numpy()]


@pytest.mark.parametrize("field", [*MODEL, "max_positions"])
def test_a_model_field_changes_the_graph(config, field):
    before = graph(config)
    config.model[field] = MODEL.get(field, 70)
    assert_differs(before, graph(config))


def data(config, path):
    """The first batches of training."""
    workdir = Workdir(path)
    experiment.prepare(make_task(config), workdir)
    batcher = make_task(config).make_batcher(replicas=1)
    batches = training_batches(workdir.tokens, config.data.train_split, batcher, seed=1)
    return [array for batch in batches.take(4) for array in keras.tree.flatten(batch)]


@pytest.fixture(scope="module")
def usual_data(tmp_path_factory):
    return _once(lambda config: data(config, tmp_path_factory.mktemp("usual")))


@pytest.mark.parametrize(
    "field",
    [
        pytest.param(f, marks=pytest.mark.slow)
        if f in {"source_language", "tokens_per_replica", "subword_copies"}
        else f
        for f in DATA
    ],
)
def test_a_data_field_changes_the_batches(config, field, usual_data, tmp_path):
    before = usual_data(config)
    config.data[field] = DATA[field]
    if field == "tokens_per_replica":
        config.data.tokens_per_batch = 0
    if field == "folder":
        (tmp_path / "other").mkdir()
        config.data.folder = str(write_folder(tmp_path / "other"))
    if field == "tokenizer":
        config.data.max_length = 60
    assert_differs(before, data(config, tmp_path / "after"))


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


def test_split_fields_choose_the_sentences(config, folder):
    corpus = make_task(config).make_corpus()
    questions = []
    for field in ("validation_split", "test_split"):
        config.data[field] = "more"
        questions.append(make_task(config).evaluation_examples(config.data[field]))
    more = list(corpus.examples("more").as_numpy_iterator())
    assert questions[0] == questions[1]
    assert [text.encode() for text in questions[0][0]] == [pair["source"] for pair in more]


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


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A function of (config, path) that lays vocabulary and tokens of the usual data there."""
    workdir = Workdir(tmp_path_factory.mktemp("prepared"))

    def lay(config, path):
        experiment.prepare(make_task(config), workdir)
        shutil.copytree(workdir.path, path)

    return lay


def results(config, path, prepared):
    """What a run leaves: its checkpoints, their weights, its log."""
    prepared(config, path)
    train.train(config, Workdir(path))
    rows = (path / "metrics.csv").read_text().splitlines()
    weights = [
        CheckpointReader(checkpoint).read("model/embedding/matrix")
        for kind in ("step", "average", "ema")
        for checkpoint in checkpoint_paths(path / "checkpoints", kind)
    ]
    return [len(rows), rows[0], *weights]


@pytest.fixture(scope="module")
def usual_results(tmp_path_factory, prepared):
    path = tmp_path_factory.mktemp("run") / "work"
    return _once(lambda config: results(config, path, prepared))


@pytest.mark.parametrize(
    "field", [pytest.param(f, marks=pytest.mark.slow) if f in SLOW else f for f in RUN]
)
def test_a_run_field_changes_what_a_run_leaves(config, field, usual_results, prepared, tmp_path):
    before = usual_results(config)
    if field == "keep_checkpoints":
        config.train.checkpoint_every = 1
        before = results(config, tmp_path / "fewer", prepared)
    config.train[field] = RUN[field]
    assert_differs(before, results(config, tmp_path / "work", prepared))


@pytest.mark.slow
def test_the_seed_decides_the_run_whatever_the_preparation_draws(
    config, usual_results, prepared, tmp_path, monkeypatch
):
    before = usual_results(config)
    prepare = experiment.prepare

    def prepare_and_draw(*arguments):
        prepare(*arguments)
        random.random()
        np.random.random()
        keras.random.normal([2])

    prepared(config, tmp_path / "work")
    monkeypatch.setattr(experiment, "prepare", prepare_and_draw)
    train.train(config, Workdir(tmp_path / "work"))
    after = [
        CheckpointReader(checkpoint).read("model/embedding/matrix")
        for kind in ("step", "average")
        for checkpoint in checkpoint_paths(tmp_path / "work" / "checkpoints", kind)
    ]
    for one, other in zip(before[2:], after, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_gradient_beyond_the_largest_norm_ends_the_run(config, tmp_path):
    config.train.stop_above_grad_norm = 1e-9
    with pytest.raises(InputError, match="norm became"):
        train.train(config, Workdir(tmp_path))


def translations(config, workdir):
    keras.utils.set_random_seed(0)
    model = make_task(config).make_model()
    # After the seed is set: TensorFlow drops the tokenizer's resource along with its kernels.
    task = make_task(config)
    translator = task.make_predictor(model, task.load_tokenizer(workdir.vocabulary))
    return [str(translator.n_best(["one two", "three four five six"]))]


@pytest.fixture(scope="module")
def prepared_workdir(tmp_path_factory, prepared):
    path = tmp_path_factory.mktemp("usual") / "work"
    return _once(lambda config: prepared(config, path) or Workdir(path))


@pytest.fixture(scope="module")
def usual_translations(prepared_workdir):
    return _once(lambda config: translations(config, prepared_workdir(config)))


@pytest.mark.parametrize("field", DECODE)
def test_a_decode_field_changes_translations(config, field, prepared_workdir, usual_translations):
    before = usual_translations(config)
    config.decode[field] = DECODE[field]
    assert_differs(before, translations(config, prepared_workdir(config)))


def test_a_knn_field_changes_predictions(config, prepared_workdir):
    workdir = prepared_workdir(config)
    model = make_task(config).make_model()
    assert with_knn(make_task(config), model, workdir.tokens) is model
    ids = tf.constant([[5, 6, 7, 8]])

    def predictions(**fields):
        config.knn.update(fields)
        mixed = with_knn(make_task(config), model, workdir.tokens)
        return mixed({"source_ids": ids, "target_ids": ids}).numpy()

    usual = dict(config.knn) | {"k": 5}
    before = predictions(**usual)
    for field, value in KNN.items():
        change = predictions(**usual | {field: value}) - before
        assert np.abs(change).max() > 1e-3, field
