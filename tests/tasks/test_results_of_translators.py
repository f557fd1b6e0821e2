"""Tokens of translations: their texts, their log P and their sources, from the search itself."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.tasks.given_translations import align
from t2t_keras.tasks.shortlist import ShortlistTranslator
from tests.tasks import tiny
from tests.tasks.tiny import shortlist

pytestmark = pytest.mark.slow

TEXTS = ["The  old man sees e\u0301 \U0001f600 dogs.", "A train.", "", "She does not know \u202e."]


def shortlisted(**settings):
    return ShortlistTranslator(tiny.translator(**settings), shortlist())


@pytest.fixture(scope="module", params=[tiny.translator, shortlisted], ids=["bpe", "shortlist"])
def translator(request):
    made = request.param()
    made.model = tiny.model(num_decoder_layers=2)  # the attention of the last one counts
    return made


def test_tokens_are_those_of_teacher_forcing_over_the_searchs_own_hypotheses(translator):
    found = translator.translate_tokens(tf.constant(TEXTS), n_best=4)
    plain = translator.translate(tf.constant(TEXTS), n_best=4)
    assert found.texts.numpy().tolist() == plain.texts.numpy().tolist()
    np.testing.assert_allclose(found.scores, plain.scores, rtol=1e-5)
    sources = translator.sources.encode_with_offsets(tf.constant(TEXTS))
    ids = translator.search(sources.ids, translator._prefix_ids(sources.ids)[0], 4).ids
    exists = np.isfinite(found.scores)
    penalty = ((5 + found.lengths.numpy()) / 6) ** 0.6
    sums = found.log_probabilities.numpy().sum(2)
    np.testing.assert_allclose(
        sums[exists], (found.scores.numpy() * penalty)[exists], rtol=1e-5, atol=1e-5
    )
    for beam in range(4):
        target = ids[:, beam] * tf.cast(exists[:, beam, np.newaxis], tf.int32)
        expected = align(translator.model, translator.tokenizer, sources, target)
        np.testing.assert_array_equal(found.source_spans[:, beam], expected.spans)
        if isinstance(translator, ShortlistTranslator):
            continue  # whose log P is over the candidates
        shifted = tf.pad(target[:, :-1], [[0, 0], [1, 0]], constant_values=3)
        logits = translator.model({"source_ids": sources.ids, "target_ids": shifted})
        log_p = tf.gather(tf.nn.log_softmax(logits), target, batch_dims=2).numpy()
        is_token = np.arange(ids.shape[2]) < found.lengths.numpy()[:, beam, np.newaxis]
        np.testing.assert_allclose(
            found.log_probabilities[:, beam], np.where(is_token, log_p, 0), atol=2e-5
        )


def test_objects_of_python_slice_both_texts(translator):
    rows = translator.n_best_tokens(TEXTS, 3)
    plain = translator.n_best(TEXTS, 3)
    for text, row, others in zip(TEXTS, rows, plain, strict=True):
        assert [found[:2] for found in row] == [(x.text, pytest.approx(x.score)) for x in others]
        for found in row:
            covered = {i for token in found.tokens for i in range(token.start, token.end)}
            assert not found.text.strip() or max(covered) == len(found.text.rstrip()) - 1
            assert all(i in covered or c.isspace() for i, c in enumerate(found.text))
            for token in found.tokens[:-1]:
                assert bool(text[token.source_start : token.source_end]) == bool(text)
    assert [len(found.tokens) for found in rows[2]] == [1, 0, 0]  # the end alone
    [[best]] = translator.n_best_tokens(["A train."], 1, prefix=["Der Hund"])
    assert best.text.startswith("Der Hund")
    with pytest.raises(InputError, match="n is 9: give a whole number from 1 to beam_size"):
        translator.n_best_tokens(["A train."], 9)
    assert translator.n_best_tokens([]) == []
    assert rows[2][0].tokens[0][:2] == rows[2][0].tokens[0][3:] == (0, 0)
