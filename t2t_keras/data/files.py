"""Files that appear whole or not at all."""

import os


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
