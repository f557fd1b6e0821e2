"""An exported classifier answers as the live one does."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.serving import export_saved_model
from t2t_keras.serving.export import read_warmup
from t2t_keras.tasks.classification import Classifier
from tests.tasks import tiny
from tests.tasks.tiny import LABELS, classifier

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A classifier, and the folder that a clean process has confirmed."""
    folder = str(tmp_path_factory.mktemp("classifier") / "1")
    live = classifier()
    export_saved_model(live, folder, name="classifier")
    return live, folder


def test_an_export_answers_as_the_live_classifier(exported):
    live, folder = exported
    texts = [*tiny.LINES, *tiny.ODD]
    signatures = tf.saved_model.load(folder).signatures
    answer = signatures["serving_default"](text=tf.constant(texts))
    assert {name: (x.dtype, x.shape) for name, x in answer.items()} == {
        "label": (tf.string, [10]),
        "probabilities": (tf.float32, [10, 3]),
        "truncated": (tf.bool, [10]),
    }
    assert [label.decode() for label in answer["label"].numpy()] == live(texts)
    np.testing.assert_allclose(answer["probabilities"], live.probabilities(texts), rtol=1e-5)

    long = [len(text) > 2000 for text in texts]
    assert answer["truncated"].numpy().tolist() == long and any(long)

    ranking = signatures["n_best"](text=tf.constant(texts))
    assert ranking["truncated"].numpy().tolist() == long
    for row, text in enumerate(texts):
        names = [label.decode() for label in ranking["labels"][row].numpy()]
        assert names == [c.label for c in live.n_best([text])[0]]
        places = [LABELS.index(name) for name in names]
        in_order = tf.gather(answer["probabilities"][row], places)
        np.testing.assert_allclose(ranking["probabilities"][row], in_order, rtol=1e-5)


def test_every_signature_takes_a_batch_of_nothing_and_warms_up(exported):
    _, folder = exported
    for signature in tf.saved_model.load(folder).signatures.values():
        answer = signature(text=tf.constant([], tf.string))
        assert {tensor.shape[0] for tensor in answer.values()} == {0}
    assert {request.signature for request in read_warmup(folder)} == {"serving_default", "n_best"}


def test_a_subclass_is_exported_as_what_it_is(tmp_path):
    class Mine(Classifier):
        pass

    live = classifier()
    mine = Mine(live.model, live.tokenizer, LABELS)
    export_saved_model(mine, tmp_path / "1", verify=False, signatures=["serving_default"])
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    assert "label" in signature.structured_outputs


def test_signatures_of_other_tasks_are_refused(tmp_path):
    with pytest.raises(InputError, match="no signature 'align': choose from serving_default, n_"):
        export_saved_model(classifier(), tmp_path / "1", signatures=["align"])
