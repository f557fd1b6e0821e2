"""Writes aligned text files of any size, to measure time and memory with a large corpus.

python tools/generated_pairs.py --pairs=4500000 --output_dir=corpora/wmt14_size

Each line is two random sentences of the built-in grammar. It is about as long as a line of WMT14,
and almost never repeated.
"""

import itertools
import os
import random

from absl import app, flags
from tqdm import tqdm

from pipelines.datasets.english_german.splits import sentence_pairs

PAIRS = flags.DEFINE_integer("pairs", 4_500_000, "Training pairs.", lower_bound=1)
SENTENCES = flags.DEFINE_integer("sentences", 100_000, "Different sentences.", lower_bound=1)
SEED = flags.DEFINE_integer("seed", 1, "Another seed draws other pairs.")
OUTPUT_DIR = flags.DEFINE_string(
    "output_dir", None, "Folder of the files; required.", required=True
)

_VALIDATION_PAIRS = 3000


def main(_):
    chance = random.Random(SEED.value)
    pairs = list(itertools.islice(sentence_pairs("train"), SENTENCES.value))
    os.makedirs(OUTPUT_DIR.value, exist_ok=True)
    for split, count in (("validation", _VALIDATION_PAIRS), ("train", PAIRS.value)):
        paths = [os.path.join(OUTPUT_DIR.value, f"{split}.{side}") for side in ("en", "de")]
        with open(paths[0] + ".part", "w") as english, open(paths[1] + ".part", "w") as german:
            for _ in tqdm(range(count), desc=split, unit=" pairs", mininterval=1, disable=None):
                (one, eins), (two, zwei) = chance.choice(pairs), chance.choice(pairs)
                english.write(f"{one} {two}\n")
                german.write(f"{eins} {zwei}\n")
        for path in paths:
            os.replace(path + ".part", path)


if __name__ == "__main__":
    app.run(main)
