r"""Converts a pretrained translation model to a workdir, for all other commands and fine-tuning.

hf download Helsinki-NLP/opus-mt-en-de --local-dir opus-mt-en-de    # pip install huggingface_hub
python -m pipelines.import_model --from=opus-mt-en-de --workdir=runs/opus
python -m pipelines.export --workdir=runs/opus --output=runs/export
python -m pipelines.train --config=workdir:runs/opus --workdir=runs/opus \
    --config.data.folder=pairs --config.data.source_language=en --config.data.target_language=de

--from is a folder of a MarianMT (OPUS-MT), M2M-100, NLLB-200 or SMaLL-100 model in Hugging Face's
format, or of a CTranslate2 model. The latter's SentencePiece models are those in the folder, such
as source.spm and target.spm, or --source_spm and --target_spm; without them, texts are tokens with
spaces between. An unsupported option of a folder is an error that names it. Fine-tuning keeps the
model's tokenizer.
"""

import dataclasses
import os

from absl import flags, logging

from pipelines import app
from pipelines.configs import wmt14_en_de_base
from pipelines.workdir import Workdir
from t2t_keras.errors import InputError
from t2t_keras.interop.m2m100_tokenizer import TEMPLATES
from t2t_keras.interop.pretrained import load_pretrained
from t2t_keras.serving.export import new_version
from t2t_keras.tasks.bundles import write_description
from t2t_keras.training.checkpoint_files import initial_path, write_checkpoint
from t2t_keras.training.checkpoints import weight_variables

FROM = app.define_path(
    "from",
    "Folder of a MarianMT (OPUS-MT), M2M-100, NLLB-200, SMaLL-100 or CTranslate2 model.",
    "folder",
)
WORKDIR = app.define_workdir("Folder of a run, which the command makes: new or empty.")
SOURCE_SPM = app.define_path(
    "source_spm",
    "SentencePiece model of the source, for a CTranslate2 folder; default: the one in the folder; "
    "without any, texts are tokens with spaces between.",
)
TARGET_SPM = app.define_path(
    "target_spm", "SentencePiece model of the target; default: --source_spm."
)
TEMPLATE = flags.DEFINE_enum(
    "template",
    None,
    [*TEMPLATES],
    "Where language tokens stand. m2m100: the source's before the source, the target's as first "
    "token of the target; small100: the target's before the source. Default: what the folder's "
    "tokenizer says, else m2m100.",
)


def import_model(translator, path):
    """Makes a workdir from a `Translator`.

    Args:
        translator: `Translator` of a `Transformer`.
        path: the folder to make; it appears under its name when it is complete.

    Raises:
        InputError: if the folder is not empty.
    """
    if os.path.exists(path) and (not os.path.isdir(path) or os.listdir(path)):
        raise InputError(f"--workdir={path} is not empty: give a new folder.")
    with new_version(path) as folder:
        workdir = Workdir(folder)
        workdir.save_config(make_config(translator))
        write_description(folder, translator)
        translator.tokenizer.save(workdir.vocabulary)
        weights = weight_variables(translator.model)
        write_checkpoint(
            initial_path(workdir.checkpoints),
            {name: variable.value for name, variable in weights.items()},
        )


def make_config(translator):
    """Returns the config of a `Translator`'s workdir, for fine-tuning."""
    config = wmt14_en_de_base.get_config()
    config.model.update(dataclasses.asdict(translator.model.config))
    config.data.update(tfds="", tokenizer=translator.tokenizer.kind, tokens_per_batch=4_000)
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


def main():
    translator = load_pretrained(FROM.value, SOURCE_SPM.value, TARGET_SPM.value, TEMPLATE.value)
    import_model(translator, WORKDIR.value)
    logging.info("%s weights", f"{translator.model.count_params():,}")
    print(WORKDIR.value)


if __name__ == "__main__":
    app.require("from", "workdir")
    app.run(main, gpu=False)
