"""M2M-100 and NLLB-200 folders: logits and scores by the equations, tokens and languages."""

import functools
import shutil

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.errors import InputError
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.pretrained import load_pretrained
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from tests.interop import m2m100_folder as folders
from tests.interop.hugging_face_folder import (
    TEXTS,
    change_json,
    check_logits,
    check_scores,
    rows_of,
    safetensors,
    write_json,
)

KINDS = {"m2m100": ("en", "de"), "nllb": ("eng_Latn", "deu_Latn")}
each_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    place = tmp_path_factory.mktemp("whole")
    return {kind: folders.write(place / kind, kind) for kind in KINDS}


@pytest.fixture(scope="module")
def translators(written):
    return {kind: load_m2m100(folder) for kind, folder in written.items()}


def test_the_tokenizers_limit_is_the_longest_source(tmp_path):
    folder = folders.write(tmp_path / "m2m100", "m2m100")
    assert load_m2m100(folder).settings.max_source_length == 64  # positions of the model
    change_json(folder / "tokenizer_config.json", model_max_length=20)
    assert load_m2m100(folder).settings.max_source_length == 20


def codes(source, target):
    """Returns the languages of `TEXTS`, two string tensors."""
    return tf.fill([len(TEXTS)], source), tf.fill([len(TEXTS)], target)


def language(kind, code):
    """Returns the row of a language's token."""
    return folders.tokens(kind).index(code if kind == "nllb" else f"__{code}__")


def rows(kind):
    """Returns the row of each of our ids."""
    return [1, 2, 3, 2, 0, 1, *range(4, len(folders.tokens(kind)))]


@each_kind
def test_sources_are_language_pieces_and_end(kind, translators):
    found = translators[kind].encode(tf.constant(TEXTS), *codes(*KINDS[kind])).numpy()
    for line, ids in zip(TEXTS, found, strict=True):
        expected = [language(kind, KINDS[kind][0]), *folders.ids_of(kind, line), 2]
        assert rows_of(ids, rows(kind)) == expected, line
    assert any(3 in folders.ids_of(kind, line) for line in TEXTS)  # unknown


@each_kind
def test_logits_and_scores_are_those_of_the_equations(kind, translators):
    """The length of a score counts the language, which is certain."""
    expected = functools.partial(folders.logits, kind)
    check_logits(translators[kind], rows(kind), expected, KINDS[kind])
    check_scores(translators[kind], rows(kind), expected, KINDS[kind])


@each_kind
def test_tokens_that_are_no_text_are_left_out_of_translations(kind, translators):
    tokenizer = translators[kind].tokenizer.target
    text = tokenizer.encode([TEXTS[0]]).to_list()[0]
    count = tokenizer.vocab_size
    control = [2, 4, 5, *translators[kind].languages.ids.values(), count - 1, count - 2, 0]
    mixed = [text[0], *control, *text[1:], 1, text[0]]
    assert tokenizer.decode(tf.constant([mixed])).numpy()[0].decode() == TEXTS[0]


def test_languages_have_the_ids_of_the_released_models(translators):
    count = len(folders.tokens("m2m100")) - 108
    ids = translators["m2m100"].languages.ids
    assert len(ids) == 100
    # 128022, 128020 and 128028 behind 128004 pieces; of ours two more.
    assert [ids[code] - count for code in ("en", "de", "fr")] == [20, 18, 26]
    assert {*translators["nllb"].languages.ids} == {*folders.NLLB_CODES}


@pytest.mark.parametrize("named", [True, False])
def test_a_template_of_small100_reads_the_targets_language_before_the_source(
    named, written, tmp_path
):
    folder = shutil.copytree(written["m2m100"], tmp_path / "small")
    if named:
        change_json(folder / "tokenizer_config.json", tokenizer_class="SMALL100Tokenizer")
    else:
        (folder / "tokenization_small100.py").write_text("# its tokenizer")
    translator = load_m2m100(folder)
    ids = translator.encode(*map(tf.constant, (["A"], [""], ["de"]))).numpy()[0]
    assert rows_of(ids, rows("m2m100"))[0] == language("m2m100", "de")
    assert not translator.languages.forces_target
    assert load_m2m100(folder, template="m2m100").languages.forces_target


