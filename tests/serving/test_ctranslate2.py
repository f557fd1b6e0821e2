"""An engine that shares nothing with us computes the same, from the weights that we hand it."""

import dataclasses
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

import t2t_keras.serving
from t2t_keras.data.tokenizers import load_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.models.config import TransformerConfig
from t2t_keras.serving.ctranslate2 import export_ctranslate2, find_translations
from t2t_keras.settings import Choice, setting, settings_of
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

LINES = [*tiny.LINES, "The dog.", "Der Hund, der Zug und der alte Mann!"]


def translator(beam_size=4, **overrides):
    model = tiny.model(seed=3, num_decoder_layers=2, **overrides)
    for weight in model.weights:
        if weight.name == "bias":
            weight.assign(np.random.default_rng(0).normal(0, 0.3, weight.shape))
    return Translator(
        model, tiny.tokenizer(), beam_size=beam_size, max_extra_tokens=30, max_source_length=60
    )


def both(translator, folder):
    """Returns for each line our n best (pieces, score) and CTranslate2's."""
    ctranslate2 = pytest.importorskip("ctranslate2", reason='pip install ".[ctranslate2]"')
    export_ctranslate2(translator, folder)
    engine = ctranslate2.Translator(str(folder), compute_type="float32", intra_threads=1)
    tokenizer = load_tokenizer(folder)
    source_ids = translator.encode(tf.constant(LINES))
    found = translator.translate_ids(source_ids)  # without a graph
    ours, theirs = [], []
    for i, row in enumerate(source_ids):
        pieces = [p.decode() for p in tokenizer.pieces(row).numpy() if p]
        theirs += find_translations(  # one by one, since a batch has one maximum length
            engine,
            [pieces],
            beam_size=translator.beam_size,
            length_penalty=translator.length_penalty,
            max_length=len(pieces) + translator.max_extra_tokens,
        )
        shown = tokenizer.pieces(found.ids[i]).numpy()
        fields = zip(shown, found.lengths[i].numpy(), found.scores[i].numpy(), strict=True)
        ours.append(
            [
                ([piece.decode() or "<pad>" for piece in pieces[:length]], score)
                for pieces, length, score in fields
            ]
        )
    return ours, theirs


TAKEN = [
    {},
    {"norm": "pre", "position_embedding": "learned", "max_positions": 99},
    {"attention_score": "dot_product", "attention_temperature": 2.0, "fused_qkv": False},
    {"scale_embedding": False, "activation": "gelu", "attention_bias": True},
    {"feed_forward": "convolution", "norm_epsilon": 0.1, "num_encoder_layers": 3},
    {
        **{"position_embedding": "fairseq_sinusoidal", "activation": "silu", "output_bias": True},
        **{"embedding_sharing": "target", "source_vocab_size": tiny.tokenizer().vocab_size},
        **{"dropout": 0.3, "attention_dropout": 0.3, "activation_dropout": 0.3},
    },
    {"embedding_sharing": "none", "max_relative_distance": 3},
]
REFUSED = [
    ({"attention_window": 5}, "window is 5"),
    ({"attention_score": "additive"}, "additive"),
    ({"attention_weights": "hard"}, "attention_weights is 'hard'"),
    ({"position_embedding": "rotary"}, "position_embedding is 'rotary'"),
    ({"position_embedding": "relative"}, "position_embedding is 'relative'"),
    ({"value_dim": 4}, "value_dim"),
    ({"key_dim": 4}, "key_dim"),
]


@pytest.mark.parametrize("overrides", TAKEN)
def test_the_same_weights_and_beam_give_the_same_translations(overrides, tmp_path):
    ours, theirs = both(translator(**overrides), tmp_path / "engine")
    for row, other in zip(ours, theirs, strict=True):
        assert row[0][0] == other[0][0]
        np.testing.assert_allclose(row[0][1], other[0][1], atol=1e-3)


def test_a_source_of_more_than_1024_tokens_has_positions(tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2", reason='pip install ".[ctranslate2]"')
    ours = translator()
    ours.max_source_length = 1_500
    export_ctranslate2(ours, tmp_path / "engine")
    engine = ctranslate2.Translator(str(tmp_path / "engine"), compute_type="float32")
    texts = tf.constant([" ".join(LINES * 40)]), tf.constant(LINES[:1])
    source, target = (
        [piece.decode() for piece in row[row != b""]]
        for row in (
            ours.tokenizer.pieces(ours.encode(texts[0])).numpy()[0],
            ours.tokenizer.pieces(ours.targets.encode(texts[1]).ids).numpy()[0],
        )
    )
    assert 1_100 < len(source) <= 1_500
    [result] = engine.score_batch([source], [target[:-1]], max_input_length=0)
    found = ours.score(*texts).log_probabilities[0]
    np.testing.assert_allclose(found, sum(result.log_probs), rtol=1e-4)


def test_the_code_of_the_readme(tmp_path, monkeypatch, capsys):
    for package in ("ctranslate2", "sentencepiece"):
        pytest.importorskip(package, reason='pip install ".[ctranslate2]"')
    readme = pathlib.Path(t2t_keras.serving.__file__).with_name("README.md").read_text()
    (code,) = re.findall(r"```python\n(import ctranslate2\n.*?)```", readme, flags=re.DOTALL)
    export_ctranslate2(translator(), tmp_path / "engine")
    monkeypatch.chdir(tmp_path)
    exec(code, {})
    assert capsys.readouterr().out.count("\n") == 1


def test_every_field_and_variant_is_exported_or_refused():
    given = [case.items() for case in TAKEN] + [case.items() for case, _ in REFUSED]
    given = {item for items in given for item in items}
    sizes = {"vocab_size", "num_decoder_layers", "model_dim", "feed_forward_dim", "num_heads"}
    defaults = TransformerConfig(9)
    for field, described in settings_of(TransformerConfig).items():
        assert field in {name for name, _ in given} | sizes  # those of `tiny` are not the defaults
        for name in getattr(described.allowed, "names", ()):
            assert name == getattr(defaults, field) or (field, name) in given


def test_variants_that_ctranslate2_lacks_are_refused(tmp_path):
    for overrides, message in REFUSED:
        with pytest.raises(InputError, match=message):
            export_ctranslate2(translator(**overrides), tmp_path / "engine")
    other = translator()
    object.__setattr__(other.model.config, "feed_forward", "gated")  # as a new variant
    with pytest.raises(InputError, match="feed_forward is 'gated'"):
        export_ctranslate2(other, tmp_path / "engine")
    more = setting("none", Choice(("none",)), "A gate.")
    kind = dataclasses.make_dataclass(
        "_", [("gate", str, more)], bases=(TransformerConfig,), frozen=True
    )
    object.__setattr__(other.model, "config", kind(other.tokenizer.vocab_size))
    with pytest.raises(InputError, match="CTranslate2 does not know gate of the config"):
        export_ctranslate2(other, tmp_path / "engine")
    with pytest.raises(InputError, match="str can't be exported"):
        export_ctranslate2("a translator", tmp_path / "engine")
    assert not (tmp_path / "engine").exists()
