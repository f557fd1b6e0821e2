"""A task that the package does not know, as a user adds it: a tag for each word, by an encoder.

A user writes the classes of this module and adds a row to each of three tables: the fields and the
task of `pipelines`, and the signatures of its exports.
"""

import collections
import dataclasses
import random
from typing import ClassVar

import keras
import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  the ops of an exported tokenizer

import t2t_keras as t2t
from pipelines.fields import FIELDS, Corpus, Pairs, Texts
from pipelines.tasks import TASKS, SequenceTask, TextTask
from t2t_keras import layers
from t2t_keras.data.corpora import FolderCorpus
from t2t_keras.data.vocabulary_tokenizer import Side, VocabularyTokenizer, pack_vocabularies
from t2t_keras.layers.value_checks import Limit
from t2t_keras.models.trainable_model import TrainableModel
from t2t_keras.settings import COUNT, Range, Settings, Text, setting, settings_of
from t2t_keras.tasks.bundles import Predictor
from t2t_keras.tasks.requests import TEXT, RequestKind, ranked
from t2t_keras.tasks.text_io import Reader, as_str, as_tensor
from tests.end_to_end.binaries import run, scores_of

SPECIAL = ["<pad>", "</s>", "<unk>", "<s>"]
"""Tags, then words, follow them in the vocabulary: a tag is its own label."""


@keras.saving.register_keras_serializable(package="tests")
class TaggingModel(TrainableModel):
    """Logits [batch, length, tags] of each position of source_ids [batch, length]."""

    labels_are_sequences = True

    def __init__(self, config, tags, **kwargs):
        super().__init__(**kwargs)
        self.config = t2t.TransformerConfig.of(config)
        self.head_settings = {"tags": tags}
        model_dim = self.config.model_dim
        self.embedding = layers.SharedEmbedding(self.config.vocab_size, model_dim)
        self.positions = layers.SinusoidalPositions()
        self.encoder = t2t.models.Encoder(self.config)
        self.head = keras.layers.Dense(len(SPECIAL) + tags, dtype="float32")
        self.embedding.build((None, None))
        for layer in (self.positions, self.encoder, self.head):
            layer.build((None, None, model_dim))
        self.built = True

    def call(self, inputs):
        ids = inputs["source_ids"]
        x = self.positions(self.embedding(ids), mask=ids != 0)
        return self.head(self.encoder(x, layers.Sequences(mask=ids != 0)))

    @property
    def limits(self):
        return {"source_ids": Limit.of_ids(self.config.vocab_size)}

    @property
    def input_signature(self):
        return {"source_ids": tf.TensorSpec([None, None], tf.int32, "source_ids")}


@dataclasses.dataclass(frozen=True)
class TaggerSettings(Settings):
    max_source_length: int = setting(512, COUNT, "Maximum words, and one.")


class Tagger(Predictor):
    """Maps "a dog" to "DET NOUN", with log P of all tags as score."""

    task = "tagging"
    settings_type = TaggerSettings
    model_type = TaggingModel

    def __call__(self, texts):
        return [text for [(text, _)] in self.n_best(texts)]

    def n_best(self, texts, n=1):
        found = self.run("serving_default", text=as_tensor(texts))
        rows = zip(found["tags"].numpy(), found["score"].numpy(), strict=True)
        return [[(as_str(tags), float(score))] for tags, score in rows][: self.check_n(n) and None]

    def check_n(self, n):
        return Range(1, 1, whole=True).check("n", n)

    def tag(self, text):
        """Returns {"tags": string [batch], "score": float32 [batch]} of text, string [batch]."""
        ids = Reader(self.tokenizer, self.settings.max_source_length).encode(text).ids
        log_p = tf.nn.log_softmax(self.model({"source_ids": ids})[..., len(SPECIAL) :])
        is_word = (ids != self.tokenizer.pad_id) & (ids != self.tokenizer.eos_id)
        tags = tf.where(is_word, tf.argmax(log_p, axis=-1, output_type=tf.int32) + len(SPECIAL), 0)
        best = tf.where(is_word, tf.reduce_max(log_p, axis=-1), 0)
        return {"tags": self.tokenizer.target.decode(tags), "score": tf.reduce_sum(best, axis=1)}

    saved_call = tag
    requests: ClassVar = {"serving_default": ranked(RequestKind(tag, (TEXT,), (), "tags", "score"))}


