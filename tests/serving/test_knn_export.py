"""The datastore of kNN-MT goes with the model into a SavedModel."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.batching import LengthBuckets
from t2t_keras.data.corpora import encode_pairs
from t2t_keras.errors import InputError
from t2t_keras.models.knn import KNNTransformer, build_datastore
from t2t_keras.serving import export_saved_model
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

pytestmark = pytest.mark.slow

PAIRS = [(tiny.LINES[0], tiny.LINES[1]), (tiny.LINES[2], tiny.LINES[3])]


@pytest.fixture(scope="module")
def translator():
    batches = LengthBuckets(200)(encode_pairs(PAIRS, tiny.tokenizer()))
    model = tiny.model()
    model = KNNTransformer(model, build_datastore(model, batches), k=1, interpolation=0.95)
    return Translator(model, tiny.tokenizer(), max_extra_tokens=20, max_source_length=60)


def test_an_export_repeats_the_text_of_the_datastore(translator, tmp_path):
    sources, targets = map(list, zip(*PAIRS, strict=True))
    assert translator(sources) == targets  # of random weights
    names = ["serving_default", "score"]
    export_saved_model(translator, tmp_path / "1", signatures=names, verify=False)
    loaded = tf.saved_model.load(str(tmp_path / "1")).signatures
    texts = tf.constant(sources)
    found = loaded["serving_default"](text=texts)
    assert [text.decode() for text in found["translation"].numpy()] == targets
    scores = loaded["score"](text=texts, translation=tf.constant(targets))
    live = translator.score(texts, tf.constant(targets))
    found = scores["log_probability"]
    np.testing.assert_allclose(found, live.log_probabilities, atol=1e-3, rtol=0)
    assert np.all(live.log_probabilities >= live.lengths.numpy() * np.log(0.95))


def test_ctranslate2_has_no_knn(translator, tmp_path):
    with pytest.raises(InputError, match=r"has no KNNTransformer: give .* without kNN-MT"):
        export_ctranslate2(translator, tmp_path / "engine")
