"""Files and folders that appear whole or not at all."""

import contextlib
import os
import shutil


def write_file(path, content):
    """Writes a file under a temporary name beside its own and renames it.

    Args:
        path: where the file shall stand; its folder is made if missing.
        content: bytes.
    """
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = f"{path}.{os.getpid()}.tmp"
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


@contextlib.contextmanager
def new_folder(path):
    """Gives a temporary folder that takes the place of `path` when the block ends well.

    Args:
        path: where the folder shall stand; an older one there is replaced.

    Yields:
        The temporary folder's path. It is removed when the block raises.
    """
    temporary = f"{path}.{os.getpid()}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    os.makedirs(temporary)
    try:
        yield temporary
        shutil.rmtree(path, ignore_errors=True)
        os.replace(temporary, path)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
