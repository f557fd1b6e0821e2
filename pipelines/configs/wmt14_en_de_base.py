"""The paper's base model on WMT14 English–German: every field of a run, at the paper's value.

README.md in this folder explains all fields, and `pipelines/fields.py` has their defaults. The
other configs start from this one and state their changes; `--explain_config` lists how a config
differs from it.
"""

from pipelines.fields import make_config


def get_config():
    """Returns the config of the paper's base model (sections 5 and 6.1)."""
    return make_config()
