"""A model of many languages: languages as inputs of calls, searches, scores and alignments."""

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.analysis.attention import align_texts, head_statistics, sentence_attention
from t2t_keras.decoding.sampling import sample
from t2t_keras.errors import InputError
from t2t_keras.tasks import loading
from t2t_keras.tasks.translation import Translator
from tests.tasks import tiny

CODES = ["de", "en", "fr"]
TEXTS = ["The dog sees a man.", "", "She does not know.", "The train."]
SOURCES = ["en", "de", "fr", "en"]
TARGETS = ["de", "en", "de", "fr"]


@pytest.fixture(scope="module")
def before_source():
    return tiny.multilingual_translator(source="target")


@pytest.fixture(scope="module")
def forced():
    return tiny.multilingual_translator(source="source", forces_target=True)


@pytest.fixture(params=["forced", pytest.param("before_source", marks=pytest.mark.slow)])
def either(request):
    return request.getfixturevalue(request.param)


def ids_of(translator, text):
    return translator.tokenizer.encode([text]).to_list()[0]


def log_probability(translator, source, labels):
    """log P by the model's own logits, without that of the first label, the language."""
    inputs = {"source_ids": tf.constant([source]), "target_ids": tf.constant([[3, *labels[:-1]]])}
    log_p = tf.nn.log_softmax(translator.model(inputs)[0]).numpy()
    return log_p[range(1, len(labels)), labels[1:]].sum()


def test_the_language_stands_before_the_source(before_source, forced):
    languages = {"source_language": tf.constant(SOURCES), "target_language": tf.constant(TARGETS)}
    for translator, codes in ((before_source, TARGETS), (forced, SOURCES)):
        found = translator.encode(tf.constant(TEXTS), **languages).numpy()
        for row, text, code in zip(found, TEXTS, codes, strict=True):
            expected = [translator.languages.ids[code], *ids_of(translator, text), 1]
            assert row[: len(expected)].tolist() == expected
            assert not row[len(expected) :].any()


def test_a_long_source_keeps_its_language_and_its_end(forced):
    language = tf.constant(["de"])
    [row] = forced.encode(tf.constant(["word " * 300]), language, language).numpy()
    assert len(row) == 40 and row[0] == forced.languages.ids["de"] and row[-1] == 1
    assert row[1:-1].tolist() == ids_of(forced, "word " * 300)[:38]


def test_each_text_of_a_batch_is_translated_as_it_is_alone(before_source, forced):
    for translator in (before_source, forced):
        together = translator.n_best(TEXTS, 3, source_language=SOURCES, target_language=TARGETS)
        for row, text, source, target in zip(together, TEXTS, SOURCES, TARGETS, strict=True):
            [alone] = translator.n_best([text], 3, source_language=source, target_language=target)
            assert [found.text for found in row] == [found.text for found in alone]
        again = translator(TEXTS, source_language=SOURCES, target_language=TARGETS)
        assert again == [row[0].text for row in together] and again[1] == ""
        assert again == translator.predict(
            TEXTS, batch_size=2, source_language=SOURCES, target_language=tf.constant(TARGETS)
        )
    assert len({*forced(["The dog."] * 3, target_language=CODES, source_language="en")}) > 1


