"""The text of --help of a command."""

import sys

from absl import flags

REQUIRED = "Required. "
"""How the help of a required flag begins."""

ASKING = {"--help", "-help", "--helpshort", "-helpshort", "-?", "-h"}
"""Arguments that ask for it."""


def text(headings=None):
    """Returns the help of the main module: its docstring and its flags.

    Required flags come first, then the others as the module defines them, the most used ones first.
    `headings` are {heading: names of the flags under it}, where "config.data" is the name of all
    flags --config.data.FIELD. Flags without a heading come first.
    """
    key = flags.FLAGS.get_key_flags_for_module(sys.argv[0])
    key.sort(key=lambda flag: not (flag.help or "").startswith(REQUIRED))
    groups = {"flags": list(key)}
    for heading, names in (headings or {}).items():
        under = [f for f in key if f.name in names or f.name.rpartition(".")[0] in names]
        groups[heading] = under
        groups["flags"] = [flag for flag in groups["flags"] if flag not in under]
    described = "\n\n".join(
        "\n".join([f"{heading}:", *map(_described, group)]) for heading, group in groups.items()
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