def test_ids_of_languages_are_those_of_added_tokens(written, translators, tmp_path):
    folder = shutil.copytree(written["nllb"], tmp_path / "nllb")
    first = len(folders.tokens("nllb")) - 7
    codes = [*folders.NLLB_CODES[:2], "<mask>", *folders.NLLB_CODES[2:]]  # other ids
    added = {str(first + i): {"content": code} for i, code in enumerate(codes)}
    change_json(folder / "tokenizer_config.json", added_tokens_decoder=added)
    found = load_m2m100(folder).languages.ids
    expected = translators["nllb"].languages.ids
    assert {code: found[code] - expected[code] for code in found} == {
        "fra_Latn": 0,
        "deu_Latn": 0,
        "eng_Latn": 1,
        "zho_Hans": 1,
    }


def test_a_language_that_was_added_has_its_own_id_beside_the_listed_ones(
    written, translators, tmp_path
):
    folder = shutil.copytree(written["nllb"], tmp_path / "nllb")
    spare = len(folders.tokens("nllb")) - 2
    change_json(folder / "added_tokens.json", tyv_Cyrl=spare)
    special = ["tyv_Cyrl", *folders.NLLB_CODES]
    change_json(folder / "special_tokens_map.json", additional_special_tokens=special)
    first = translators["nllb"].languages.ids
    expected = first | {"tyv_Cyrl": spare + 2}  # ids are rows + 2
    assert load_m2m100(folder).languages.ids == expected


def test_weights_in_shards_with_copies_of_the_embedding_are_read(written, translators, tmp_path):
    folder = shutil.copytree(written["m2m100"], tmp_path / "m2m100")
    (folder / "model.safetensors").unlink()
    arrays = folders.weights("m2m100")
    arrays["lm_head.weight"] = arrays["model.shared.weight"]
    angles = np.outer(np.arange(66), 10_000.0 ** (-np.arange(8) / 7))
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype(np.float16)
    arrays["model.encoder.embed_positions.weights"] = table
    names = sorted(arrays)
    files = {}
    for part in (0, 1):
        file = f"model-0000{part + 1}-of-00002.safetensors"
        files |= dict.fromkeys(names[part::2], file)
        content = safetensors({name: arrays[name] for name in names[part::2]})
        (folder / file).write_bytes(content)
    write_json(folder / "model.safetensors.index.json", {"weight_map": files})
    found, expected = load_m2m100(folder).model, translators["m2m100"].model
    for ours, theirs in zip(found.get_weights(), expected.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_exported_to_ctranslate2_the_engine_translates_and_reads_back(translators, tmp_path):
    ctranslate2 = pytest.importorskip("ctranslate2")
    translator = translators["nllb"]
    translator.beam_size = 1
    export_ctranslate2(translator, tmp_path / "engine")
    back = load_ctranslate2(tmp_path / "engine")
    for ours, theirs in zip(translator.model.get_weights(), back.model.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert back.languages == translator.languages
    engine = ctranslate2.Translator(str(tmp_path / "engine"), intra_threads=1)
    source_ids = translator.encode(tf.constant(TEXTS), *codes("eng_Latn", "deu_Latn"))
    sources = [
        [piece.decode() for piece in row if piece]
        for row in translator.tokenizer.pieces(source_ids).numpy()
    ]
    assert sources[0][0] == "eng_Latn" and sources[0][-1] == "</s>"
    results = engine.translate_batch(
        sources, [["deu_Latn"]] * len(TEXTS), beam_size=1, max_decoding_length=14
    )
    ours = translator(TEXTS, source_language="eng_Latn", target_language="deu_Latn")
    index = {piece: i for i, piece in enumerate(_pieces(translator.tokenizer.target))}
    for result, text in zip(results, ours, strict=True):
        ids = [[index[piece] for piece in result.hypotheses[0]]]
        assert translator.tokenizer.target.decode(tf.constant(ids)).numpy()[0].decode() == text


def _pieces(tokenizer):
    shown = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    return [piece.decode() for piece in shown]


def test_flags_of_other_folders_are_refused(written):
    with pytest.raises(InputError, match="has a tokenizer: leave out --source_spm"):
        load_pretrained(written["nllb"], source_spm="a.model")
    with pytest.raises(InputError, match="template is 'mbart': give one of m2m100, small100"):
        load_m2m100(written["nllb"], template="mbart")


@pytest.mark.parametrize(("languages", "message"), [
    ({"source_language": "eng_Latn"}, "target_language"),
    ({"source_language": "eng_Latn", "target_language": "de"}, r"'de': did you mean deu_Latn\?"),
    ({"source_language": "en", "target_language": "deu_Latn"}, r"'en': did you mean eng_Latn\?"),
])  # fmt: skip
def test_wrong_languages_are_refused_with_the_known_ones(languages, message, translators):
    with pytest.raises(InputError, match=message):
        translators["nllb"](TEXTS, **languages)
