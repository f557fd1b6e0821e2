"""Mutations of a model's folder: of each field of its JSON files, and of each file as a whole."""

import json
import math
import shutil

MISSING = object()
VALUES = [
    MISSING,
    None,
    True,
    False,
    0,
    -1,
    5,
    10**30,
    1.5,
    math.nan,
    math.inf,
    "",
    "x",
    "512",
    "\ud800",
    [],
    ["</s>"],
    [[5]],
    {},
    {"content": None},
]
"""Values that no field, or only some, may have."""


def field_mutations(folder):
    """Returns [(label, function of a folder)], for each field of each JSON object in the folder."""
    mutations = []
    for path in sorted(folder.glob("*.json")):
        fields = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(fields, list):
            fields = dict(enumerate(fields[:3]))
        if len(fields) > 100:  # a vocabulary
            fields = dict(list(fields.items())[:2] + list(fields.items())[-1:])
        for name in [*fields, "unheard_of"]:
            mutations += [
                (f"{path.name}: {name} = {'missing' if value is MISSING else repr(value)}",
                 _set_field(path.name, name, value))
                for value in VALUES
            ]  # fmt: skip
    return mutations


def _set_field(file, name, value):
    def mutate(folder):
        path = folder / file
        content = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(content, list):
            name_ = name if isinstance(name, int) else 0
            content[name_ : name_ + 1] = [] if value is MISSING else [value]
        elif value is MISSING:
            content.pop(name, None)
        else:
            content[name] = value
        path.write_text(json.dumps(content))

    return mutate


CONTENTS = {
    "empty": lambda content: b"",
    "first half": lambda content: content[: len(content) // 2],
    "all but the last byte": lambda content: content[:-1],
    "a byte more": lambda content: content + b"\0",
    "pointer of Git LFS": lambda content: (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    ),
    "zeros": lambda content: bytes(len(content)),
    "ones": lambda content: b"\xff" * len(content),
    "null": lambda content: b"null",
    "list": lambda content: b"[1]",
    "deep": lambda content: b"[" * 100_000,
    "text": lambda content: b"no such file",
}


def file_mutations(folder):
    """Returns [(label, function of a folder)], for each file in the folder."""
    mutations = []
    for path in sorted(folder.iterdir()):
        mutations += [
            (f"{path.name}: missing", lambda copy, name=path.name: (copy / name).unlink()),
            (f"{path.name}: a folder", lambda copy, name=path.name: _make_folder(copy / name)),
        ]
        mutations += [
            (f"{path.name}: {label}", _edit(path.name, edit)) for label, edit in CONTENTS.items()
        ]
    return mutations


def _make_folder(path):
    path.unlink()
    path.mkdir()


def _edit(name, edit):
    def mutate(folder):
        (folder / name).write_bytes(edit((folder / name).read_bytes()))

    return mutate


def byte_mutations(name, size, count, rng):
    """Returns [(label, function of a folder)] that set a few bytes of a file's first `size`."""
    mutations = []
    for _ in range(count):
        changes = {rng.randrange(size): rng.choice([0, 1, 127, 128, 255]) for _ in range(2)}

        def edit(content, changes=changes):
            content = bytearray(content)
            for place, byte in changes.items():
                content[place] = byte
            return bytes(content)

        mutations.append((f"{name}: bytes {changes}", _edit(name, edit)))
    return mutations


def outcome(load, original, mutate, folder):
    """Returns what `load` raises for a mutated copy of a folder, None if it loads."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    mutate(folder)
    try:
        load(folder)
    except Exception as error:  # the caller looks at its kind
        return error
    return None
