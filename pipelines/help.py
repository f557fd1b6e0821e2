"""--help of a command, without TensorFlow, whose import takes most of a command's start.

The flags take names and ranges from modules that define layers and models. If a command only shows
its help, `import_stand_ins` replaces the packages that these modules import.
"""

import importlib.abc
import importlib.machinery
import os
import sys
import types

from absl import flags

REQUIRED = "Required. "
"""How the help of a required flag begins."""

_ASKING = {"--help", "-help", "--helpshort", "-helpshort", "-?", "-h"}
_PACKAGES = {"tensorflow", "tensorflow_text", "tensorflow_datasets", "keras", "matplotlib", "numpy"}


def is_command():
    """Returns whether this process is starting as a command: python -m pipelines.…, or t2t-…."""
    return sys.argv[0] == "-m" or os.path.basename(sys.argv[0]).startswith("t2t-")


def is_asked(arguments):
    """Returns whether a command's arguments, a list of str, ask for its help."""
    return any(argument in _ASKING for argument in arguments[1:])


def import_stand_ins():
    """Replaces the packages that --help does not need by empty ones.

    Returns:
        Whether it did: only in a command that is asked for its help.
    """
    if is_command() and is_asked(sys.argv):
        sys.meta_path.insert(0, _Finder())
        return True
    return False


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname, path, target=None):
        if fullname.partition(".")[0] in _PACKAGES:
            return importlib.machinery.ModuleSpec(fullname, self, is_package=True)
        return None

    def create_module(self, spec):
        return _StandIn(spec.name)

    def exec_module(self, module):
        pass


class _StandIn(types.ModuleType):
    """A package and everything in it: a base class, a function, a decorator."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args, **kwargs):
        decorates = len(args) == 1 and isinstance(args[0], type | types.FunctionType)
        return args[0] if decorates else self

    def __mro_entries__(self, bases):
        return ()

    def __eq__(self, other):
        return isinstance(other, str) or self is other  # a check of Keras's backend passes

    __hash__ = object.__hash__

    def _itself(self, *_):
        return self

    __or__ = __ror__ = __getitem__ = __neg__ = __mul__ = __rmul__ = __truediv__ = _itself


def text(headings=None):
    """Returns the help of the main module: its docstring and its flags.

    Required flags come first, then the others as the module defines them, the most used ones first.

    Args:
        headings: {heading: names of the flags under it}; "config.data" is the name of all flags
            --config.data.FIELD. Flags without a heading come first; None: no flag has one.
    """
    key = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    key.sort(key=lambda flag: not (flag.help or "").startswith(REQUIRED))
    groups = {"flags": list(key)}
    for heading, names in (headings or {}).items():
        under = [f for f in key if f.name in names or f.name.rpartition(".")[0] in names]
        groups[heading] = under
        groups["flags"] = [flag for flag in groups["flags"] if flag not in under]
    described = "\n\n".join(
        "\n".join([f"{heading}:", *map(_described, found)]) for heading, found in groups.items()
    )
    return f"{sys.modules['__main__'].__doc__}\n{described}\n\n--helpfull lists all flags."


def _described(flag):
    lines = [(f"--{'[no]' * flag.boolean}{flag.name}: {flag.help}", "  ")]
    if flag.default_as_str:
        lines.append((f"(default: {flag.default_as_str})", "    "))
    if flag.parser.syntactic_help:
        lines.append((f"({flag.parser.syntactic_help})", "    "))
    return "\n".join(
        flags.text_wrap(text, indent="    ", firstline_indent=first) for text, first in lines
    )
