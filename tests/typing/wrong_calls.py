"""Calls that a type checker must report, one on each line that ends in `# wrong`."""

import t2t_keras as t2t
from t2t_keras import data

tokenizer = t2t.load_tokenizer(3)  # wrong
tokenizer = t2t.load_tokenizer("tokenizer")
tokenizer.encode("one string is no batch")  # wrong
tokenizer.decode("text")  # wrong
t2t.train_tokenizer("bpe", ["a house"], vocab_size="8000")  # wrong
data.write_shards("train.en", "train", tokenizer, "tokens")  # wrong
data.training_batches("tokens", "train", tokenizer, seed=1)  # wrong
t2t.LengthBuckets(4096)([("a house", "ein Haus")])  # wrong
