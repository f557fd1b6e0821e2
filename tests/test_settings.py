"""Every setting of decoding has one range, wherever it enters."""

import math

import numpy as np
import pytest
import tensorflow as tf
from absl import flags

from pipelines.app import define_setting
from pipelines.fields import FIELDS
from t2t_keras.decoding import beam_search, sample
from t2t_keras.decoding.hypotheses import LengthPenalty
from t2t_keras.errors import InputError
from t2t_keras.interop.m2m100_tokenizer import TEMPLATES
from t2t_keras.layers import variants
from t2t_keras.layers.pooling import POOLINGS
from t2t_keras.models.knn import KNNTransformer
from t2t_keras.settings import (
    LANGUAGE_TEMPLATES,
    Choice,
    KNNSettings,
    Range,
    SamplingSettings,
    SearchSettings,
    Switch,
    Text,
    settings_of,
)
from t2t_keras.tasks.search_settings import ParserSettings, TranslatorSettings
from t2t_keras.tasks.text_io import map_by_length
from tests.tasks import tiny
from tests.tasks.parsers import make_parser

NO_NUMBERS = [math.nan, math.inf, -math.inf, "1", b"1", True, [1], np.array([1, 2])]
KINDS = (TranslatorSettings, ParserSettings, SamplingSettings, KNNSettings)
RANGES = [
    (kind, name)
    for kind in KINDS
    for name, setting in settings_of(kind).items()
    if isinstance(setting.allowed, Range)
]


@pytest.mark.parametrize(("kind", "name"), RANGES)
def test_a_value_outside_its_range_is_named_with_the_range(kind, name):
    setting = settings_of(kind)[name].allowed
    outside = [setting.least - 1, setting.most + 1, *NO_NUMBERS]
    outside += [] if setting.optional else [None]
    outside += [setting.least + 0.5] if setting.whole else []
    for value in outside:
        with pytest.raises(InputError) as error:
            kind.checked({name: value}, "decode.")
        assert str(error.value) == f"decode.{name} is {value!r}: give {setting}."


@pytest.mark.parametrize(("kind", "name"), RANGES)
def test_both_ends_of_a_range_are_allowed_and_become_numbers_of_python(kind, name):
    setting = settings_of(kind)[name].allowed
    number, numpy_kind = (int, np.int64) if setting.whole else (float, np.float64)
    for value in (setting.least, setting.most):
        checked = kind.checked({name: numpy_kind(value)})[name]
        assert checked == value
        assert type(checked) is number
    if setting.optional:
        assert kind.checked({name: None}) == {name: None}


@pytest.mark.parametrize(("allowed", "words", "inside", "outside"), [
    (Range(0, 1, exclude_most=True), "a number of at least 0 and less than 1", [0, 0.999],
     [-0.1, 1, 1.0]),
    (Range(0, math.inf, exclude_least=True), "a number above 0", [1e-9, math.inf],
     [0, -1, math.nan]),
    (Range(0, 1, exclude_least=True), "a number above 0 to 1", [1e-9, 1], [0, 1.1]),
    (Range(1, math.inf, whole=True), "a whole number of at least 1", [1, 2**40], [0, 1.5]),
    (Choice(("a", "")), "one of a, '' (empty)", ["a", ""], ["b", None, 0, ["a"]]),
    (Text(), "text", ["", "a"], [None, 1, b"a"]),
    (Switch(), "True or False", [True, False], [0, 1, "true", None]),
])  # fmt: skip
def test_allowed_values(allowed, words, inside, outside):
    assert str(allowed) == words
    for value in inside:
        assert allowed.check("x", value) == value
    for value in outside:
        with pytest.raises(InputError, match=r"^x is .*: give "):
            allowed.check("x", value)


