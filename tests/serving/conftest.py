"""SavedModels of tiny translators, exported once for all tests that ask one a question."""

import pytest

from t2t_keras.serving import export_saved_model
from t2t_keras.serving.signatures import SIGNATURES
from tests.serving.session import Session
from tests.tasks import tiny


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """A folder with all signatures of `tiny.translator()` but `terms`."""
    folder = str(tmp_path_factory.mktemp("exported") / "1")
    signatures = [*SIGNATURES, "n_best_tokens", "sample"]
    export_saved_model(tiny.translator(), folder, verify=False, signatures=signatures)
    return folder


@pytest.fixture(scope="session")
def exported_wordpiece(tmp_path_factory):
    """A folder with three signatures of a WordPiece translator that searches greedily."""
    folder = str(tmp_path_factory.mktemp("exported_wordpiece") / "1")
    translator = tiny.translator(kind="wordpiece", beam_size=1)
    signatures = ["serving_default", "n_best", "align"]
    export_saved_model(translator, folder, verify=False, signatures=signatures, device="gpu")
    return folder


@pytest.fixture(scope="session")
def served(exported):
    with Session(exported) as session:
        yield session


@pytest.fixture(scope="session")
def chromium():
    """A browser; skips where it can't be had."""
    from tests.serving.browser import start_chromium  # noqa: PLC0415

    browser = start_chromium()
    yield browser
    browser.quit()
