"""Pretrained models as workdirs: --model, and the config with which fine-tuning begins.

Start with `workdir_of`.
"""

import dataclasses
import os

from pipelines.configs import wmt14_en_de_base
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError
from t2t_keras.interop import hub
from t2t_keras.tasks.loading import load


def workdir_of(workdir, model):
    """Returns the path of the run that one of the flags --workdir and --model chooses.

    A model, "OWNER/NAME", is downloaded and converted if it is not cached.
    """
    if bool(workdir) == bool(model):
        raise InputError("give either --workdir or --model.")
    if workdir:
        return workdir
    folder = converted(model)
    if not os.path.exists(os.path.join(folder, "config.json")):
        Workdir(folder).save_config(make_config(load(folder)))
    return folder


def converted(model):
    """Returns the folder of the model "OWNER/NAME" of the hub; InputError if it names a folder."""
    if os.path.isdir(os.path.expanduser(model)):
        raise InputError(
            f"--model={model} is a folder: make a workdir of it by pipelines.import_model "
            f"--from={model}; if it is one already, give it as --workdir to another command."
        )
    return hub.converted(model)


def make_config(translator):
    """Returns the config of a `Translator`'s workdir, for fine-tuning.

    It names no languages: the files of most models do not say which they translate.
    """
    config = wmt14_en_de_base.get_config()
    config.model.update(dataclasses.asdict(translator.model.config))
    config.data.update(tfds="", source_language="", target_language="")
    config.data.update(tokenizer=translator.tokenizer.kind, tokens_per_batch=4_000)
    config.train.update(  # a few passes over a small corpus, at a low rate
        steps=2_000,
        warmup_steps=400,
        learning_rate_scale=0.05,
        validate_every=500,
        checkpoint_every=500,
        keep_checkpoints=3,
        average_checkpoints=1,
    )
    # That of documents follows from data.source_language.
    settings = vars(translator.settings)
    config.decode.update({k: v for k, v in settings.items() if k != "text_language"})
    return config