@dataclasses.dataclass
class TaggingData(Corpus, Texts, Pairs):
    source_language: str = setting("words", Text(), "Ending of the files of words.")
    target_language: str = setting("tags", Text(), "Ending of the files of tags, one for a word.")
    tags: str = setting("DET,NOUN,VERB", Text(), "The tags.")


class TaggingTask(TextTask, SequenceTask):
    """Tags, as the commands use them."""

    metric = "accuracy"
    predictor = Tagger

    @property
    def tags(self):
        return self.config.data.tags.split(",")

    def make_model(self):
        return TaggingModel(self.model_config(), len(self.tags))

    def make_corpus(self):
        data = self.config.data
        return FolderCorpus(data.folder, data.source_language, data.target_language)

    def train_tokenizer(self, corpus):
        examples = corpus.examples(self.config.data.train_split).as_numpy_iterator()
        counts = collections.Counter(w for row in examples for w in row["source"].decode().split())
        words = [word for word, _ in counts.most_common()]
        pieces = [*SPECIAL, *self.tags, *words][: self.config.model.vocab_size]
        return VocabularyTokenizer("vocabulary", pack_vocabularies(Side(pieces)))

    def make_predictor(self, model, tokenizer):
        return Tagger(model, tokenizer, self.config.data.max_length)

    def score(self, outputs, references, **_):
        pairs = [
            pair
            for output, reference in zip(outputs, references, strict=True)
            for pair in zip(output.split(), reference.split(), strict=True)
        ]
        return {"accuracy": float(np.mean([found == right for found, right in pairs]))}


@pytest.fixture
def known_task(monkeypatch):
    fields = FIELDS["translation"] | {"data": settings_of(TaggingData), "decode": {}}
    monkeypatch.setitem(FIELDS, "tagging", fields)
    monkeypatch.setitem(TASKS, "tagging", TaggingTask)


def write_folder(folder):
    """Writes clauses such as "the can can fish": some words are nouns and verbs."""
    chance = random.Random(0)
    for split, count in {"train": 400, "validation": 20, "test": 30}.items():
        words, tags = [], []
        for _ in range(count):
            clauses = [
                (chance.choice(["the", "a"]), chance.choice(nouns), chance.choice(verbs))
                for nouns, verbs in [(["dog", "fish", "can"], ["runs", "fish", "can"])]
                for _ in range(chance.randint(1, 3))
            ]
            words.append(" ".join(word for clause in clauses for word in clause))
            tags.append(" ".join(["DET NOUN VERB"] * len(clauses)))
        for ending, lines in (("words", words), ("tags", tags)):
            (folder / f"{split}.{ending}").write_text("\n".join(lines) + "\n")


@pytest.mark.slow
def test_a_task_of_a_user_trains_evaluates_translates_and_is_exported(known_task, tmp_path):
    write_folder(tmp_path)
    (tmp_path / "tagging.py").write_text(
        "from pipelines.fields import make_config\n\n\n"
        "def get_config():\n    return make_config('tagging')\n"
    )
    workdir, text = tmp_path / "run", "the can can a fish fish"
    small = (
        "data.tokens_per_batch=300 model.vocab_size=13 model.num_encoder_layers=1 "
        "model.model_dim=32 model.feed_forward_dim=64 train.steps=150 train.warmup_steps=50 "
        "train.learning_rate_scale=0.3 train.log_every=50 train.validate_every=75 "
        "train.checkpoint_every=75 train.average_checkpoints=1"
    )
    run(
        "train",
        f"--config={tmp_path / 'tagging.py'}",
        f"--workdir={workdir}",
        f"--config.data.folder={tmp_path}",
        *(f"--config.{field}" for field in small.split()),
    )
    assert scores_of(f"--workdir={workdir}", "--split=test")["accuracy"] > 0.8
    tagger = t2t.load(workdir)
    [tags] = tagger([text])
    assert len(tags.split()) == len(text.split())
    assert run("translate", f"--workdir={workdir}", stdin=text.encode())[0] == f"{tags}\n"

    tagger.save(tmp_path / "saved")
    assert t2t.load(tmp_path / "saved").n_best([text]) == tagger.n_best([text])

    run("export", f"--workdir={workdir}", f"--output={tmp_path / 'export'}")
    saved = f"--saved_model={tmp_path / 'export' / '1'}"
    assert run("translate", saved, stdin=text.encode())[0] == f"{tags}\n"
