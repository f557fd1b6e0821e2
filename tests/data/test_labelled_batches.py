import numpy as np
import pytest

from t2t_keras.data import (
    LabelledBuckets,
    LabelledMemory,
    Labels,
    encode_pairs,
    evaluation_batches,
    padding_share,
    training_batches,
    write_shards,
)
from t2t_keras.errors import InputError

LABELS = Labels(["short", "long"])


@pytest.fixture(scope="module")
def labelled(pairs):
    """Texts, each with its class: is it longer than 30 characters?"""
    return [(text, LABELS.names[len(text) > 30]) for text, _ in pairs]


def test_batches_hold_every_text_with_its_class(labelled, tokenizer, tmp_path):
    corpus = LabelledMemory({"train": labelled}, LABELS)
    write_shards(corpus, "train", tokenizer, str(tmp_path), target_tokenizer=LABELS)
    batcher = LabelledBuckets(tokens_per_batch=200, max_length=64)
    batches = list(evaluation_batches(str(tmp_path), "train", batcher))
    found = []
    for inputs, labels, weights in batches:
        ids = inputs["source_ids"].numpy()
        assert ids.size <= 200 and np.all(weights == 1)
        texts = [text.decode() for text in tokenizer.decode(ids).numpy()]
        found += zip(texts, (LABELS.names[label] for label in labels.numpy()), strict=True)
    assert sorted(found) == sorted(labelled)
    share = padding_share(evaluation_batches(str(tmp_path), "train", batcher))
    assert 0 < share.source < 0.2 and share.target == 0

    inputs, labels, _ = next(iter(training_batches(str(tmp_path), "train", batcher, seed=1)))
    assert inputs["source_ids"].shape[0] == labels.shape[0]


def test_long_texts_are_cut_and_keep_their_end(labelled, tokenizer):
    examples = encode_pairs(labelled, tokenizer, LABELS)
    batches = list(LabelledBuckets(tokens_per_batch=200, max_length=5)(examples))
    ids = np.concatenate([np.pad(i["source_ids"], [[0, 0], [0, 9]])[:, :9] for i, _, _ in batches])
    whole = [row[:4] for row in tokenizer.encode([text for text, _ in labelled]).to_list()]
    rows = [row[row != 0].tolist() for row in ids]
    assert sorted(rows) == sorted([*row, 1] for row in whole)
    assert max(len(labels) for _, labels, _ in batches) == 200 // 5


def test_a_limit_without_room_is_refused():
    with pytest.raises(InputError, match="max_length is 1"):
        LabelledBuckets(100, max_length=1)
