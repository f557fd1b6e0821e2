"""Fine-tuning begins with the weights of the tokens that old and new vocabulary have."""

import numpy as np
import pytest
import tensorflow as tf

import t2t_keras as t2t
from t2t_keras.errors import InputError
from t2t_keras.interop.marian import load_marian
from t2t_keras.models import enable_lora
from t2t_keras.tasks.vocabulary_change import change_vocabulary
from tests.interop import marian_folder
from tests.tasks import tiny


def pieces(tokenizer):
    return tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy().tolist()


def test_equal_tokens_keep_their_rows_and_others_are_new(caplog):
    old = tiny.translator()
    tokenizer = t2t.train_tokenizer("bpe", [*tiny.LINES[::2], "unlike words"], vocab_size=300)
    caplog.set_level("INFO", logger="absl")
    before = [weight.numpy() for weight in old.model.weights]
    changed = change_vocabulary(old, tokenizer)
    assert changed.model.config.vocab_size == tokenizer.vocab_size == 300
    assert changed.settings == old.settings
    theirs, ours = pieces(old.tokenizer), pieces(tokenizer)
    kept = [i for i, piece in enumerate(ours) if i < 4 or piece in theirs[4:]]
    assert 4 < len(kept) < 300
    message = f"Vocabulary: {len(kept)} of 300 tokens keep their weights, {300 - len(kept)} are"
    assert message in caplog.text
    matrix, old_matrix = (m.embedding.matrix.numpy() for m in (changed.model, old.model))
    for i in range(300):
        equal = old_matrix[i if i < 4 else theirs.index(ours[i])] if i in kept else None
        assert equal is None or np.array_equal(matrix[i], equal)
        assert i in kept or not (matrix[i] == old_matrix).all(axis=1).any()
    for one, other in zip(before, old.model.weights, strict=True):  # it is not changed
        np.testing.assert_array_equal(one, other.numpy())
    rest = [
        (one, other)
        for one, other in zip(changed.model.get_weights(), before, strict=True)
        if one.shape[:1] != (300,)
    ]
    assert all(np.array_equal(one, other) for one, other in rest) and len(rest) > 10
    changed(["Another train."])


def test_the_same_vocabulary_changes_nothing(tmp_path):
    """Of a model with two vocabularies and a bias of the logits."""
    old = load_marian(marian_folder.write(tmp_path / "hf", separate=True))
    changed = change_vocabulary(old, old.tokenizer)
    for one, other in zip(changed.model.get_weights(), old.model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_lora_becomes_a_part_of_the_weights():
    old = tiny.translator()
    enable_lora(old.model, 2)
    rng = np.random.default_rng(0)
    for weight in old.model.trainable_weights:
        weight.assign(rng.normal(0, 0.7, weight.shape))
    changed = change_vocabulary(old, old.tokenizer)
    log_p, expected = (
        t.score(tiny.LINES[:2], tiny.LINES[:2]).log_probabilities for t in (changed, old)
    )
    np.testing.assert_allclose(log_p, expected, rtol=1e-3)
    assert not any("lora" in weight.path for weight in changed.model.weights)


def test_what_cannot_be_changed_is_refused(tmp_path):
    separate = load_marian(marian_folder.write(tmp_path / "hf", separate=True))
    with pytest.raises(InputError, match="the new tokenizer has one for each side"):
        change_vocabulary(tiny.translator(), separate.tokenizer)
    many = tiny.multilingual_translator(source="source", forces_target=True)
    with pytest.raises(InputError, match="with language tokens cannot be changed"):
        change_vocabulary(many, tiny.tokenizer())
