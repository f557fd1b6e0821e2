"""The built-in corpus in both directions: one model that translates English and German."""

import collections
import itertools

import numpy as np
import pytest
import sacrebleu
import tensorflow as tf

import t2t_keras as t2t
from pipelines import experiment, train
from pipelines.configs import grammar_en_de
from pipelines.datasets.english_german.splits import sentence_pairs
from pipelines.workdir import Workdir
from t2t_keras.data.tokenizers import load_tokenizer
from tests.data.reading import read_pairs
from tests.datasets.small_corpus import shrink


def both_directions(place):
    config = grammar_en_de.get_config()
    config.data.corpora = "english_german:en=de"
    config.data.tfds_data_dir = str(place / "datasets")
    return config


def test_every_pair_is_prepared_in_both_directions(tmp_path, monkeypatch):
    shrink(monkeypatch, factor=100)
    config, workdir = both_directions(tmp_path), Workdir(tmp_path / "run")
    config.model.vocab_size = 600
    experiment.prepare(experiment.check(config), workdir)
    tokenizer = load_tokenizer(workdir.vocabulary)
    languages = tokenizer.languages.ids

    def texts(rows):
        ids = tf.ragged.constant(rows, tf.int32).to_tensor()
        return [text.decode() for text in tokenizer.decode(ids).numpy()]

    for split in ("train", "validation"):
        pairs = sorted(sentence_pairs(split))
        for direction, order in {"en-de": (0, 1), "de-en": (1, 0)}.items():
            found = read_pairs(workdir.tokens, f"{split}/{direction}")
            assert {source[0] for source, _ in found} == {languages[direction[-2:]]}
            assert not {*languages.values()} & {i for s, t in found for i in (*s[1:], *t)}
            sides = [source[1:] for source, _ in found], [target for _, target in found]
            english, german = (texts(sides[i]) for i in order)
            assert sorted(zip(english, german, strict=True)) == pairs


def nearest_targets(sources, pairs):
    """The targets of the training sources that have most words in common, by the cosine."""
    index = {word: i for i, word in enumerate({w for s, _ in pairs for w in s.split()})}

    def words(texts):
        table = np.zeros([len(texts), len(index)], np.float32)
        for row, text in zip(table, texts, strict=True):
            for word, count in collections.Counter(text.split()).items():
                if word in index:
                    row[index[word]] = count
        return table / np.maximum(np.linalg.norm(table, axis=1, keepdims=True), 1)

    nearest = np.argmax(words(sources) @ words([s for s, _ in pairs]).T, axis=1)
    return [pairs[i][1] for i in nearest]


@pytest.mark.slow(minutes=3)
def test_one_model_learns_the_grammar_in_both_directions(tmp_path):
    config = both_directions(tmp_path)
    config.train.update(steps=900, warmup_steps=100, validate_every=900, validation_sentences=2)
    train.train(config, Workdir(tmp_path / "run"))
    translator = t2t.load(tmp_path / "run")
    trained, tested = (
        list(itertools.islice(sentence_pairs(split), count))
        for split, count in (("train", 40_000), ("test", 200))
    )
    for code, order in {"de": (0, 1), "en": (1, 0)}.items():
        known, asked = ([[pair[i] for i in order] for pair in pairs] for pairs in (trained, tested))
        sources, references = zip(*asked, strict=True)
        bound = sacrebleu.corpus_bleu(nearest_targets(sources, known), [references]).score
        found = translator.predict(sources, target_language=code)
        score = sacrebleu.corpus_bleu(found, [references]).score
        assert score > max(60, bound + 20), (code, score, bound)
