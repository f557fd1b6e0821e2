"""Writers replace regular files in one step, follow symbolic links, and write through streams."""

import os
import stat
import threading

import pytest

from t2t_keras.data.files import is_stream, open_output, output_path, write_file


def read_in_thread(path):
    """Reads a pipe to its end in a thread; returns a function that returns what was read."""
    found = []
    thread = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    thread.start()

    def result():
        thread.join(timeout=20)
        return found[0]

    return result


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


def test_the_null_device_stays_one():
    write_file(os.devnull, b"gone")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


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


def test_an_error_keeps_the_old_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), open_output(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


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
