import pytest

from tests.end_to_end.binaries import SMALL, run, write_folder


@pytest.fixture(scope="session")
def corpus_folder(tmp_path_factory):
    return write_folder(tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def trained(corpus_folder, tmp_path_factory):
    """The workdir of an unbroken run of 20 steps."""
    workdir = tmp_path_factory.mktemp("run") / "work"
    run("train", *SMALL, f"--workdir={workdir}", f"--config.data.folder={corpus_folder}")
    return workdir
