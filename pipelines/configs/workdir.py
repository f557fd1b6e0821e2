"""The config of a workdir, for fine-tuning a pretrained model: --config=workdir:runs/opus."""

from pipelines.workdir import Workdir


def get_config(path):
    return Workdir(path).load_config()
