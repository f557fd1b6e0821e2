"""The parts of `tools/benchmark.py`. Importing it puts the repository on Python's path."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
