"""Pretrained models by their names on Hugging Face's hub: download, cache, conversion.

Start with `load`. `huggingface_hub` downloads the files that the import reads into its cache; after
an interruption the next start downloads the missing ones. The converted weights are cached beside
them, in the folder of assets: from then on a model starts like a saved one, without the network.

`hf download NAME` of huggingface_hub gets a newer revision of a model, which is converted anew.
"""

import contextlib
import errno
import importlib.util
import logging
import os
import re
import shutil
import sys
from typing import Any

from t2t_keras.data.files import local_path, make_folder, new_folder
from t2t_keras.errors import InputError, reason_of
from t2t_keras.interop.files import read_json
from t2t_keras.interop.hugging_face import WEIGHTS
from t2t_keras.interop.pretrained import load_pretrained, require_model_type, write_pretrained
from t2t_keras.tasks import loading
from t2t_keras.tasks.bundles import DESCRIPTION_FILE
from t2t_keras.types import StrPath

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_FORMAT = 3  # of the converted weights: raised whenever the conversion changes
_SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "tokenizer.json",
    "vocab.json",
    "target_vocab.json",
    "source.spm",
    "target.spm",
    "sentencepiece.bpe.model",
    "tokenization_small100.py",  # is not run, it names the tokenizer
    "adapter_config.json",  # is refused
)
"""The files that the import reads, except the weights."""

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def load(folder: StrPath) -> Any:
    """Loads a predictor from a folder, or a pretrained model by its name on Hugging Face's hub.

    Nothing in a folder or in a model's files is run as code.

    Args:
        folder: a folder that `save` wrote, or the workdir of a training, whose weights of the
            newest step are loaded: EMA, average or checkpoint, without kNN-MT. Where there is no
            such folder, "OWNER/NAME", a MarianMT (OPUS-MT), M2M-100, NLLB-200 or SMaLL-100 model:
            the first call downloads it, which needs the extra `pretrained`.

    Returns:
        `Translator`, `TextGenerator`, `Parser`, `Classifier`, or a `Predictor` of your own whose
        module is imported.

    Raises:
        InputError: if the folder is not one of these, or is damaged; or if there is no such model,
            it cannot be downloaded, or it is of another kind.

    Example:
        >>> translator.save("translator")
        >>> t2t.load("translator")(["The old man."]) == translator(["The old man."])
        True
        >>> t2t.load("Helsinki-NLP/opus-mt-en-de")(["Hello world."])  # doctest: +SKIP
        ['Hallo Welt.']
    """
    folder, name = local_path(folder), os.fspath(folder)
    if os.path.exists(folder) or not is_name(name):
        return loading.load(folder)
    try:
        return loading.load(converted(name))
    except InputError as error:
        raise InputError(f"the folder {folder!r} does not exist; as a model's name: {error}") from (
            error
        )


def is_name(text: str | bytes) -> bool:
    """Returns whether a text has the form of a model's name, "OWNER/NAME"."""
    return isinstance(text, str) and bool(_NAME.fullmatch(text))


def converted(name: str) -> str:
    """Returns the folder of the model "OWNER/NAME", converted; makes it if it is missing.

    Raises:
        InputError: if there is no such model, it cannot be downloaded, or it is of another kind.
    """
    if not is_name(name):
        raise InputError(
            f"{name!r} is not the name of a model: give OWNER/NAME, such as "
            "Helsinki-NLP/opus-mt-en-de."
        )
    hub = _hub(name)
    snapshot = _snapshot(hub, name)
    if snapshot and _is_complete(folder := _folder_of(hub, name, snapshot)):
        return folder
    snapshot = _download(hub, name)
    translator, folder = load_pretrained(snapshot), _folder_of(hub, name, snapshot)
    with _explained(hub, name):
        _write(translator, folder)
    return folder


def _hub(name):
    try:
        import huggingface_hub.constants  # noqa: PLC0415  an extra
        import huggingface_hub.errors  # noqa: PLC0415
        import huggingface_hub.utils  # noqa: PLC0415
    except ImportError as error:
        raise InputError(
            f"{name} is downloaded by huggingface_hub: install the extra pretrained, by pip "
            "install 't2t_keras[pretrained]'."
        ) from error
    for client in ("httpx", "httpx2"):  # which log every request
        logging.getLogger(client).setLevel(logging.WARNING)
    return huggingface_hub


def _snapshot(hub, name):
    """Returns the folder of the cached files of a model, or None."""
    config = hub.try_to_load_from_cache(name, "config.json")
    return os.path.dirname(config) if isinstance(config, str) else None


def _folder_of(hub, name, snapshot):
    """Returns the folder of the converted weights of a model's cached revision."""
    revision = f"{os.path.basename(snapshot)}.{_FORMAT}"
    assets = hub.constants.HF_ASSETS_CACHE
    return os.path.join(assets, "t2t_keras", name.replace("/", "--"), revision)


def _is_complete(folder):
    return os.path.exists(os.path.join(folder, DESCRIPTION_FILE))


def _write(translator, folder):
    try:
        with new_folder(folder, lambda: "delete it and start again") as path:
            write_pretrained(translator, path)
    except InputError:
        if not _is_complete(folder):  # else another process wrote it in the meantime
            raise


# Download ----------------------------------------------------------------------------------------


