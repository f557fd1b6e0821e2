"""A task that the package does not know, written as a user writes it: reversing digit strings."""

import random

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  the ops of an exported tokenizer

import t2t_keras as t2t


def reversed_strings(count, seed):
    """Pairs of digits and the same digits from behind, such as ("3 1 4", "4 1 3")."""
    chance = random.Random(seed)
    strings = [chance.choices("0123456789", k=chance.randint(1, 7)) for _ in range(count)]
    return [(" ".join(digits), " ".join(reversed(digits))) for digits in strings]


def learn_to_reverse(pairs):
    """Returns a `Translator` trained on pairs of text in memory."""
    texts = [text for pair in pairs for text in pair]
    keras.utils.set_random_seed(1)
    tokenizer = t2t.train_tokenizer("wordpiece", texts, vocab_size=291)
    examples = t2t.encode_pairs(pairs, tokenizer)
    batches = t2t.LengthBuckets(tokens_per_batch=1_000)(examples, seed=1).repeat()

    config = t2t.TransformerConfig.tiny(
        tokenizer.vocab_size, num_encoder_layers=1, num_decoder_layers=1, model_dim=64, dropout=0.0
    )
    model = t2t.Transformer(config)
    model.compile(
        optimizer=t2t.adam(config.model_dim, warmup_steps=100, scale=0.3),
        loss=t2t.LabelSmoothedCrossEntropy(0.1),
        metrics=[t2t.TokenAccuracy(), t2t.Perplexity()],
    )
    model.fit(batches, epochs=2, steps_per_epoch=400, verbose=0)
    return t2t.Translator(model, tokenizer, beam_size=4, length_penalty=0.6)


@pytest.mark.slow  # README's own example of Python, which a test runs too, does much the same
def test_reversing_digits(tmp_path):
    train, test = reversed_strings(8_000, seed=0), reversed_strings(200, seed=1)
    reverse = learn_to_reverse(train)

    unseen = [pair for pair in test if pair not in train]
    sources, references = zip(*unseen, strict=True)
    found = reverse(list(sources))
    assert np.mean([a == b for a, b in zip(found, references, strict=True)]) >= 0.9
    assert t2t.corpus_scores(found, references).bleu >= 90

    t2t.export_saved_model(reverse, tmp_path / "1", signatures=["serving_default"])
    signature = tf.saved_model.load(str(tmp_path / "1")).signatures["serving_default"]
    answer = signature(text=tf.constant(sources[:20]))["translation"]
    assert [text.decode() for text in answer.numpy()] == found[:20]
