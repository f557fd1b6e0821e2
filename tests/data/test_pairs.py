import numpy as np
import pytest

from t2t_keras.data import LengthBuckets, encode_pairs, read_shards, write_shards
from t2t_keras.errors import InputError


def _rows(dataset):
    return [(e["source"].tolist(), e["target"].tolist()) for e in dataset.as_numpy_iterator()]


def test_pairs_in_memory_are_those_of_shards(corpus, pairs, tokenizer, tmp_path):
    write_shards(corpus, "train", tokenizer, str(tmp_path))
    examples = encode_pairs(pairs, tokenizer)
    assert _rows(examples) == _rows(read_shards(str(tmp_path), "train"))
    batches = list(LengthBuckets(500)(examples, seed=1))
    assert sum(len(labels) for _, labels, _ in batches) == len(pairs)
    assert all(np.all(inputs["source_ids"][:, 0] != 0) for inputs, _, _ in batches)


def test_no_pairs_are_refused(tokenizer):
    with pytest.raises(InputError, match="there are no pairs"):
        encode_pairs([], tokenizer)
