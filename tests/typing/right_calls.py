"""Calls as users write them, with the types of their results; read by a type checker, never run."""

import pathlib
import sys
from collections.abc import Iterator

import keras
import numpy as np
import tensorflow as tf
from typing_extensions import assert_type

import t2t_keras as t2t
from t2t_keras import data, decoding, layers, serving, tasks
from t2t_keras.layers.attention import KeyValue
from t2t_keras.models.transformer import DecoderState
from t2t_keras.training.callbacks import CheckpointCallback
from t2t_keras.training.checkpoints import CheckpointManager
from t2t_keras.training.distribution import default_strategy
from t2t_keras.training.optimizers import Muon
from t2t_keras.types import Batch


def lines() -> Iterator[str]:
    yield "a house"


class OwnCorpus:
    def examples(self, split: str) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors({"source": split, "target": split})


# Data: texts in every form, paths of both kinds, corpora and tokenizers of the user's own.
tokenizer = t2t.train_tokenizer("bpe", lines(), vocab_size=300, languages=["de", "en"])
assert_type(tokenizer, data.Tokenizer)
for texts in (["a"], ("a", b"b"), np.array(["a"]), tf.constant(["a"]), iter("ab"), sys.stdin):
    assert_type(tokenizer.encode(texts), tf.RaggedTensor)
tokenizer.encode(tf.data.TextLineDataset("a.txt"))
assert_type(tokenizer.decode([[4, 5], [6]]), tf.Tensor)
tokenizer.decode(np.array([[4, 5]]))
tokenizer.save(pathlib.Path("tokenizer"))
assert_type(t2t.load_tokenizer("tokenizer"), data.Tokenizer)
report = data.write_shards(OwnCorpus(), "train", tokenizer, "tokens", data.Filters(max_length=256))
assert_type(report, data.FilterReport)
labels = data.LabelEncoder(["neg", "pos"])
data.write_shards(data.LabeledFolder("reviews", labels), "train", tokenizer, "tokens", None, 4)
batcher = data.LengthBuckets(4096, bucket_lengths=[(8, 8), 16])
batches = data.training_batches(pathlib.Path("tokens"), "train", batcher, seed=1)
assert_type(data.batches_per_epoch("tokens", "train", data.Packing(4096, 64)), int)
assert_type(data.padding_fraction(batches), data.PaddingFraction)


class OwnBatcher(data.LengthBuckets):
    def make_batch(self, pairs, members) -> Batch:
        inputs, targets, weights = super().make_batch(pairs, members)
        return inputs | {"lengths": tf.shape(targets)}, targets, weights


# Layers: as in Keras, what is called has any type; what is computed by name has its own.
words = tf.constant([[5, 6, 0]])
embedding = layers.SharedEmbedding(vocab_size=100, model_dim=32)
attention = layers.MultiHeadSelfAttention(4, 8, causal=True, positions=layers.RotaryPositions())
hidden = layers.PostNorm(0.1)(embedding(words), attention(embedding(words)))
assert_type(embedding.logits(hidden), tf.Tensor)
assert_type(attention.initial_cache(tf.constant(2)), KeyValue)
assert_type(layers.causal_mask(3), tf.Tensor)
assert_type(layers.segment_mask(np.array([[1, 2]]), words), tf.Tensor)
layers.LocalSelfAttention(4, 8, window=16)
layers.FeedForward(64, activation="gelu")(layers.LayerNorm()(hidden))


@keras.saving.register_keras_serializable()
class OwnAttention(layers.ScaledDotProductAttention):
    def score(self, query, key):
        return super().score(query, key) / 2.0

    def get_config(self):
        return super().get_config() | {"half": True}


layers.MultiHeadCrossAttention(4, 8, attention=OwnAttention(dropout=0.1))

# Models, and searches over any model that predicts the next token.
config = t2t.TransformerConfig.tiny(100, num_heads=2)
model = t2t.Transformer(config)
assert_type(t2t.TransformerConfig.of({"vocab_size": 100}), t2t.TransformerConfig)
assert_type(model.max_length, int | None)
memory = model.encode(words)
state = model.initial_state(memory, beams=4)
logits, state = model.step(tf.constant([[3, 3, 3, 3]]), state)
assert_type(model.reorder(memory and state, words), DecoderState)
one = tf.constant([3])
found = decoding.beam_search(
    model.step, state, bos_ids=one, eos_id=1, beam_size=4, max_lengths=np.array([9])
)
assert_type(found, decoding.Hypotheses)
assert_type(found.scores, tf.Tensor)
decoding.sample(model.step, state, bos_ids=one, eos_id=1, max_lengths=one, seeds=words, top_p=0.9)
t2t.Ensemble([model, t2t.Transformer(config)], mean="log_probabilities")
t2t.models.enable_lora(t2t.TransformerClassifier(config, classes=3), rank=8)

# Training.
model.compile(
    optimizer=t2t.adam(config.model_dim, warmup_steps=100, weight_decay=0.01),
    loss=t2t.LabelSmoothedCrossEntropy(0.1),
    metrics=[t2t.TokenAccuracy(), t2t.Perplexity(name="val")],
)
Muon(t2t.InverseSquareRoot(512, warmup_steps=100), ema_decay=0.99)
checkpoints = CheckpointManager(pathlib.Path("checkpoints"), model, keep_last=3)
model.fit(batches, epochs=1, callbacks=[CheckpointCallback(checkpoints, steps=100)])
assert_type(checkpoints.restore_latest(), int)
assert_type(default_strategy(), tf.distribute.Strategy)

# Tasks: from text to text.
translator = t2t.Translator(model, tokenizer, beam_size=8)
for texts in (["a"], ("a", b"b"), np.array(["a"]), tf.constant(["a"]), lines()):
    assert_type(translator(texts), list[str])
assert_type(translator(["a"], prefix=["b"], terms={"a": "b"}, target_language="de"), list[str])
assert_type(translator.n_best(["a", "b"], 3, target_language=["de", "fr"])[0][0].score, float)
assert_type(translator.documents(["A house. A dog."]), list[str])
assert_type(translator.predict(lines(), batch_size=64, verbose=1), list[str])
assert_type(translator.score(["a"], ["b"]).log_probabilities, tf.Tensor)
[[sampled]] = translator.sample(["a"], seed=[1], top_k=10)
assert_type(sampled, tasks.Translation)
parser = t2t.Parser(model, tokenizer)
parser([["It", "works", "."]])
assert_type(parser(["It works ."]), list[str])
assert_type(t2t.score_trees(parser.trees(["It works ."]), [None])["all"].f1, float)
classifier = t2t.Classifier(
    t2t.TransformerClassifier(config, classes=2), tokenizer, labels=["neg", "pos"]
)
assert_type(classifier.probabilities(["a fine film"]), np.ndarray)
assert_type(classifier.n_best(["a fine film"], 1)[0][0].label, str)
generator = t2t.TextGenerator(t2t.TransformerLM(config), tokenizer)
assert_type(generator(["The old"]), list[str])
assert_type(t2t.corpus_scores(["a"], ["b"]).bleu, float)
assert_type(t2t.load_marian(pathlib.Path("opus-mt-en-de")), t2t.Translator)
t2t.load("run").documents(["A house."])  # of any type: a translator, a parser, …
translator.save("saved")
t2t.export_saved_model(classifier, pathlib.Path("export/1"), signatures=["serving_default"])
assert_type(serving.next_version("export"), str)
