"""Pretrained models by their names: huggingface_hub itself, with a local server as the hub."""

import errno
import importlib
import json
import os
import shutil
import sys

import numpy as np
import pytest

import t2t_keras as t2t
from t2t_keras.errors import InputError
from t2t_keras.interop import hub
from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.marian import load_marian
from tests.end_to_end.binaries import run
from tests.interop import hub_server, m2m100_folder, marian_folder
from tests.interop.hugging_face_folder import change_json

huggingface_hub = pytest.importorskip("huggingface_hub")
LINES = ["The old man sees a small dog.", "A train."]
LANGUAGES = {"marian": {}, "m2m100": {"source_language": "en", "target_language": "de"}}
NAMES = {"marian": "someone/opus-mt-en-de", "m2m100": "someone/m2m100"}


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """{name: a folder of the hub}, with files that the import does not read."""
    place = tmp_path_factory.mktemp("models")
    marian_folder.write(place / "marian")
    m2m100_folder.write(place / "m2m100")
    for folder in place.iterdir():
        for name in ("README.md", "pytorch_model.bin", "rust_model.ot"):
            (folder / name).write_text("not read")
    return {name: place / kind for kind, name in NAMES.items()}


@pytest.fixture(scope="module")
def server(folders):
    with hub_server.serving(folders) as server:
        yield server


@pytest.fixture
def start(server, tmp_path, monkeypatch):
    """A function that has huggingface_hub imported anew, as at the start of a process."""
    server.requests.clear()
    server.refused, server.cut_at = {}, []
    loaded = {name: module for name, module in sys.modules.items() if _is_hub(name)}

    def forget():
        for name in [name for name in sys.modules if _is_hub(name)]:
            del sys.modules[name]

    def start(**environment):
        forget()
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE", "HF_ASSETS_CACHE"):
            monkeypatch.delenv(name, raising=False)
        settings = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "home")} | environment
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        importlib.import_module("huggingface_hub.constants")
        return sys.modules["huggingface_hub"]

    monkeypatch.setattr("time.sleep", lambda _: None)  # between the attempts of huggingface_hub
    yield start
    forget()
    sys.modules.update(loaded)


def _is_hub(name):
    return name.partition(".")[0] == "huggingface_hub"


def files_of(server):
    return sorted({r.split("/")[-1] for r in server.requests if r.startswith("GET /someone")})


@pytest.mark.parametrize("kind", NAMES)
def test_a_name_is_downloaded_once_and_translates_as_its_folder(
    kind, start, server, folders, capsys
):
    name = NAMES[kind]
    start()
    found = t2t.load(name)
    expected = (load_marian if kind == "marian" else load_m2m100)(folders[name])
    assert_equal(found, expected)
    read = {path.name for path in folders[name].iterdir()}
    assert {*files_of(server)} == read - {"README.md", "pytorch_model.bin", "rust_model.ot"}
    assert "MB, license: apache-2.0" in capsys.readouterr().err
    server.requests.clear()
    for environment in ({"HF_HUB_OFFLINE": "1"}, {"HF_ENDPOINT": "http://127.0.0.1:1"}, {}):
        start(**environment)
        again = t2t.load(name)
    assert_equal(again, expected)
    assert not server.requests


