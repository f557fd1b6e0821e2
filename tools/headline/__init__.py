"""Parts of `tools/results.py`: the figures of README's first table, and how they are rerun."""
