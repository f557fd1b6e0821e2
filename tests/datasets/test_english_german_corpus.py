"""The corpus keeps its promises, by itself and as the TFDS dataset that a config names."""

import collections
import random
import re
import zlib

import numpy as np
import pytest
import tensorflow_datasets as tfds

from pipelines.configs import grammar_en_de
from pipelines.datasets.english_german import Builder, lexicon, splits
from pipelines.datasets.english_german.sampler import Sampler
from pipelines.datasets.english_german.splits import LONGEST, SPLIT_SIZES, sentence_pairs
from pipelines.tasks import make_task
from t2t_keras.errors import InputError
from tests.datasets.small_corpus import shrink

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def corpus():
    return {split: list(sentence_pairs(split)) for split in SPLIT_SIZES}


def pairs(sampler, count):
    return [sampler.pair() for _ in range(count)]


def test_splits_have_their_sizes_and_lengths_and_share_no_sentence(corpus):
    assert {split: len(pairs) for split, pairs in corpus.items()} == SPLIT_SIZES
    for side in (0, 1):
        sides = [{pair[side] for pair in pairs} for pairs in corpus.values()]
        assert len(set.union(*sides)) == sum(map(len, sides))
        assert max(len(pair[side].split()) for pair in corpus["train"]) <= LONGEST
        assert min(len(pair[side].split()) for pair in corpus["test_long"]) > LONGEST


def test_every_english_sentence_has_one_german():
    translations = {}
    for english, german in [*pairs(Sampler(99), 20_000), *pairs(Sampler(98, depth=3), 2_000)]:
        assert translations.setdefault(english, german) == german


def test_every_word_of_the_lexicon_is_frequent(corpus):
    sides = ("\n".join(pair[side] for pair in corpus["train"]).lower() for side in (0, 1))
    english, german = (collections.Counter(re.findall(r"[\w']+", text)) for text in sides)
    for noun in lexicon.NOUNS:
        assert english[noun.english.split()[-1]] >= 100, noun
        assert all(german[form.lower()] >= 100 for form in (noun.german, noun.german_plural)), noun
    for adjective in lexicon.ADJECTIVES:
        assert all(german[adjective.stem + e] >= 50 for e in ("e", "er", "es", "en")), adjective
    for name, verb in lexicon.VERBS.items():
        forms = [german[form] + german[verb.prefix + form] for form in verb.german_forms]
        assert min(forms) >= 20, name


def test_spaces_commas_and_contractions_are_in_place():
    wrong = re.compile(r"  | [,.?]|,,|,[.?]|^ |[^.?]$|^[a-zäöü]|\b(in dem|zu der|zu dem) \w+[.?]")
    for pair in [*pairs(Sampler(5), 5_000), *pairs(Sampler(6, depth=3, relative_rate=0.4), 2_000)]:
        assert not any(map(wrong.search, pair)), pair


def test_the_pairs_are_the_same_everywhere_and_leave_the_global_random_state_alone(tmp_path, small):
    lines = "\n".join(map("\t".join, pairs(Sampler(2017), 2_000)))
    assert zlib.crc32(lines.encode()) == 2865566121
    for seed in (1, 2):
        random.seed(seed)
        np.random.seed(seed)
        before = random.getstate(), np.random.get_state()[1].tolist()
        splits._corpus.cache_clear()
        Builder(data_dir=tmp_path / str(seed)).download_and_prepare()
        assert before == (random.getstate(), np.random.get_state()[1].tolist())
    files = [sorted((tmp_path / seed).rglob("*.tfrecord*")) for seed in "12"]
    assert files[0]
    assert [path.read_bytes() for path in files[0]] == [path.read_bytes() for path in files[1]]


def test_the_config_finds_the_dataset(tmp_path, small):
    config = grammar_en_de.get_config()
    config.data.tfds_data_dir = str(tmp_path)
    corpus = make_task(config).make_corpus()
    for split in ("validation", "test", "test_long"):
        rows = corpus.examples(split).as_numpy_iterator()
        read = [(row["source"].decode(), row["target"].decode()) for row in rows]
        assert set(read) == set(sentence_pairs(split))
        assert len(read) == SPLIT_SIZES[split]
    assert "two splits" in tfds.builder(config.data.tfds, data_dir=tmp_path).info.description


def test_a_module_that_is_not_there_is_an_input_error():
    config = grammar_en_de.get_config()
    config.data.tfds_import = "pipelines.datasets.nothing"
    with pytest.raises(InputError, match=r"tfds_import is 'pipelines.datasets.nothing'"):
        make_task(config).make_corpus()


@pytest.fixture
def small(monkeypatch):
    """A corpus a hundredth as large."""
    shrink(monkeypatch)
