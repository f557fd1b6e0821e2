"""A folder of a pretrained model of any kind that is read, as a `Translator`.

Start with `load_pretrained`.
"""

import os
import pathlib

from t2t_keras.data.files import local_path
from t2t_keras.errors import InputError
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.interop.files import read_json
from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.marian import load_marian
from t2t_keras.interop.other_formats import explain
from t2t_keras.tasks.bundles import VOCABULARY_FOLDER, write_description
from t2t_keras.tasks.translation import Translator
from t2t_keras.training.checkpoint_files import initial_path, write_checkpoint
from t2t_keras.training.checkpoints import weight_variables
from t2t_keras.types import StrPath

MODEL_TYPES = ("marian", "m2m_100")
"""`model_type` of config.json of the models in Hugging Face's format that are read."""


def load_pretrained(
    folder: StrPath,
    source_spm: StrPath | None = None,
    target_spm: StrPath | None = None,
    template: str | None = None,
) -> Translator:
    """Loads a MarianMT (OPUS-MT), M2M-100, NLLB-200, SMaLL-100 or CTranslate2 model.

    Args:
        folder: its folder.
        source_spm, target_spm: as for `load_ctranslate2`, for its folders alone.
        template: as for `load_m2m100`, for its folders alone.

    Returns:
        `Translator` with the search that the folder describes.

    Raises:
        InputError: if there is no such folder, it cannot be read, or an argument does not apply to
            this kind of model.
    """
    folder = pathlib.Path(local_path(folder))
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder; {_download(folder)}")
    is_ctranslate2 = (folder / "model.bin").exists()
    if not is_ctranslate2 and not (folder / "config.json").exists():
        raise InputError(
            f"{folder} has neither config.json (a model of Hugging Face) nor model.bin (a "
            f"CTranslate2 model); {explain(folder) or _download(folder)}"
        )
    kind = None if is_ctranslate2 else read_json(folder / "config.json").get("model_type")
    if template and kind != "m2m_100":
        raise InputError(
            f"--template={template} is only for M2M-100, NLLB-200 and SMaLL-100: leave it out."
        )
    if is_ctranslate2:
        return load_ctranslate2(folder, source_spm, target_spm)
    if source_spm or target_spm:
        raise InputError(f"{folder} has a tokenizer: leave out --source_spm, --target_spm.")
    require_model_type(kind, folder / "config.json", explain(folder))
    return load_m2m100(folder, template) if kind == "m2m_100" else load_marian(folder)


def write_pretrained(translator: Translator, folder: StrPath) -> None:
    """Writes a pretrained model as the workdir of a training that has not begun, without a config.

    `translator` is of a `Transformer`. `t2t_keras.load` reads the folder, which is made.
    """
    write_description(folder, translator)
    translator.tokenizer.save(os.path.join(folder, VOCABULARY_FOLDER))
    weights = weight_variables(translator.model)
    write_checkpoint(
        initial_path(pathlib.Path(folder, "checkpoints")),
        {name: variable.value for name, variable in weights.items()},
    )


def require_model_type(kind: object, place: object, hint: str | None = None) -> None:
    """Raises InputError if models with this `model_type` in config.json, or None, are not read.

    `place` is the file, and `hint` what its folder is if it has no `model_type`.
    """
    if kind is None and hint:
        raise InputError(f"{place} is of no translation model of Hugging Face; {hint}.")
    if kind not in MODEL_TYPES:
        raise InputError(
            f"{place}: model_type is {kind!r}: only marian and m2m_100 (OPUS-MT, M2M-100, "
            "NLLB-200, SMaLL-100) are supported."
        )


def _download(folder):
    """Returns a sentence that says how to download a model into a folder."""
    owner = "OWNER" if len(folder.parts) != 2 else folder.parts[0]
    if folder.name.startswith("opus-mt-"):
        owner = "Helsinki-NLP"
    name = f"{owner}/{folder.name}"
    return (
        f"to download a model from Hugging Face, give --model={name} instead, or (pip install "
        f"huggingface_hub): hf download {name} --local-dir {folder}"
    )