def test_a_forced_language_is_certain_and_counts_in_the_length(forced):
    """Its log P is 0, as in Hugging Face's searches with forced_bos_token_id."""
    source = [forced.languages.ids["en"], *ids_of(forced, TEXTS[0]), 1]
    language, prefix = forced.languages.ids["de"], ids_of(forced, "Der")

    found = forced.search(tf.constant([source]), tf.constant([[language, *prefix]]))
    labels = found.ids[0, 0].numpy().tolist()
    assert labels[: 1 + len(prefix)] == [language, *prefix]
    expected = log_probability(forced, source, labels) / ((5 + len(labels)) / 6) ** 0.6
    assert found.scores[0, 0].numpy() == pytest.approx(expected, rel=1e-4)
    languages = {"source_language": "en", "target_language": "de"}
    [[best, *_]] = forced.n_best(TEXTS[:1], prefix=["Der"], **languages)
    assert best.score == pytest.approx(expected, rel=1e-4)

    given = [language, *ids_of(forced, "Der Zug kommt."), 1]
    scores = forced.score(TEXTS[:1], ["Der Zug kommt."], **languages)
    expected = log_probability(forced, source, given)
    tensors = [tf.constant(texts) for texts in (TEXTS[:1], ["Der Zug kommt."])]
    for found in (scores, forced.score(*tensors, **languages)):
        assert found.log_probabilities.numpy() == pytest.approx([expected], rel=1e-4)
        assert found.lengths.numpy().tolist() == [len(given)]


def test_a_forced_language_is_certain_in_samples(forced):
    source = [forced.languages.ids["en"], *ids_of(forced, TEXTS[0]), 1]
    language, model = forced.languages.ids["de"], forced.model
    drawn = sample(
        model.step,
        model.initial_state(model.encode(tf.constant([source] * 5)), 1),
        bos_ids=[3] * 5,
        eos_id=1,
        max_lengths=[9] * 5,
        seeds=[[1, row] for row in range(5)],
        prefix_ids=[[language]] * 5,
        free_prefix=1,
    )
    for row in range(5):
        labels = drawn.ids[row, 0, : drawn.lengths[row, 0]].numpy().tolist()
        assert labels[0] == language
        expected = log_probability(forced, source, labels)
        assert drawn.log_probabilities[row, 0].numpy() == pytest.approx(expected, rel=1e-4)


def test_samples_of_a_text_do_not_depend_on_the_batch(either):
    rows = either.sample(TEXTS, 2, seed=7, source_language=SOURCES, target_language=TARGETS)
    again = either.sample(
        TEXTS[2:3] * 2, seed=[7, 7], source_language="fr", target_language=["de", "fr"]
    )
    assert len(rows) == 4 and all(len(row) == 2 for row in rows)
    assert [pair.text for pair in rows[1]] == ["", ""]
    alone = either.sample(TEXTS[:1], 2, seed=7, source_language="en", target_language=TARGETS[0])
    assert [pair.text for pair in alone[0]] == [pair.text for pair in rows[0]]
    assert again[0] != again[1]


def test_the_tokens_of_a_translation_have_its_language_as_a_certain_first(either):
    languages = {"source_language": SOURCES, "target_language": TARGETS}
    found = either.n_best_tokens(TEXTS, 2, **languages)
    plain = either.n_best(TEXTS, **languages)
    for row, expected, text in zip(found, plain, TEXTS, strict=True):
        assert [best.text for best in row] == [best.text for best in expected[:2]]
        for best in row:
            total = sum(token.log_probability for token in best.tokens)
            score = total / ((5 + len(best.tokens)) / 6) ** 0.6
            assert best.score == pytest.approx(score, rel=1e-4, abs=1e-6) or not text
            words = [token for token in best.tokens if token.end]
            assert all(0 <= t.source_start < t.source_end <= len(text) for t in words)
            if either.languages.forces_target and best.score > -np.inf:
                assert best.tokens[0] == (0, 0, 0.0, 0, 0)


def test_documents_have_languages_of_their_own(either):
    text = "The dog sees a man.\n\nThe train. {name}"
    languages = {"source_language": ["en", "en", "de"], "target_language": CODES}
    found = either.documents([text] * 3, **languages)
    for row, code in enumerate(CODES):
        source = languages["source_language"][row]
        one = {"source_language": source, "target_language": code}
        first, second = either(["The dog sees a man.", "The train."], **one)
        assert found[row].startswith(f"{first}\n\n{second}"), found[row]
        assert found[row].count("{name}") == 1
        assert either.documents([text], **one) == found[row : row + 1]
    inside = either.documents(["The dog {name} sees a man."], **one)
    assert inside[0].count("{name}") == 1
    assert len({*found}) == 3


