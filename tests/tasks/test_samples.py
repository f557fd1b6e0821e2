"""Samples of a translator: seeds, settings, batches."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError

MINUS_5 = np.array(-5)
TEXTS = ["The dog sees a man.", "", "A train.", "She does not know the small old dog."]


def test_a_sample_depends_on_its_seed_and_text_alone(translator):
    rows = translator.sample(TEXTS, 3, seed=-5)
    assert [len(row) for row in rows] == [3] * 4
    assert rows == translator.sample(TEXTS, 3, seed=-5) == translator.sample(TEXTS, 3, seed=MINUS_5)
    assert [row[0].text for row in translator.sample(TEXTS[:1] * 3, seed=-5)] == [
        sample.text for sample in rows[0]
    ]
    assert rows != translator.sample(TEXTS, 3, seed=6)
    assert len({sample.text for row in rows for sample in row}) >= 8
    seeds = [7, -(2**31), 7, 2**31 - 1]
    own = translator.sample(TEXTS, 2, seed=np.array(seeds))
    for row in range(4):
        alone = translator.sample([TEXTS[row]], 2, seed=[seeds[row]])
        assert [sample.text for sample in alone[0]] == [sample.text for sample in own[row]]
        np.testing.assert_allclose(alone[0][1].score, own[row][1].score, rtol=1e-5)
    assert any(first.text != second.text for first, second in own)
    assert {sample.text for sample in own[1]} == {""}
    assert translator.sample([]) == []


def test_draws_take_arrays_of_seeds_and_only_named_settings(translator):
    drawn = translator.draw(tf.constant(TEXTS[:1]), seeds=np.array([[7, 0]]), temperature=0.8)
    [[sample]] = translator.sample(TEXTS[:1], seed=7, temperature=0.8)
    assert [text.decode() for text in drawn.texts[0].numpy()] == [sample.text]
    with pytest.raises(TypeError, match="positional"):
        translator.draw(TEXTS[:1], [[7, 0]], 0.8)
    with pytest.raises(TypeError, match="positional"):
        translator.translate_documents(TEXTS[:1], "en", "de")


@pytest.mark.parametrize(("given", "message"), [
    ({"n": 0}, "^n is 0: give a whole number"),
    ({"temperature": 0.0}, "temperature is 0.0: give a number from 1e-06"),
    ({"top_k": 0}, "top_k is 0: give a whole number from 1"),
    ({"top_p": 0}, "top_p is 0: give a number from 1e-06 to 1"),
    ({"seed": 2**31}, "seed is 2147483648: give a whole number from -2,147,483,648"),
    ({"seed": np.array(0.5)}, "seed is 0.5: give a whole number"),
    ({"seed": [1, 2]}, "seed has 2 numbers for 4 texts: give one for each"),
    ({"seed": [1, 2, 3, "4"]}, r"seed\[3\] is '4'"),
])  # fmt: skip
def test_settings_that_cannot_work_are_named(translator, given, message):
    with pytest.raises(InputError, match=message):
        translator.sample(TEXTS, **given)
