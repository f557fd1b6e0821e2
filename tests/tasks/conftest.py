"""For the tests of this folder."""

import pytest
import tensorflow as tf

from tests.tasks import tiny


@pytest.fixture(scope="session")
def translator():
    """A translator that tests only ask: its graphs are traced once."""
    return tiny.translator()


@pytest.fixture
def eagerly():
    """Runs functions without tracing them, which takes longer than one search."""
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)