def test_no_sentence_of_a_document_is_truncated(forced):
    texts = ["word " * count for count in range(1, 45)]
    asked = []

    def translate(sentences, *languages):
        asked.extend(zip(sentences.numpy(), *(codes.numpy() for codes in languages), strict=True))
        return sentences

    languages = tf.fill([44], "en"), tf.constant((CODES * 15)[:44])
    found = forced.translate_documents(tf.constant(texts), translate, None, *languages)
    assert found.numpy().tolist() == [text.encode() for text in texts]
    sentences, *codes = map(tf.constant, zip(*asked, strict=True))
    assert not np.any(forced.sources.encode(sentences, forced.first_ids(*codes)[0]).truncated)
    assert {target for _, _, target in asked} == {b"de", b"en", b"fr"}
    assert len({*asked}) == len(asked)


def test_terms_hold_in_every_language(either):
    terms = {"dog": "Mann", "train": "Zug"}
    languages = {"source_language": SOURCES, "target_language": TARGETS}
    found = either(TEXTS, terms=terms, **languages)
    plain = either(TEXTS, **languages)
    assert "Mann" in found[0] and "Zug" in found[3]
    assert found[1:3] == plain[1:3] and found[0] != plain[0]


def test_ids_are_translated_as_their_text_is(forced):
    languages = [tf.constant(codes) for codes in (SOURCES, TARGETS)]
    source_ids = forced.encode(tf.constant(TEXTS), *languages)
    found = forced.translate_ids(source_ids, languages[1])
    first = [forced.languages.ids[code] for code in TARGETS]
    assert found.ids[:, 0, 0].numpy().tolist() == first
    texts = [text.decode() for text in forced.tokenizer.decode(found.ids[:, 0]).numpy()]
    beams = forced.n_best(TEXTS, source_language=SOURCES, target_language=TARGETS)
    assert texts == [row[0].text for row in beams]


@pytest.mark.parametrize(
    ("source", "ids", "targets", "message"),
    [
        ("source", ["en", 5], ["de"], None),
        ("source", [5, 1], ["de"], r"source without the token of its language: give one of \d+ "),
        ("source", [5, "en"], ["de"], "source without the token of its language"),
        ("source", [0, 1, 5], ["de"], None),  # nothing to translate
        ("target", ["de", 5], ["de"], None),
        ("target", ["de", 5], ["fr"], "does not begin with the token of its target_language: give"),
        (
            "target",
            [5, 6],
            ["de"],
            r"target_language: give one of \d+ \(de\), \d+ \(en\), ",
        ),
        ("target", [1], ["de"], None),
    ],
)
def test_ids_must_begin_with_the_language_that_the_model_reads(
    before_source, forced, source, ids, targets, message
):
    translator = {"source": forced, "target": before_source}[source]
    ids = [[translator.languages.ids.get(token, token) for token in ids], [0] * len(ids)]
    inputs = tf.constant(ids), tf.constant([*targets, "fr"])
    if message is None:
        assert translator.translate_ids(*inputs).scores[0, 0] <= 0
        return
    with pytest.raises(tf.errors.InvalidArgumentError, match=f"source_ids holds a .*{message}"):
        translator.translate_ids(*inputs)


def test_an_alignment_has_the_languages_tokens_without_a_span(forced):
    found = forced.align(
        tf.constant(["The dog."]),
        tf.constant(["Der Hund."]),
        tf.constant(["en"]),
        tf.constant(["de"]),
    )
    assert found.source_pieces[0, 0] == b"<2en>" and found.target_pieces[0, 0] == b"<2de>"
    assert found.spans[0, 0].numpy().tolist() == [0, 0]
    assert np.all(found.spans[0, 1:-1, 1] > 0)
    assert np.allclose(tf.reduce_sum(found.attention, axis=-1), 1)


def asks(translator):
    methods = ("__call__", "n_best", "predict", "documents", "n_best_tokens", "sample")
    return [getattr(translator, name) for name in methods]


