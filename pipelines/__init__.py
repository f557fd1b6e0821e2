"""The commands; `commands.py` lists them.

Start with `app.py` (flags, errors, exit codes), `fields.py` (the fields of a config),
`experiment.py` (from a config to a model) and `workdir.py` (the folder of a run). A command defines
its flags before TensorFlow is imported, see `library.py`; -v=1 shows TensorFlow's messages.
"""

import os
import sys

from pipelines import library

_IS_MODULE = sys.argv[0] == "-m" and any(  # python -m pipelines.NAME, while it is looked up
    argument.removeprefix("-m").startswith("pipelines.") for argument in sys.orig_argv
)
if _IS_MODULE or os.path.basename(sys.argv[0]).startswith("t2t-"):
    library.defer()
