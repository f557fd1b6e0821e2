"""The binaries: prepare, train, average, evaluate, translate, visualize, export, serve.

Start with `app.py` (flags, errors, exit codes), `fields.py` (the fields of a config),
`experiment.py` (from a config to a model) and `workdir.py` (the folder of a run). A command defines
its flags before TensorFlow is imported, see `library.py`; -v=1 shows TensorFlow's messages.
"""

import os
import sys

from pipelines import library

# Whether this process is starting as a command: python -m pipelines.…, or t2t-….
if sys.argv[0] == "-m" or os.path.basename(sys.argv[0]).startswith("t2t-"):
    library.defer()
