"""Trainings of about a minute, for the --quick mode of the tools."""

import itertools
import os
import random

import keras

from pipelines.configs import grammar_en_de, wsj_parsing_small
from pipelines.datasets.english_german.splits import sentence_pairs
from pipelines.train import train
from pipelines.workdir import Workdir
from t2t_keras.data.files import write_file

SENTENCE = "The old dog sees a cat."
"""One that the small corpus's model should be able to translate."""

_NOUNS = ("dog", "cat", "man", "house", "train", "letter", "garden")
_VERBS = ("sees", "likes", "finds", "knows")
_PREPOSITIONS = ("of", "near", "with")
_TREES = {"train": 400, "dev": 10, "test": 40}


def grammar_folder(folder, pairs=6_000):
    """Writes the first pairs of the built-in corpus as aligned text, where there are none yet.

    Returns:
        The folder, as config.data.folder takes it.
    """
    for split, count in {"train": pairs, "validation": 100, "test": 100}.items():
        sides = zip(*itertools.islice(sentence_pairs(split), count), strict=True)
        for language, lines in zip(("en", "de"), sides, strict=True):
            path = os.path.join(folder, f"{split}.{language}")
            if not os.path.exists(path):
                write_file(path, "".join(f"{line}\n" for line in lines).encode())
    return folder


def translation_config(folder, steps=300):
    """Returns the config of a tiny translator, on aligned text in a folder."""
    config = grammar_en_de.get_config()
    config.model.update(vocab_size=800, num_encoder_layers=2, num_decoder_layers=2, model_dim=64)
    config.model.feed_forward_dim = 128
    config.data.update(folder=folder, tfds="", tokens_per_batch=800)
    config.train.update(
        steps=steps,
        warmup_steps=max(1, steps // 4),
        learning_rate_scale=0.3,
        log_every=50,
        validate_every=steps,
        validation_sentences=50,
        checkpoint_every=steps,
        keep_checkpoints=1,
        average_checkpoints=0,
    )
    return config


def treebank_folder(folder):
    """Writes a treebank of random trees of a small grammar, where there is none yet.

    Returns:
        The folder, as config.data.folder takes it.
    """
    chance = random.Random(0)
    for split, count in _TREES.items():
        path = os.path.join(folder, f"{split}.mrg")
        trees = "".join(f"{_sentence(chance)}\n" for _ in range(count))
        if not os.path.exists(path):
            write_file(path, trees.encode())
    return folder


def _sentence(chance):
    verb = f"(VBZ {chance.choice(_VERBS)})"
    return f"( (S {_noun_phrase(chance)} (VP {verb} {_noun_phrase(chance)}) (. .)) )"


def _noun_phrase(chance):
    phrase = f"(NP (DT the) (NN {chance.choice(_NOUNS)}))"
    if chance.random() < 0.3:
        preposition = f"(IN {chance.choice(_PREPOSITIONS)})"
        return f"(NP {phrase} (PP {preposition} {_noun_phrase(chance)}))"
    return phrase


def parsing_config(folder, steps=400):
    """Returns the config of a tiny parser, on a treebank in a folder."""
    config = wsj_parsing_small.get_config()
    config.model.update(vocab_size=36, num_encoder_layers=1, num_decoder_layers=1, model_dim=64)
    config.model.update(feed_forward_dim=128, num_heads=2, dropout=0.0)
    config.data.update(folder=folder, copies=2, tokens_per_batch=800)
    config.train.update(
        steps=steps,
        warmup_steps=steps // 4,
        optimizer="adam",
        weight_decay=0.0,
        learning_rate_scale=0.3,
        log_every=50,
        validate_every=steps,
        validation_sentences=4,
        checkpoint_every=steps,
        average_checkpoints=0,
        mixed_precision="",
    )
    config.decode.update(beam_size=4, max_extra_tokens=30)
    return config


def trained(config, path):
    """Trains a config or resumes its training in a folder; returns its `Workdir`."""
    workdir = Workdir(path)
    train(config, workdir)
    keras.backend.clear_session()
    return workdir
