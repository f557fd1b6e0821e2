r"""Converts a pretrained translation model to a workdir, for all other commands and fine-tuning.

python -m pipelines.import_model --model=Helsinki-NLP/opus-mt-en-de --workdir=runs/opus
python -m pipelines.export --workdir=runs/opus --output=runs/export
python -m pipelines.train --config=workdir:runs/opus --workdir=runs/opus \
    --config.data.folder=pairs --config.data.source_language=en --config.data.target_language=de

--model downloads a model from Hugging Face's hub by its name. --from is a folder of a MarianMT
(OPUS-MT), M2M-100, NLLB-200 or SMaLL-100 model in Hugging Face's format, or of a CTranslate2 model.
The latter's SentencePiece models are those in the folder, such as source.spm and target.spm, or
--source_spm and --target_spm; without them, texts are tokens with spaces between. An unsupported
option of a folder is an error that names it. Fine-tuning keeps the model's tokenizer, or takes that
of --vocabulary.
"""

import os

from absl import flags, logging

from pipelines import app
from t2t_keras.errors import InputError
from t2t_keras.settings import LANGUAGE_TEMPLATES

FROM = app.define_path(
    "from",
    "Folder of a MarianMT (OPUS-MT), M2M-100, NLLB-200, SMaLL-100 or CTranslate2 model. Give this "
    "or --model; no default.",
    "folder",
)
MODEL = app.define_model("--from")
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
    LANGUAGE_TEMPLATES,
    "Where language tokens stand. m2m100: the source's before the source, the target's as first "
    "token of the target; small100: the target's before the source. Default: what the folder's "
    "tokenizer says, else m2m100.",
)
VOCABULARY = app.define_path(
    "vocabulary",
    "Folder of another tokenizer, such as the folder vocabulary of a run that pipelines.prepare "
    "made: its tokens that the model has keep their weights, the others are initialized, for "
    "fine-tuning. --from may then be a run of yours, too. Default: the model's vocabulary.",
    "folder",
)


def main():
    from pipelines.pretrained import converted, make_config
    from pipelines.workdir import Workdir
    from t2t_keras.data.files import require_free
    from t2t_keras.data.tokenizers import load_tokenizer
    from t2t_keras.interop.pretrained import load_pretrained, write_pretrained
    from t2t_keras.serving.export import new_version
    from t2t_keras.tasks.bundles import DESCRIPTION_FILE
    from t2t_keras.tasks.loading import load
    from t2t_keras.tasks.translation import Translator
    from t2t_keras.tasks.vocabulary_change import change_vocabulary

    if bool(FROM.value) == bool(MODEL.value):
        raise InputError("give either --from or --model.")
    path = WORKDIR.value
    require_free(path, lambda: "give a new folder as --workdir")
    is_own = FROM.value and os.path.exists(os.path.join(FROM.value, DESCRIPTION_FILE))
    if MODEL.value or (VOCABULARY.value and is_own):
        for flag in (SOURCE_SPM, TARGET_SPM, TEMPLATE):
            if flag.value:
                raise InputError(f"--{flag.name} is for a folder of --from: leave it out.")
        translator = load(converted(MODEL.value) if MODEL.value else FROM.value)
    else:
        translator = load_pretrained(FROM.value, SOURCE_SPM.value, TARGET_SPM.value, TEMPLATE.value)
    if VOCABULARY.value:
        if not isinstance(translator, Translator):
            raise InputError(
                f"--from={FROM.value} is no translation model: leave --vocabulary out."
            )
        translator = change_vocabulary(translator, load_tokenizer(VOCABULARY.value))
    with new_version(path) as folder:  # it appears under its name when it is complete
        Workdir(folder).save_config(make_config(translator))
        write_pretrained(translator, folder)
    logging.info("%s weights", f"{translator.model.count_params():,}")
    print(path)


if __name__ == "__main__":
    app.require("workdir")
    app.run(main, gpu=False)