def assert_equal(found, expected):
    """Compares what translations follow from."""
    for ours, theirs in zip(found.model.get_weights(), expected.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert found.settings == expected.settings
    assert found.tokenizer.fingerprint() == expected.tokenizer.fingerprint()
    assert found.languages == expected.languages


def test_a_download_that_breaks_off_goes_on_at_once_or_with_the_next_start(start, server, folders):
    start().constants.DOWNLOAD_CHUNK_SIZE = 1_000  # is written when it is complete
    server.cut_at = [4_000] * 99
    name = NAMES["marian"]
    with pytest.raises(InputError, match=r"broke off .* start again: complete files are kept"):
        t2t.load(name)
    start(HF_HUB_OFFLINE="1")
    with pytest.raises(
        InputError, match=r"is in the cache in part, and the hub .* cannot be asked"
    ):
        t2t.load(name)
    server.cut_at = [4_000, 8_000]
    server.requests.clear()
    start().constants.DOWNLOAD_CHUNK_SIZE = 1_000
    assert_equal(t2t.load(name), load_marian(folders[name]))
    files = [r.split("/")[-1] for r in server.requests if r.startswith("GET /someone")]
    ranges = ["", " bytes=4000-", " bytes=8000-"]
    assert files == [f"model.safetensors{each}" for each in ranges]


@pytest.mark.parametrize("weights", ["tf_model.h5", "pytorch_model.bin"])
def test_other_forms_of_weights_that_break_off_are_missing_from_the_cache(
    weights, start, server, folders, tmp_path, monkeypatch
):
    folder = shutil.copytree(folders[NAMES["marian"]], tmp_path / "other")
    monkeypatch.setitem(folders, "someone/other", folder)
    (folder / "pytorch_model.bin").unlink()
    (folder / "model.safetensors").rename(folder / weights)
    start().constants.DOWNLOAD_CHUNK_SIZE = 1_000
    server.cut_at = [4_000] * 99
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)  # torch is looked for
    with pytest.raises(InputError, match=r"broke off"):
        t2t.load("someone/other")
    start(HF_HUB_OFFLINE="1")
    with pytest.raises(
        InputError, match=r"is in the cache in part, and the hub .* cannot be asked"
    ):
        t2t.load("someone/other")


def test_a_model_in_the_cache_is_converted_without_the_network(start, server, folders):
    name = NAMES["marian"]
    module = start()
    module.snapshot_download(name)
    start(HF_HUB_OFFLINE="1")
    assert_equal(t2t.load(name), load_marian(folders[name]))


