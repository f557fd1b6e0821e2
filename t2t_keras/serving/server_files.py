"""The text files that configure a model server, in the model's folder and in each version."""

import pathlib
import re

from absl import logging

from t2t_keras.data.files import write_file
from t2t_keras.errors import InputError

BATCHING_FILE = "batching_params.pbtxt"
"""TF Serving looks for this name inside a version."""

MODEL_CONFIG_FILE = "models.config"

BATCHING_PARAMETERS = """\
# How TF Serving joins requests that arrive together into one batch.
# A request of more sentences than this is refused.
max_batch_size { value: 128 }
# How long the first request of a batch waits for others.
batch_timeout_micros { value: 2000 }
# With this many batches waiting, further requests are refused: the client may try again.
max_enqueued_batches { value: 100 }
# Batches that run at the same time, of all models together; about the number of cores.
num_batch_threads { value: 4 }
# Source ids of different lengths can share a batch.
pad_variable_length_inputs: true
"""


def check_name(name):
    """Raises InputError for a model name that is invalid in the URL of a request."""
    if not re.fullmatch(r"[\w.-]+", name, flags=re.ASCII):
        raise InputError(
            f"name is {name!r}: give a model name of letters, digits, '.', '_' and '-'."
        )


def model_config(name):
    """Returns the text of a model server's config for one model, mounted under /models/`name`."""
    return f"""\
# For TF Serving's --model_config_file. The newest version is served; to go back to an older one:
# model_version_policy {{ specific {{ versions: 1 }} }}
model_config_list {{
  config {{
    name: "{name}"
    base_path: "/models/{name}"
    model_platform: "tensorflow"
  }}
}}
"""


def write_server_files(base, name):
    """Writes the model config and the batching parameters into the model's folder.

    An existing file may be an operator's own and is kept.

    Args:
        base: the folder of the versions.
        name: the model's name.
    """
    texts = {MODEL_CONFIG_FILE: model_config(name), BATCHING_FILE: BATCHING_PARAMETERS}
    for file, text in texts.items():
        path = pathlib.Path(base, file)
        if not path.exists():
            write_file(path, text.encode())
        elif path.read_bytes() != text.encode():
            logging.info("%s exists and is kept.", path)