def _download(hub, name):
    """Returns the folder of the files of a model, downloaded where they are not cached."""
    offline = _lost(hub)
    with _explained(hub, name):
        try:
            info = hub.HfApi().model_info(name, files_metadata=True)
        except offline as error:
            if (_status(error) or 500) < 500:
                raise
            return _cached(hub, name, error)
        sizes = {file.rfilename: file.size or 0 for file in info.siblings or ()}
        place = f"{hub.constants.ENDPOINT}/{name}"
        if "config.json" not in sizes:
            raise InputError(
                f"{place} has no config.json: it is not a model in the format of transformers."
            )
        config = read_json(hub.hf_hub_download(name, "config.json", revision=info.sha))
        require_model_type(config.get("model_type"), f"{place}/config.json")
        files = [*(file for file in _SETTINGS if file in sizes), *_weights_of(place, sizes)]
        total = sum(sizes[file] for file in files)
        print(f"{place}: {_size(total)}, license: {_license(info)}", file=sys.stderr)
        kept = [hub.try_to_load_from_cache(name, file, revision=info.sha) for file in files]
        cached = sum(os.path.getsize(path) for path in kept if isinstance(path, str))
        _require_room(hub, name, 2 * total - cached)
        return hub.snapshot_download(name, allow_patterns=files)


def _status(error):
    """Returns the HTTP status of an error, or None."""
    return getattr(getattr(error, "response", None), "status_code", None)


def _lost(hub):
    """Returns the classes of errors of a network that is off or lost, or of a busy hub."""
    errors = hub.errors
    return (errors.OfflineModeIsEnabled, errors.HfHubHTTPError, *errors.HfHubHTTPError.__bases__)


def _weights_of(place, sizes):
    """Returns the names of the files of weights to download."""
    for name in WEIGHTS:
        stem, _, ending = name.rpartition(".")
        shards = [n for n in sizes if re.fullmatch(rf"{stem}-\d+-of-\d+\.{ending}", n)]
        files = [name] if name in sizes else [f"{name}.index.json", *shards] if shards else []
        if not files:
            continue
        if name == "pytorch_model.bin" and importlib.util.find_spec("torch") is None:
            raise InputError(
                f"{place} has its weights in {name} alone, which only PyTorch reads: install the "
                "extra torch, by pip install 't2t_keras[torch]'."
            )
        return [file for file in files if file in sizes]
    raise InputError(f"{place} has none of {', '.join(WEIGHTS)}: such weights are not read.")


def _license(info):
    card = info.card_data or {}
    tags = [tag.partition(":")[2] for tag in info.tags or () if tag.startswith("license:")]
    return f"{card.get('license') or next(filter(None, tags), 'not named, ask its authors')}"


def _size(count):
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def _require_room(hub, name, size):
    """Raises InputError if the disk has no room for a download and the converted weights, bytes."""
    cache = hub.constants.HF_HUB_CACHE
    make_folder(cache)
    free = shutil.disk_usage(cache).free
    if free < size:
        raise InputError(
            f"{name} needs {_size(size)} on the disk, with the converted weights, and {cache} "
            f"has {_size(free)} left: make room, or set HF_HOME to a folder on another disk."
        )


def _cached(hub, name, error):
    """Returns the folder of the cached files of a model, because the hub cannot be asked."""
    reason = reason_of(error).rstrip(".")
    snapshot = _snapshot(hub, name)
    if snapshot is None:
        raise InputError(
            f"{name} is not in the cache, {hub.constants.HF_HUB_CACHE}, and the hub "
            f"{hub.constants.ENDPOINT} cannot be asked ({reason}): connect to the network, or "
            "unset HF_HUB_OFFLINE, and start again."
        ) from error
    for form in WEIGHTS:
        stem, _, ending = form.rpartition(".")
        for files in ([form], [f"{form}.index.json", f"{stem}-*-of-*.{ending}"]):
            if os.path.exists(os.path.join(snapshot, files[0])):
                with contextlib.suppress(hub.errors.LocalEntryNotFoundError):
                    names = (*_SETTINGS, *files)
                    return hub.snapshot_download(name, local_files_only=True, allow_patterns=names)
    raise InputError(
        f"{name} is in the cache in part, and the hub {hub.constants.ENDPOINT} cannot be asked "
        f"({reason}): start again with the network, and the download resumes."
    ) from error


@contextlib.contextmanager
def _explained(hub, name):
    """Makes the errors of a download one sentence each."""
    logs = hub.utils.logging
    verbosity = logs.get_verbosity()
    logs.set_verbosity_error()  # no warnings of its own about what it tries again
    try:
        yield
    except (hub.errors.HFValidationError, *_lost(hub)) as error:
        raise InputError(_sentence(hub, name, error)) from error
    finally:
        logs.set_verbosity(verbosity)


def _sentence(hub, name, error):
    errors, place = hub.errors, f"{hub.constants.ENDPOINT}/{name}"
    reason = reason_of(error).rstrip(".")
    login = "log in by hf auth login, or set HF_TOKEN"
    if isinstance(error, errors.HFValidationError):
        return f"{name!r} is not the name of a model: {reason}."
    if isinstance(error, errors.GatedRepoError):
        return f"{place} is gated: accept its terms on that page, then {login}, and start again."
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"there is no public model {place}: check the name; if it is private, {login}."
    if getattr(error, "errno", None) in _FULL:
        return (
            f"{name}: the disk of {hub.constants.HF_HOME} is full: make room, or set HF_HOME to a "
            "folder on another disk, and start again."
        )
    if _status(error) in (401, 403):
        return f"{place} is refused to you ({reason}): {login}."
    return f"the download of {place} broke off ({reason}): start again: complete files are kept."
