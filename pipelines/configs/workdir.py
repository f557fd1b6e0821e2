"""The config that a workdir holds, to train a pretrained model on: --config=workdir:runs/opus."""

from pipelines.experiment import Workdir


def get_config(path):
    """Returns the config of the workdir in the folder `path`."""
    return Workdir(path).load_config()
