"""The paper's base model on WMT14 English–German: every field of a run, at the paper's value.

README.md in this folder explains all fields, and `pipelines/fields.py` has their defaults. The
other configs start from this one and state their changes; `--explain_config` lists how a config
differs from it.

Batches are buckets, like the paper's. On GPUs they have 16 shapes for XLA, and 16 % of the
positions are padding (generated pairs, log-normal lengths with means of 29 and 31 tokens; 6 %
without XLA). Packed rows of 256 tokens have 13 %, and more work in attention, some 8 %: no gain.
"""

from pipelines.fields import make_config


def get_config():
    """Returns the config of the paper's base model (sections 5 and 6.1)."""
    return make_config()
