import numpy as np
import pytest
import tensorflow as tf

from t2t_keras import Transformer, Translator
from t2t_keras.errors import InputError
from tests.tasks import tiny

PAIRS = [
    ("The  old man sees e\u0301 \U0001f600 dogs.", "Der alte Mann sieht."),
    ("A train.", "Ob der Zug kommt, weiß sie nicht."),
    ("  ", "Hund"),
    ("dog", ""),
]


@pytest.fixture(scope="module", params=["bpe", "wordpiece"])
def translator(request):
    made = tiny.translator(kind=request.param)
    made.model = tiny.model(num_decoder_layers=2)  # the last one counts
    return made


def test_spans_are_where_the_last_layer_attends_most(translator):
    texts, translations = zip(*PAIRS, strict=True)
    found = translator.align(tf.constant(texts), tf.constant(translations))
    attention, spans = found.attention.numpy(), found.spans.numpy()
    tokenizer = translator.tokenizer
    for row, (text, translation) in enumerate(PAIRS):
        offsets = tokenizer.encode_with_offsets([text])
        source, target = ([*tokenizer.encode([x]).to_list()[0], 1] for x in (text, translation))
        for pieces, ids in ((found.source_pieces, source), (found.target_pieces, target)):
            shown = tokenizer.pieces(tf.constant(ids)).numpy().tolist()
            assert pieces[row].numpy().tolist() == shown + [b""] * (pieces.shape[1] - len(ids))
        expected = translator.model(
            {"source_ids": tf.constant([source]), "target_ids": tf.constant([[3, *target[:-1]]])},
            return_attention_weights=True,
        )[1].cross[0]
        np.testing.assert_allclose(
            attention[row, :, :, : len(target), : len(source)], expected, atol=1e-5
        )
        assert not attention[row, :, :, len(target) :].any()
        assert not attention[row, :, :, :, len(source) :].any()
        weights = np.mean(expected[-1], axis=0)[:, :-1]  # the end has no characters
        for t, span in enumerate(spans[row].tolist()):
            if t >= len(target) - 1 or len(source) == 1:
                assert span == [0, 0]
            else:
                token = np.argmax(weights[t])
                assert span == [offsets.starts[0, token], offsets.ends[0, token]]
                assert text[slice(*span)]


def test_attention_of_a_model_in_float64_is_float32():
    model = Transformer(tiny.translator().model.config, dtype="float64")
    found = Translator(model, tiny.tokenizer()).align(["The dog."], ["Der Hund."])
    assert found.attention.dtype == tf.float32


def test_alignment_does_not_depend_on_the_batch(translator):
    texts, translations = zip(*PAIRS, strict=True)
    together = translator.align(tf.constant(texts), tf.constant(translations))
    for row, (text, translation) in enumerate(PAIRS):
        alone = translator.align(tf.constant([text]), tf.constant([translation]))
        length = alone.spans.shape[1]
        np.testing.assert_array_equal(together.spans[row, :length], alone.spans[0])
    lists = translator.align(texts, translations)
    np.testing.assert_array_equal(lists.spans, together.spans)
    with pytest.raises(InputError, match="translations has 1 strings for 2 texts: give one for"):
        translator.align(["It works .", "a"], ["b"])
    nothing = tf.constant([], tf.string)
    assert translator.align(nothing, nothing).spans.shape[0] == 0
