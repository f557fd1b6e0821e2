"""Token shards as pairs of ids."""

from t2t_keras.data.shards import open_shards


def read_pairs(directory, split="train"):
    """Returns all pairs of a split in the order of its shards, [(source ids, target ids), …]."""
    shards = open_shards(str(directory), split)
    return [
        (tuple(source), tuple(target))
        for index in range(len(shards.paths))
        for pairs in [shards.read(index)]
        for source, target in zip(pairs.source.to_list(), pairs.target.to_list(), strict=True)
    ]
