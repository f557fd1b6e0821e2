"""Puts the modules of `tools/paper`, which run as scripts, on Python's path."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).parents[2] / "tools" / "paper"))
