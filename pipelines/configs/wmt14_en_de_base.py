"""The paper's base model on WMT14 English–German: every field of a run, at the paper's value.

README.md in this folder explains all fields, and `pipelines/fields.py` has their defaults. The
other configs start from this one and state their changes; `--explain_config` lists how a config
differs from it.

Batches are buckets, like the paper's, with 6 % padding (generated pairs, log-normal lengths with
means of 29 and 31 tokens). On a GPU they are packed: XLA compiles one shape, which takes a minute,
instead of 16. Rows of 256 tokens have 13 % padding, and some 8 % more work in attention; 16 shapes
of buckets have 16 %.
"""

from pipelines.fields import make_config


def get_config():
    return make_config()
