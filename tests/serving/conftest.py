"""SavedModels of tiny translators, exported once for all tests that ask one a question."""

import functools

import pytest
import tensorflow as tf

from t2t_keras.serving import export_saved_model
from t2t_keras.serving.signatures import SIGNATURES, signature_function
from tests.serving import model_server
from tests.serving.session import Session
from tests.tasks import tiny

the_translator = functools.cache(tiny.translator)


@pytest.fixture(scope="session")
def translator():
    """For tests that change nothing of it: its graphs are made once."""
    return the_translator()


@pytest.fixture(scope="session")
def live():
    """A function of a signature's name, to the signature of the translator itself."""
    translator = the_translator()
    return functools.cache(lambda name: signature_function(translator.requests[name], translator))


@pytest.fixture(scope="session")
def exported(made_once):
    """A folder with all signatures of the translator but `terms`, for a GPU: no packed copies."""

    def export(folder):
        names = [*SIGNATURES, "n_best_tokens", "sample"]
        options = {"signatures": names, "device": "gpu", "verify": False}
        export_saved_model(the_translator(), folder / "1", **options)

    return str(made_once("exported", export) / "1")


@pytest.fixture(scope="session")
def exported_wordpiece(made_once):
    """Three signatures, for a CPU, of a WordPiece translator that searches greedily."""

    def export(folder):
        names = ["serving_default", "n_best", "align"]
        translator = tiny.translator(kind="wordpiece", beam_size=1)
        export_saved_model(translator, folder / "1", signatures=names, device="cpu", verify=False)

    return str(made_once("exported_wordpiece", export) / "1")


@pytest.fixture(scope="session")
def loaded(exported):
    """The SavedModel in `exported`."""
    return tf.saved_model.load(exported)


@pytest.fixture(scope="module")
def server(loaded):
    """A stand-in for TF Serving, with the SavedModel in `exported`."""
    with model_server.serving(loaded, version=1) as server:
        yield server


@pytest.fixture(scope="session")
def served(exported):
    with Session(exported) as session:
        yield session


@pytest.fixture(scope="session")
def served_wordpiece(exported_wordpiece):
    with Session(exported_wordpiece) as session:
        yield session


@pytest.fixture(scope="session")
def chromium():
    """A browser; skips where it can't be had."""
    from tests.serving.browser import start_chromium  # noqa: PLC0415

    browser = start_chromium()
    yield browser
    browser.quit()
