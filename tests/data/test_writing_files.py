"""Writers replace regular files in one step, follow symbolic links, and write through streams."""

import errno
import os
import pathlib
import stat

import pytest
import tensorflow as tf

from pipelines.batch_inference import ResumableOutput
from t2t_keras.data import MemoryCorpus, write_shards
from t2t_keras.data.files import is_stream, new_folder, output_path, write_file
from t2t_keras.serving.export import new_version
from t2t_keras.training.checkpoint_files import remove_checkpoint, write_checkpoint
from tests.data.reading import read_in_thread
from tests.tasks import tiny


def test_a_named_pipe_is_written_through(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    content = read_in_thread(pipe)
    write_file(pipe, b"a\nb\n")
    assert content() == b"a\nb\n"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]


def test_a_device_is_written_through(tmp_path):
    """A pseudoterminal is a character device that needs no privileges to be made."""
    reader, terminal = os.openpty()
    path = os.ttyname(terminal)
    (tmp_path / "link").symlink_to(path)
    for name in (path, tmp_path / "link"):
        write_file(name, b"a\n")
        assert os.read(reader, 10) == b"a\r\n"
    assert stat.S_ISCHR(os.stat(path).st_mode)
    assert os.readlink(tmp_path / "link") == path
    os.close(terminal)
    os.close(reader)


@pytest.mark.parametrize("exists", [True, False])
def test_a_symbolic_link_stays_and_its_target_is_replaced(tmp_path, exists):
    """Also one through a link to a folder, and another link."""
    (tmp_path / "real").mkdir()
    (tmp_path / "folder").symlink_to("real")
    (tmp_path / "first").symlink_to("second")
    (tmp_path / "second").symlink_to("folder/target")
    target = tmp_path / "real" / "target"
    if exists:
        target.write_bytes(b"old")
    write_file(tmp_path / "first", b"new")
    assert target.read_bytes() == b"new"
    assert not target.is_symlink()
    assert os.readlink(tmp_path / "first") == "second"
    assert os.readlink(tmp_path / "second") == "folder/target"
    assert [path.name for path in (tmp_path / "real").iterdir()] == ["target"]


def test_a_circle_of_links_is_an_error(tmp_path):
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError, match=r"symbolic links.*/[ab]'"):
        write_file(tmp_path / "a", b"")


def test_the_permissions_of_a_replaced_file_are_kept(tmp_path):
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o600)
    write_file(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_a_descriptor_is_written_through_where_it_is_a_regular_file(tmp_path, folder):
    """As `/dev/stdout` with a redirection: what was written before and after stays in its place."""
    with (tmp_path / "out").open("wb") as out:
        path = f"{folder}/{out.fileno()}"
        (tmp_path / "link").symlink_to(path)
        out.write(b"a")
        out.flush()
        write_file(path, b"b")
        write_file(tmp_path / "link", b"c")
        out.write(b"d")
    assert (tmp_path / "out").read_bytes() == b"abcd"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


def test_streams_are_told_from_files(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").touch()
    paths = [tmp_path, tmp_path / "file", tmp_path / "absent"]
    streams = [tmp_path / "pipe", os.devnull, "/dev/stdout", f"/proc/{os.getppid()}/fd/1"]
    assert not any(is_stream(output_path(path)) for path in paths)
    assert all(is_stream(output_path(path)) for path in streams)


def test_an_empty_folder_is_replaced_where_no_folder_can_be_renamed_onto_one(tmp_path, monkeypatch):
    """As file systems that are mounted from another computer by SMB or SFTP."""

    def rename(source, target, to=os.rename):
        if os.path.exists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        to(source, target)

    monkeypatch.setattr(os, "rename", rename)
    (tmp_path / "empty").mkdir()
    with new_folder(tmp_path / "empty", str) as path:
        (pathlib.Path(path) / "file").touch()
    assert [path.name for path in tmp_path.rglob("*")] == ["empty", "file"]


# Loss of power ------------------------------------------------------------------------------------


@pytest.fixture
def renames(monkeypatch):
    """A list of the targets of renames. What is renamed must be on the disk, with its names.

    After the test, names of new folders and those that came by renames must be there, too: a loss
    of power keeps what was synced, and of the rest any part.
    """
    synced, waiting, targets = {}, set(), []

    def state(path):
        found = os.stat(path)
        names = sorted(os.listdir(path)) if stat.S_ISDIR(found.st_mode) else None
        return found.st_size, found.st_mtime_ns, names

    def traced_sync(descriptor, sync=os.fsync):
        sync(descriptor)
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        synced[os.fstat(descriptor).st_ino] = state(path)
        waiting.discard(path)

    def traced(rename):
        def renamed(source, target):
            below = [os.path.join(top, name) for top, _, names in os.walk(source) for name in names]
            for path in (source, *(top for top, *_ in os.walk(source)), *below):
                assert synced.get(os.stat(path).st_ino) == state(path), f"{path} is not synced"
            rename(source, target)
            targets.append(str(target))
            waiting.add(os.path.dirname(target))

        return renamed

    def traced_mkdir(path, *args, make=os.mkdir):
        make(path, *args)
        waiting.add(os.path.dirname(path))

    monkeypatch.setattr(os, "fsync", traced_sync)
    monkeypatch.setattr(os, "mkdir", traced_mkdir)
    monkeypatch.setattr(os, "replace", traced(os.replace))
    monkeypatch.setattr(os, "rename", traced(os.rename))
    yield targets
    assert not waiting


def write_version(path):
    with new_version(path) as folder:
        for name in ("variables", "assets"):
            os.mkdir(os.path.join(folder, name))
            with open(os.path.join(folder, name, "data"), "wb") as file:
                file.write(b"content")


def write_output(path):
    with ResumableOutput(path, "fingerprint") as output:
        output.write("one")
        output.commit(1)
        output.write("two")


WRITERS = {
    "file": lambda path: write_file(path / "new", b"content"),
    "tokenizer": lambda path: tiny.tokenizer().save(path),
    "shards": lambda path: write_shards(
        MemoryCorpus({"train": [("a dog", "ein Hund")] * 9}), "train", tiny.tokenizer(), path
    ),
    "checkpoint": lambda path: write_checkpoint(path, {"weight": tf.ones([3])}),
    "predictor": lambda path: tiny.translator().save(path),
    "export": write_version,
    "output": write_output,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_is_renamed_is_on_the_disk(writer, tmp_path, renames):
    WRITERS[writer](tmp_path / writer)
    assert renames[-1].startswith(str(tmp_path / writer))


def test_a_replaced_and_a_removed_checkpoint_are_on_the_disk(tmp_path, renames):
    for number in range(2):
        write_checkpoint(tmp_path / "step_1", {"weight": tf.fill([3], number)})
    remove_checkpoint(tmp_path / "step_1")
    assert len(renames) == 4
    assert not list(tmp_path.iterdir())