@pytest.mark.parametrize(("kind", "table"), [
    ("attention_score", variants.ATTENTION_SCORES),
    ("attention_weights", variants.ATTENTION_WEIGHTS),
    ("feed_forward", variants.FEED_FORWARDS), ("norm", variants.NORMS),
    ("position_embedding", variants.POSITION_EMBEDDINGS), ("pooling", POOLINGS),
])  # fmt: skip
def test_a_setting_names_all_variants_of_its_table(kind, table):
    """The names stand where no TensorFlow is imported, the classes elsewhere."""
    assert FIELDS["classification"]["model"][kind].allowed.names == tuple(table)
    assert tuple(TEMPLATES) == LANGUAGE_TEMPLATES


@pytest.mark.parametrize("make", [tiny.translator, make_parser], ids=["translator", "parser"])
def test_a_predictor_checks_its_settings(make):
    made = make()
    for name in vars(made.settings):
        for value in ("1", math.nan, -11)[name == "protected_pattern" :]:
            with pytest.raises(InputError, match=f"^{name} is {value!r}: give "):
                type(made)(made.model, made.tokenizer, **{name: value})


@pytest.mark.parametrize("value", [0, "2", math.nan, True])
def test_sizes_of_batches_and_numbers_of_translations_are_checked(value):
    with pytest.raises(InputError, match=f"batch_size is {value!r}: give a whole number"):
        list(map_by_length(list, ["a"], value))
    with pytest.raises(InputError, match=f"^n is {value!r}: give a whole number from 1 to"):
        tiny.translator().n_best(["a"], value)


def test_searches_check_their_settings():
    options = {"bos_ids": tf.fill([1], 3), "eos_id": 1, "max_lengths": tf.fill([1], 5)}
    for name, setting in settings_of(KNNSettings).items():
        with pytest.raises(InputError, match=f"^{name} is nan: give {setting.allowed}"):
            KNNTransformer(tiny.model(), None, **{name: math.nan})
    of_beams = ["beam_size", "n_best", "length_penalty", "n_best_patience", "stopping_length_ratio"]
    of_samples = ["samples", "temperature", "top_k", "top_p", "length_penalty"]
    for search, extra, names in (
        (beam_search, {"beam_size": 2}, of_beams),
        (sample, {"seeds": [[0, 1]]}, of_samples),
    ):
        for name in names:
            for value in (math.nan, "1"):
                with pytest.raises(InputError, match=f"^{name} is {value!r}: give a"):
                    search(None, (), **options | extra | {name: value})
    with pytest.raises(InputError, match="length_penalty_offset is -6: give a number from 0"):
        beam_search(None, (), beam_size=1, length_penalty=LengthPenalty(0.6, -6), **options)


@pytest.mark.parametrize(("alpha", "offset"), [(10, 0), (-10, 0), (10, 5), (-10, 1e6), (0, 0)])
def test_scores_are_finite_at_the_ends_of_the_ranges(alpha, offset):
    """For sequences of up to 500 tokens, each of probability e^-20."""
    lengths = tf.range(1, 500)
    penalty = LengthPenalty(float(alpha), float(offset))(lengths)
    expected = ((offset + lengths.numpy()) / np.float64(offset + 1)) ** alpha
    np.testing.assert_allclose(penalty, expected, rtol=1e-4)
    scores = -20.0 * tf.cast(lengths, tf.float32) / penalty
    assert np.all(np.isfinite(scores)) and np.all(scores < 0)


def test_a_flag_accepts_its_range_and_names_it():
    setting = settings_of(SearchSettings)["length_penalty"]._replace(text="α.", default=None)
    flag = define_setting("setting_of_a_test", setting, "; default: 1")
    help = flags.FLAGS["setting_of_a_test"].help
    assert help == "α; default: 1; allowed: a number from -10 to 10."
    flags.FLAGS(["test", "--setting_of_a_test=0"])
    assert flag.value == 0.0
    for value in ("nan", "inf", "11"):
        with pytest.raises(flags.IllegalFlagValueError, match="give a number from -10 to 10"):
            flags.FLAGS(["test", f"--setting_of_a_test={value}"])
    flags.FLAGS.unparse_flags()
    delattr(flags.FLAGS, "setting_of_a_test")