REFUSED = {
    "missing": ("someone/else", None, {}, "there is no public model http.*/someone/else: check"),
    "private": (NAMES["marian"], (401, "RepoNotFound"), {}, "no public model .* hf auth login"),
    "gated": (NAMES["marian"], (403, "GatedRepo"), {}, "is gated: accept its terms"),
    "token": (NAMES["marian"], (401, "Other"), {"HF_TOKEN": "hf_x"}, "refused to you|no public"),
    "busy": (NAMES["marian"], (503, "Busy"), {}, r"not in the cache, .* cannot be asked \(.*503"),
    "offline": (NAMES["marian"], None, {"HF_HUB_OFFLINE": "1"}, "not in the cache.* cannot be ask"),
    "no network": (NAMES["marian"], None, {"HF_ENDPOINT": "http://127.0.0.1:1"},
     r"not in the cache.* cannot be asked \(.*refused"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_downloaded_is_one_sentence(case, start, server):
    name, refusal, environment, message = REFUSED[case]
    start(**environment)
    server.refused = {name: refusal} if refusal else {}
    with pytest.raises(InputError, match=message) as error:
        hub.converted(name)
    assert "\n" not in str(error.value)


OTHERS = {
    "architecture": (lambda f: change_json(f / "config.json", model_type="t5"),
     "config.json: model_type is 't5': only marian and m2m_100"),
    "format": (lambda f: (f / "config.json").unlink(), "has no config.json"),
    "no weights": (lambda f: [(f / n).unlink() for n in ("model.safetensors", "pytorch_model.bin")],
     "has none of model.safetensors, tf_model.h5, pytorch_model.bin"),
    "PyTorch": (lambda f: (f / "model.safetensors").unlink(),
     r"which only PyTorch reads: .*'t2t_keras\[torch\]'"),
}  # fmt: skip


@pytest.mark.parametrize("case", OTHERS)
def test_another_kind_of_model_is_refused_before_its_weights(
    case, start, folders, tmp_path, monkeypatch
):
    change, message = OTHERS[case]
    folder = shutil.copytree(folders[NAMES["marian"]], tmp_path / "changed")
    change(folder)
    monkeypatch.setattr(hub.importlib.util, "find_spec", lambda name: None)  # no PyTorch
    with hub_server.serving({"a/b": folder}) as server:
        start(HF_ENDPOINT=server.url)
        with pytest.raises(InputError, match=message):
            hub.converted("a/b")
        assert not any("safetensors" in request for request in server.requests)


def test_a_full_disk_says_so(start, monkeypatch):
    start()
    free = type("usage", (), {"free": 1000})
    monkeypatch.setattr(shutil, "disk_usage", lambda path: free)
    with pytest.raises(InputError, match=r"needs .* MB on the disk, .* has 0.0 MB left: make ro"):
        hub.converted(NAMES["marian"])
    monkeypatch.undo()


def test_files_in_the_cache_need_no_room_again(start, folders, monkeypatch):
    start()
    name = NAMES["marian"]
    with monkeypatch.context() as patch:
        patch.setattr(hub, "_write", lambda *_: None)  # a process that ends before it converts
        hub.converted(name)
    total = sum(os.path.getsize(folders[name] / file) for file in os.listdir(folders[name]))
    free = type("usage", (), {"free": 1.2 * total})  # files that are not read are in it
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: free)
        hub.converted(name)


def test_a_disk_that_fills_says_so(start, monkeypatch):
    def fill(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(start(), "snapshot_download", fill)
    with pytest.raises(InputError, match=r"the disk of .* is full: make room, or set HF_HOME"):
        hub.converted(NAMES["marian"])


@pytest.mark.parametrize("name", ["opus-mt-en-de", "a/b/c", "../b", "a/-b", "", "a/b c"])
def test_a_name_of_another_form_is_refused(name):
    with pytest.raises(InputError, match=r"give OWNER/NAME, such as"):
        hub.converted(name)


def test_a_folder_comes_before_a_name(start, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    start()
    with pytest.raises(
        InputError, match=r"the folder '.*' does not exist; as a model's name: ther"
    ):
        t2t.load("runs/typo")
    (tmp_path / "runs" / "typo").mkdir(parents=True)
    with pytest.raises(InputError, match=r"it is not a saved predictor"):
        t2t.load("runs/typo")


def test_without_huggingface_hub_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(
        InputError, match=r"install the extra pretrained, by pip install 't2t_keras\[p"
    ):
        t2t.load("someone/model")


@pytest.mark.slow
@pytest.mark.parametrize("kind", NAMES)
def test_commands_take_a_name(kind, start, server, folders, tmp_path):
    """They translate as the folder does, download once, and make a workdir."""
    start()
    model, languages = f"--model={NAMES[kind]}", LANGUAGES[kind]
    flags = [f"--{name}={code}" for name, code in languages.items()]
    load = load_marian if kind == "marian" else load_m2m100
    expected = load(folders[NAMES[kind]])(LINES, **languages)
    for name, lines in (("source", LINES), ("reference", expected)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    texts = "\n".join(LINES).encode()
    assert run("translate", model, *flags, stdin=texts)[0].splitlines() == expected
    server.requests.clear()
    files = [f"--{name}={tmp_path}/{name}" for name in ("source", "reference")]
    stdout, _ = run("evaluate", model, *files, *flags)
    assert json.loads(stdout.splitlines()[-1])["exact"] == 1
    run("export", model, f"--output={tmp_path}/export", "--noverify")
    assert (tmp_path / "export" / "1" / "saved_model.pb").exists()
    run("import_model", model, f"--workdir={tmp_path}/run")
    assert_equal(t2t.load(tmp_path / "run"), load(folders[NAMES[kind]]))
    assert not server.requests


@pytest.mark.parametrize(("command", "flags", "message"), [
    ("translate", ["--model=a/b", "--workdir=c"], "one of --workdir, --model and --saved_model"),
    ("translate", ["--model=opus"], "'opus' is not the name of a model: give OWNER/NAME"),
    ("translate", ["--model=tests"], "--model=tests is a folder: make a workdir of it"),
    ("translate", ["--model=tests/data"], "--model=tests/data is a folder: make a workdir of it"),
    ("import_model", ["--workdir=x", "--model=tests/data"], "--model=tests/data is a folder"),
    ("evaluate", ["--model=a/b"], "also give --source and --reference"),
    ("export", ["--output=x"], "give either --workdir or --model"),
    ("import_model", ["--workdir=x", "--model=a/b", "--from=c"], "either --from or --model"),
    ("import_model", ["--workdir=x", "--model=a/b", "--template=small100"],
     "--template is for a folder of --from"),
])  # fmt: skip
def test_flags_that_do_not_fit_a_name_are_refused(command, flags, message):
    assert message in run(command, *flags, code=1)[1].splitlines()[-1]
