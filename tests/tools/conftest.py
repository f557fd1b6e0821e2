"""Puts the modules of `tools` and `tools/paper`, which run as scripts, on Python's path."""

import pathlib
import sys

TOOLS = pathlib.Path(__file__).parents[2] / "tools"
sys.path += [str(TOOLS / "paper"), str(TOOLS)]
