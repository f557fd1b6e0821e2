"""How good a classification is: accuracy, and the counts of each class behind it."""

from t2t_keras.errors import InputError


def label_scores(found, right, labels):
    """Scores labels.

    Args:
        found: list of str, the label given to each text.
        right: list of str, the right ones.
        labels: list of str, all that there are.

    Returns:
        Dict: `accuracy`, the share of right labels, 0 to 1; and `classes`, for each label the
        counts of the `texts` that have it, of those that were `found` to have it, and of those
        that were found and `correct`.

    Raises:
        InputError: if there is nothing to score, or the counts differ.

    Example:
        >>> label_scores(["pos", "pos"], ["neg", "pos"], ["neg", "pos"])["accuracy"]
        0.5
    """
    if not right or len(found) != len(right):
        raise InputError(
            f"there are {len(found)} labels to score against {len(right)} right ones: give one "
            "for each text, and at least one."
        )
    correct = [label for label, other in zip(found, right, strict=True) if label == other]
    return {
        "accuracy": len(correct) / len(right),
        "classes": {
            label: {
                "texts": right.count(label),
                "found": found.count(label),
                "correct": correct.count(label),
            }
            for label in labels
        },
    }
