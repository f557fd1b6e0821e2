"""Calls that a type checker must report, one on each line that ends in `# wrong`."""

import t2t_keras as t2t
from t2t_keras import data, decoding, layers

tokenizer = t2t.load_tokenizer(3)  # wrong
tokenizer = t2t.load_tokenizer("tokenizer")
tokenizer.encode("one string is no batch")  # wrong
tokenizer.decode("text")  # wrong
t2t.train_tokenizer("bpe", ["a house"], vocab_size="8000")  # wrong
data.write_shards("train.en", "train", tokenizer, "tokens")  # wrong
data.training_batches("tokens", "train", tokenizer, seed=1)  # wrong
t2t.LengthBuckets(4096)([("a house", "ein Haus")])  # wrong
layers.MultiHeadSelfAttention("4", 8)  # wrong
layers.MultiHeadSelfAttention(key_dim=8)  # wrong
layers.SharedEmbedding(100, model_dim=32.5)  # wrong
layers.LocalSelfAttention(4, 8, window=None)  # wrong
t2t.TransformerConfig.base("37000")  # wrong
t2t.Transformer(37000)  # wrong
t2t.TransformerClassifier(t2t.TransformerConfig.tiny(100))  # wrong
t2t.Ensemble("runs/*")  # wrong
model = t2t.Transformer(t2t.TransformerConfig.tiny(100))
model.initial_state(model.encode("a house"), beams=4)  # wrong
decoding.beam_search(model.step, None, bos_ids=None, eos_id=1, beam_size=4, max_lengths=9)  # wrong
translator = t2t.Translator(model, tokenizer)
translator("one string is no batch")  # wrong
translator([1, 2])  # wrong
translator(["a"], terms=["a", "b"])  # wrong
translator.n_best(["a"], "3")  # wrong
translator.sample(["a"], temperature="low")  # wrong
[[[text, score]]] = translator.n_best(["a"])
print(text.score)  # wrong
t2t.load_marian(None)  # wrong
t2t.export_saved_model("run", "export/1")  # wrong
t2t.export_saved_model(translator)  # wrong
t2t.adam("512")  # wrong
t2t.LabelSmoothedCrossEntropy("0.1")  # wrong
t2t.Classifier(model, tokenizer, ["neg", "pos"])("one text")  # wrong
t2t.score_trees(3, [])  # wrong
