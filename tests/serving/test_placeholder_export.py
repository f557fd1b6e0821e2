"""An export whose vocabulary has placeholders: documents have them, texts of requests do not."""

import pytest
import tensorflow as tf

from t2t_keras.serving import export_saved_model
from tests.tasks.test_protection import A, decoded, make, spans_of, texts_with_spans
from tests.tasks.tiny import LINES

TEXTS = [*texts_with_spans(12, most=5, seed=2), *LINES, "", f"<b>{A}</b>"]


@pytest.mark.slow
def test_documents_of_an_export_have_their_spans(tmp_path):
    translator = make()
    signatures = ["serving_default", "document"]
    export_saved_model(translator, tmp_path / "1", signatures=signatures, lines=TEXTS[:6])
    asked = tf.saved_model.load(tmp_path / "1").signatures
    assert sorted(asked) == sorted(signatures)
    found = decoded(asked["document"](text=tf.constant(TEXTS))["translation"])
    assert [spans_of(text) for text in found] == [spans_of(text) for text in TEXTS]
    lines = decoded(asked["serving_default"](text=tf.constant(LINES))["translation"])
    assert found[12:-2] == lines
    assert lines == translator(LINES)
