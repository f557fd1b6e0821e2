"""SavedModels of tiny translators, exported once for all tests that ask one a question."""

import functools

import pytest
import tensorflow as tf

from t2t_keras.serving import export_saved_model
from t2t_keras.serving.signatures import ON_REQUEST, SIGNATURES
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
    return functools.cache(lambda name: (SIGNATURES | ON_REQUEST)[name](the_translator()))


@pytest.fixture(
    scope="session", params=["gpu", pytest.param("cpu", marks=pytest.mark.slow(minutes=0.1))]
)
def exported(request, tmp_path_factory):
    """A folder with all signatures of the translator but `terms`.

    The export for a CPU has two searches, and takes twice as long to make, to load and to run.
    """
    folder = str(tmp_path_factory.mktemp("exported") / "1")
    options = {"signatures": [*SIGNATURES, "n_best_tokens", "sample"], "device": request.param}
    export_saved_model(the_translator(), folder, verify=False, **options)
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
def loaded(exported):
    """The SavedModel in `exported`."""
    return tf.saved_model.load(exported)


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
