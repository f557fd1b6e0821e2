"""Loss of power: the state of a folder on disk when all writes that were not synced are lost.

`PowerLoss` is a setup of a forked command (`processes.py`). It remembers each file's content and
each folder's list of names as of their latest `os.fsync`. At a chosen call it writes what a disk
may hold then into another folder, and kills the process. A file system may keep more than what was
synced, but never less; two extremes are made:

- "synced": names and contents are those that were synced, nothing else;
- "names": all changes of names have reached the disk, but only synced contents. A file that was
  never synced is empty; one that was synced earlier has its content at that time.
"""

import os
import pathlib
import resource
import signal
import stat

SURVIVALS = ("synced", "names")


class PowerLoss:
    """A setup that cuts the power at a call of `os.fsync`.

    Args:
        tree: the folder whose files matter; what it holds at the start is on the disk.
        call: number of the call, from 1; None: the calls are only counted.
        after: bool, whether the power fails after this call, or before it.
        survival: one of `SURVIVALS`.
        target: the folder that receives the disk's content after the cut; without `call` the file
            to which one byte is written for each call.
    """

    def __init__(self, tree, call, after, survival, target):
        self._tree, self._target = pathlib.Path(tree), pathlib.Path(target)
        self._call, self._after, self._survival = call, after, survival
        self._count = 0
        self._contents, self._names, self._kept = {}, {}, {}

    def __call__(self):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(limit, 65536), limit))
        for folder, _, names in os.walk(self._tree):
            for path in (folder, *(os.path.join(folder, name) for name in names)):
                descriptor = os.open(path, os.O_RDONLY)
                self._remember(descriptor)
                os.close(descriptor)
        self._fsync, os.fsync = os.fsync, self._synced

    def _synced(self, descriptor):
        inside = os.readlink(f"/proc/self/fd/{descriptor}").startswith(os.fspath(self._tree))
        self._count += inside
        if inside and self._call is None:
            with self._target.open("ab") as file:
                file.write(b".")
        elif inside and not self._after and self._count == self._call:
            self._fail()
        self._fsync(descriptor)
        if inside:
            self._remember(descriptor)
            if self._count == self._call:
                self._fail()

    def _remember(self, descriptor):
        node = self._keep(descriptor)
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            self._names[node] = {
                name: self._node(descriptor, name) for name in os.listdir(descriptor)
            }
        else:
            # Opened anew: the descriptor may be for writing alone.
            self._contents[node] = pathlib.Path(f"/proc/self/fd/{descriptor}").read_bytes()

    def _node(self, folder, name):
        descriptor = os.open(name, os.O_RDONLY, dir_fd=folder)
        try:
            return self._keep(descriptor)
        finally:
            os.close(descriptor)

    def _keep(self, descriptor):
        """Returns a file's number, and keeps it open, so that no other file gets the number."""
        found = os.fstat(descriptor)
        if found.st_ino not in self._kept:
            self._kept[found.st_ino] = os.dup(descriptor)
        return found.st_ino

    def _fail(self):
        root = os.stat(self._tree).st_ino
        self._write(root, self._target)
        os.kill(os.getpid(), signal.SIGKILL)

    def _write(self, node, path):
        kept = self._kept[node]
        if not stat.S_ISDIR(os.fstat(kept).st_mode):
            path.write_bytes(self._contents.get(node, b""))
            return
        path.mkdir()
        names = self._names.get(node, {})
        if self._survival == "names":
            try:
                names = {name: self._node(kept, name) for name in os.listdir(kept)}
            except FileNotFoundError:  # removed
                names = {}
        for name, child in names.items():
            self._write(child, path / name)
