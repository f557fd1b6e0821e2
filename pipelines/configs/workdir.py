"""The config of a workdir, for fine-tuning a pretrained model: --config=workdir:runs/opus."""

from pipelines.workdir import Workdir


def get_config(path):
    """Returns the config of the workdir in the folder `path`."""
    return Workdir(path).load_config()
