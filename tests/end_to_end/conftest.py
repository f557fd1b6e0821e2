"""A corpus, a run and its export, and imported models: made once for all tests, which read them."""

import pytest

from tests.end_to_end.binaries import SMALL, run, run_process, write_folder
from tests.interop import m2m100_folder, marian_folder


@pytest.fixture(scope="session")
def corpus_folder(made_once):
    return made_once("corpus", write_folder)


@pytest.fixture(scope="session")
def trained(corpus_folder, made_once):
    """The workdir of an unbroken run of 20 steps."""

    def train(folder):
        flags = [f"--workdir={folder / 'run'}", f"--config.data.folder={corpus_folder}"]
        run_process("train", *SMALL, *flags)

    return made_once("trained", train) / "run"


@pytest.fixture(scope="session")
def exported_run(trained, made_once):
    """The export of the run, for its best translations and n-best lists."""

    def export(folder):
        flags = [f"--workdir={trained}", f"--output={folder}", "--noverify"]
        run("export", *flags, "--signatures=serving_default,n_best")

    return made_once("exported_run", export) / "1"


@pytest.fixture(scope="session", params=["marian", pytest.param("m2m100", marks=pytest.mark.slow)])
def imported(request, made_once):
    """A pretrained folder and the workdir that it became."""

    def import_it(folder):
        write = {"marian": marian_folder.write, "m2m100": m2m100_folder.write}[request.param]
        write(folder / "hf")
        run("import_model", f"--from={folder / 'hf'}", f"--workdir={folder / 'run'}")

    folder = made_once(f"imported_{request.param}", import_it)
    return folder / "hf", folder / "run"
