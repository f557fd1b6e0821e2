"""The tokens of languages: what they are, where they stand, and that no text becomes one."""

import pytest
import tensorflow as tf

from t2t_keras.data import train_tokenizer
from t2t_keras.data.language_template import LanguageTemplate, advised_codes, direction_encoders
from t2t_keras.errors import InputError

IDS = {"de": 330, "en": 331, "fr": 332}
TARGET_BEFORE_SOURCE = LanguageTemplate(IDS, source="target")
M2M = LanguageTemplate(IDS, source="source", forces_target=True)


def first_ids(template, source, target):
    found = template.first_ids(tf.constant(source, tf.string), tf.constant(target, tf.string))
    return [None if ids is None else ids.numpy().tolist() for ids in found]


def test_a_template_gives_the_tokens_before_each_source_and_target():
    languages = ["en", "fr"], ["de", "en"]
    assert first_ids(TARGET_BEFORE_SOURCE, *languages) == [[330, 331], None]
    assert first_ids(M2M, *languages) == [[331, 332], [330, 331]]
    forced = LanguageTemplate(IDS, forces_target=True)
    assert first_ids(forced, ["", ""], ["de", "fr"]) == [None, [330, 332]]
    assert first_ids(M2M, [], []) == [[], []]


@pytest.mark.parametrize("in_graph", [False, True])
def test_an_unknown_language_is_refused_with_the_list_of_the_known_ones(in_graph):
    def ask(template, source, target):
        call = lambda *codes: template.first_ids(*codes)[0]  # noqa: E731
        call = tf.function(call, autograph=False) if in_graph else call
        return call(tf.constant(source), tf.constant(target))

    assert ask(TARGET_BEFORE_SOURCE, [""], ["de"]).numpy() == [330]
    for template, source, target, message in (
        (M2M, ["en", "xx"], ["de", "de"], "source_language holds .*xx.*: give one of de, en, fr"),
        (M2M, [""], ["de"], "source_language holds .*: give one of de, en, fr"),
        (M2M, ["en"], [""], "target_language holds .*: give one of de, en, fr"),
        # not read, and still no language
        (TARGET_BEFORE_SOURCE, ["xx"], ["de"], "source_language holds .*xx.*: give one of"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            ask(template, source, target)


@pytest.mark.parametrize(("fields", "message"), [
    ({"ids": {"de": 4, "en": 4}, "source": "target"}, "give each language a token of its own"),
    ({"ids": {}, "source": "target"}, "give each language a token of its own"),
    ({"ids": {"two words": 4}, "source": "target"}, "'two words' is not a code"),
    ({"ids": {"de": -1}, "source": "target"}, "'de' has the id -1"),
    ({"ids": {"de": 4}, "source": "both"}, "source is 'both'"),
    ({"ids": {"de": 4}}, "no place for a language"),
])  # fmt: skip
def test_an_invalid_template_is_an_input_error(fields, message):
    with pytest.raises(InputError, match=message):
        LanguageTemplate(**fields)


def test_shards_of_a_direction_begin_with_its_tokens(lines):
    tokenizer = train_tokenizer("bpe", lines, 333, languages=["fr", "en", "de"])
    texts, both = ["the old man", ""], [tokenizer] * 2
    [ids, _] = tokenizer.encode(texts).to_list()

    def encoded(template):
        return [
            encoder.encode(texts).to_list()
            for encoder in direction_encoders(template, *both, "en", "fr")
        ]

    assert encoded(TARGET_BEFORE_SOURCE) == [[[332, *ids], []], [ids, []]]
    assert encoded(M2M) == [[[331, *ids], []], [[332, *ids], []]]
    fingerprints = {
        encoder.fingerprint()
        for target in ("de", "fr")
        for encoder in direction_encoders(TARGET_BEFORE_SOURCE, *both, "en", target)
    }
    assert len(fingerprints) == 3  # two sources, one target
    with pytest.raises(InputError, match="target_language is 'es': give one of de, en, fr"):
        direction_encoders(TARGET_BEFORE_SOURCE, *both, "en", "es")


@pytest.mark.parametrize(("code", "codes", "meant"), [
    ("DE", ["de", "en"], ["de"]),
    ("pt-BR", ["es", "pt"], ["pt"]),
    ("pt_br", ["pt", "pt-BR"], ["pt-BR"]),
    ("zho_Hans", ["en", "zh"], ["zh"]),
    ("zh", ["eng_Latn", "zho_Hans", "zho_Hant"], ["zho_Hans", "zho_Hant"]),
    ("est", ["en", "es", "et"], ["et"]),
    ("jp", ["ja", "ka"], ["ja"]),
    ("fa", ["fas_Arab", "pes_Arab"], ["fas_Arab", "pes_Arab"]),
    ("xx", ["de", "en"], []),
    ("", ["de", "en"], []),
])  # fmt: skip
def test_a_language_that_is_nearly_known_is_advised(code, codes, meant):
    every = f"give one of {', '.join(codes)}"
    expected = f"did you mean {' or '.join(meant)}? Else {every}" if meant else every
    assert advised_codes(code, codes) == expected
