"""How good parses are, by EVALB's rules."""

from t2t_keras.data.treebank import Tree, parse_tree
from t2t_keras.evaluation.bracketing import score_trees


def score_parses(parses, gold):
    """Scores parses against a treebank's trees, by EVALB's rules.

    Args:
        parses: list of str, trees on one line each, empty where there is none.
        gold: list of `Tree`.

    Returns:
        Dict of float, percent: f1; f1_of_all, in which a sentence without a parse counts as one
        without a bracket, while EVALB skips it; exact; and well_formed, the sentences that have a
        parse. And "all" and "length_40", the dicts of `bracketing.score_trees`.
    """
    trees = [parse_tree(text) for text in parses]
    summaries = score_trees(gold, trees)
    bare = [
        tree or Tree("", tuple(right.leaves())) for tree, right in zip(trees, gold, strict=True)
    ]
    return {
        "f1": summaries["all"].f1,
        "f1_of_all": score_trees(gold, bare)["all"].f1,
        "exact": summaries["all"].complete_match,
        "well_formed": 100.0 * sum(tree is not None for tree in trees) / len(trees),
        **{name: summary.rounded() for name, summary in summaries.items()},
    }