@pytest.mark.parametrize(
    ("languages", "message"),
    [
        ({"target_language": "xx"}, "target_language is 'xx': give one of de, en, fr"),
        ({"target_language": ["de", "xx"]}, r"target_language\[1\] is 'xx': give one of de, en"),
        ({"target_language": ["de", ""]}, r"target_language\[1\] is '': give one of de, en, fr"),
        ({"target_language": ""}, "target_language is '': give one of de, en, fr"),
        ({}, "target_language is missing: give one of de, en, fr"),
        ({"target_language": ["de"]}, "target_language has 1 codes for 2 texts"),
        ({"target_language": "de", "source_language": "xx"}, "source_language is 'xx'"),
    ],
)
def test_a_missing_or_unknown_language_is_named(before_source, languages, message):
    for ask in asks(before_source):
        with pytest.raises(InputError, match=message):
            ask(["a", "b"], **languages)
    with pytest.raises(InputError, match=message):
        before_source.score(["a", "b"], ["c", "d"], **languages)


def test_a_source_language_that_the_model_does_not_read_may_be_missing(before_source, forced):
    texts = TEXTS[:2]
    assert before_source(texts, target_language="de") == before_source(
        texts, source_language=["en", ""], target_language=["de", "de"]
    )
    one = before_source(texts, source_language="", target_language="de")
    assert one == before_source(texts, target_language="de")
    german = tf.constant(["de", "de"])
    [first, _], [second, _] = before_source.encode(tf.constant(texts), target_language=german)[
        :, :2
    ]
    assert first == second == before_source.languages.ids["de"]
    with pytest.raises(InputError, match="source_language is missing: give one of de, en, fr"):
        forced(texts, target_language="de")
    with pytest.raises(InputError, match="source_language is missing: give one of de, en, fr"):
        forced.encode(tf.constant(texts), target_language=german)


def test_a_language_given_to_a_model_of_two_is_refused():
    translator = tiny.translator()
    for name in ("source_language", "target_language"):
        for ask in asks(translator):
            with pytest.raises(InputError, match=f"{name} is 'de'.*leave it out"):
                ask(["a"], **{name: "de"})
        for texts in (["a"], tf.constant(["a"])):
            with pytest.raises(InputError, match=f"{name} is 'de'.*leave it out"):
                translator.score(texts, texts, **{name: "de"})
        with pytest.raises(InputError, match=f"{name} is .*de.*leave it out"):
            translator.translate(tf.constant(["a"]), **{name: tf.constant(["de"])})


def test_a_bundle_keeps_the_languages(forced, tmp_path):
    forced.save(tmp_path / "bundle")
    loaded = loading.load(tmp_path / "bundle")
    assert loaded.languages == forced.languages
    languages = {"source_language": SOURCES, "target_language": TARGETS}
    assert loaded(TEXTS, **languages) == forced(TEXTS, **languages)


def test_attention_and_alignment_have_the_languages(forced):
    languages = {"source_language": "en", "target_language": "de"}
    found = sentence_attention(forced, "The dog.", "Der Hund.", **languages)
    assert (found.encoder.keys[0], found.cross.queries[0]) == ("<2en>", "<2de>")
    assert found.decoder.keys[:2] == ["<s>", "<2de>"]
    [pairs] = align_texts(forced, ["The dog."], ["Der Hund."], **languages)
    assert pairs and all(0 <= i <= 1 and 0 <= j <= 1 for i, j in pairs)
    with pytest.raises(InputError, match="source_language is missing"):
        head_statistics(forced, ["The dog."], ["Der Hund."])


def test_a_translation_without_room_for_more_than_its_language_is_refused(forced):
    with pytest.raises(InputError, match=r"max_target_length is 1, and .* give at least 2"):
        Translator(forced.model, forced.tokenizer, max_target_length=1)
    found = Translator(forced.model, forced.tokenizer, max_target_length=2)
    assert found.targets.limit == 2
