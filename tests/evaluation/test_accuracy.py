import pytest

from t2t_keras.errors import InputError
from t2t_keras.evaluation.accuracy import label_scores


def test_accuracy_and_counts_by_hand():
    scores = label_scores(["a", "b", "b", "a"], ["a", "a", "b", "a"], ["a", "b", "c"])
    assert scores == {
        "accuracy": 0.75,
        "classes": {
            "a": {"texts": 3, "found": 2, "correct": 2},
            "b": {"texts": 1, "found": 2, "correct": 1},
            "c": {"texts": 0, "found": 0, "correct": 0},
        },
    }


@pytest.mark.parametrize(("found", "right"), [([], []), (["a"], ["a", "b"])])
def test_nothing_to_compare_is_an_error(found, right):
    with pytest.raises(InputError, match="labels to score against"):
        label_scores(found, right, ["a", "b"])
