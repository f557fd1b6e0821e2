"""A run's corpus may move, and may not change without a word."""

import gzip
import hashlib
import shutil

import pytest

from pipelines import experiment
from pipelines.tasks import make_task
from pipelines.workdir import Workdir
from t2t_keras.data.corpora import MemoryCorpus, text_digests
from t2t_keras.errors import InputError
from tests.end_to_end.binaries import write_folder
from tests.end_to_end.small_config import small_config


def prepare(config, workdir, **options):
    task = make_task(config)
    workdir.save_run(task, **options)
    experiment.prepare(task, workdir)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with a corpus and the workdir that was prepared from it."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "corpus").mkdir()
    prepare(small_config(write_folder(folder / "corpus")), Workdir(folder / "run"))
    return folder


@pytest.fixture
def run(prepared, tmp_path):
    """The config, the `Workdir` and the folder of the corpus, copied."""
    shutil.copytree(prepared, tmp_path, dirs_exist_ok=True)
    return small_config(tmp_path / "corpus"), Workdir(tmp_path / "run"), tmp_path / "corpus"


def rewrite(path):
    """Changes one line of a text, whose size stays the same."""
    lines = path.read_text().splitlines()
    lines[3] = lines[3][::-1]
    path.write_text("\n".join(lines) + "\n")


def test_a_corpus_that_moved_is_the_same(run, tmp_path):
    config, workdir, folder = run
    config.data.folder = f"{folder}/"
    prepare(config, workdir)
    moved = tmp_path / "elsewhere"
    folder.rename(moved)
    for path in moved.glob("train.*"):  # and was compressed
        path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    config.data.folder = str(moved)
    prepare(config, workdir)
    assert workdir.load_config().data.folder == str(moved)


@pytest.mark.parametrize("name", ["train.en", "val.de"])
def test_a_corpus_that_changed_is_refused_by_its_file(run, name):
    config, workdir, folder = run
    rewrite(folder / name)
    split = name.partition(".")[0]
    message = (
        rf"{folder}/+{name} \(split '{split}'\) has a text that differs .* --accept_corpus_changes"
    )
    config.data.folder = f"{folder}/"
    before = [path.read_bytes() for path in workdir.path.glob("*.json")]
    for _ in range(2):
        with pytest.raises(InputError, match=message):
            prepare(config, workdir)
    assert [path.read_bytes() for path in workdir.path.glob("*.json")] == before


def test_a_change_of_the_corpus_is_accepted_once(run, caplog):
    config, workdir, folder = run
    rewrite(folder / "val.de")
    shards = (workdir.tokens / "val" / "report.json").read_bytes()
    prepare(config, workdir, accept_corpus_changes=True)
    assert f"{folder}/val.de (split 'val') has a text that differs" in caplog.text
    caplog.clear()
    prepare(config, workdir)
    assert not caplog.records
    assert (workdir.tokens / "val" / "report.json").read_bytes() == shards


def test_an_unused_split_may_change(run):
    """The test split; another validation split; shards and vocabulary that are not there yet."""
    config, workdir, folder = run
    rewrite(folder / "test.en")
    prepare(config, workdir)
    config.data.validation_split = "test"
    prepare(config, workdir)
    rewrite(folder / "test.en")
    with pytest.raises(InputError, match=r"test\.en "):
        prepare(config, workdir)
    shutil.rmtree(workdir.tokens / "test")
    prepare(config, workdir)
    rewrite(folder / "train.de")
    shutil.rmtree(workdir.tokens / "train")
    with pytest.raises(InputError, match=r"train\.de "):  # the vocabulary was learned from it
        prepare(config, workdir)
    shutil.rmtree(workdir.vocabulary)
    workdir.save_run(make_task(config))


def test_a_run_of_an_earlier_version_gets_its_checksums(run):
    config, workdir, folder = run
    (workdir.path / "corpus.json").unlink()
    prepare(config, workdir)
    rewrite(folder / "val.en")
    with pytest.raises(InputError, match=r"val\.en "):
        prepare(config, workdir)


def test_a_worker_names_what_differs_from_its_chief(run):
    config, workdir, folder = run
    prepare(config, workdir)
    assert workdir.difference_from_chief(make_task(config)) is None
    rewrite(folder / "train.de")
    found = workdir.difference_from_chief(make_task(config))
    assert found == f"{folder}/train.de has a text that differs from the chief's"
    config.train.label_smoothing = 0.2
    found = workdir.difference_from_chief(make_task(config))
    assert found == "config.train.label_smoothing is 0.2 here and 0.3 in the chief"


def test_digests_depend_on_texts_and_their_order_alone():
    def digests(*pairs):
        return text_digests(MemoryCorpus({"all": pairs}).examples("all"))

    found = digests(("a", "x"), ("bc", "y"))
    lengths = (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
    assert found["source"] == hashlib.sha256(lengths + b"abc").hexdigest()
    others = [
        digests(("ab", "x"), ("c", "y")),
        digests(("bc", "x"), ("a", "y")),
        digests(("a", "x"), ("bc", "y"), ("", "z")),
    ]
    assert len({found["source"], *(other["source"] for other in others)}) == 4
    assert [other["target"] == found["target"] for other in others] == [True, True, False]


def test_a_file_of_the_user_is_not_overwritten(tmp_path):
    write_folder(tmp_path)
    workdir = tmp_path / "run"
    workdir.mkdir()
    (workdir / "corpus.json").write_text('{"my": "data"}')
    with pytest.raises(InputError, match=r"corpus.json does not belong to a run: move it"):
        Workdir(workdir).save_run(make_task(small_config(tmp_path)))
    assert (workdir / "corpus.json").read_text() == '{"my": "data"}'
