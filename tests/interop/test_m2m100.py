"""M2M-100 and NLLB-200 folders against NumPy, and malformed ones."""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from t2t_keras.data.batching import shift_right
from t2t_keras.errors import InputError
from t2t_keras.interop.ctranslate2 import load_ctranslate2
from t2t_keras.interop.m2m100 import load_m2m100
from t2t_keras.interop.pretrained import load_pretrained
from t2t_keras.serving.ctranslate2 import export_ctranslate2
from tests import reference
from tests.interop import m2m100_folder as folders
from tests.interop.marian_folder import change_json, safetensors, write_json

LINES = [
    "The old man sees a small dog.", "😀 unknown, and ê漢字 __de__ deu_Latn",
    "Der Hund sieht, ob der Mann kommt!", "A",
]  # fmt: skip
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


def codes(source, target, count=4):
    """Returns the languages of texts, two string tensors [count]."""
    return tf.fill([count], source), tf.fill([count], target)


def language(kind, code):
    """Returns the row of a language's token."""
    return folders.tokens(kind).index(code if kind == "nllb" else f"__{code}__")


def rows_of(kind):
    """Returns the row of each of our ids."""
    return [1, 2, 3, 2, 0, 1, *range(4, len(folders.tokens(kind)))]


def to_rows(kind, ids):
    return [rows_of(kind)[i] for i in ids if i != 0]


@each_kind
def test_sources_are_language_pieces_and_end(kind, translators):
    found = translators[kind].encode(tf.constant(LINES), *codes(*KINDS[kind])).numpy()
    for line, ids in zip(LINES, found, strict=True):
        expected = [language(kind, KINDS[kind][0]), *folders.ids_of(kind, line), 2]
        assert to_rows(kind, ids) == expected, line
    assert any(3 in folders.ids_of(kind, line) for line in LINES)  # unknown


@each_kind
def test_logits_are_those_of_the_equations(kind, translators):
    translator, (source, target) = translators[kind], KINDS[kind]
    source_ids = translator.encode(tf.constant(LINES), *codes(source, target))
    first = tf.fill([4], translator.languages.ids[target])
    target_ids = translator.targets.encode(tf.constant(LINES[::-1]), first).ids
    read = shift_right(target_ids, 3)
    found = translator.model({"source_ids": source_ids, "target_ids": read}).numpy()
    rows, outputs = rows_of(kind), [1, 2, *range(4, len(rows_of(kind)))]
    for row in range(4):
        ids = [to_rows(kind, x[row].numpy()) for x in (source_ids, read)]
        assert ids[1][:2] == [2, language(kind, target)]
        expected = folders.logits(kind, *ids)
        ours = found[row, : len(ids[1])][:, outputs]
        np.testing.assert_allclose(ours, expected[:, [rows[i] for i in outputs]], atol=1e-4)
    banned = found[:, :, [0, 3]]
    assert banned.max() < -9_000


@pytest.mark.parametrize("kind", ["m2m100"])
def test_scores_count_the_language_in_the_length_alone(kind, translators):
    translator, (source, target) = translators[kind], KINDS[kind]
    translator.beam_size = 3
    source_ids = translator.encode(tf.constant(LINES), *codes(source, target))
    first = tf.fill([4, 1], translator.languages.ids[target])
    found = translator.search(source_ids, first, n_best=3)
    ended = 0
    for row, best in np.ndindex(4, 3):
        ids = found.ids[row, best].numpy()[: found.lengths[row, best]].tolist()
        assert ids[0] == first[row, 0]
        rows = to_rows(kind, [3, *ids])
        steps = folders.logits(kind, to_rows(kind, source_ids[row].numpy()), rows[:-1])
        log_prob = np.log(reference.softmax(steps))[np.arange(1, len(ids)), rows[2:]].sum()
        np.testing.assert_allclose(found.scores[row, best], log_prob / len(ids), atol=1e-4)
        ended += ids[-1] == 1
    assert ended


@each_kind
def test_tokens_that_are_no_text_are_left_out_of_translations(kind, translators):
    tokenizer = translators[kind].tokenizer.target
    text = tokenizer.encode([LINES[0]]).to_list()[0]
    count = tokenizer.vocab_size
    control = [2, 4, 5, *translators[kind].languages.ids.values(), count - 1, count - 2, 0]
    mixed = [text[0], *control, *text[1:], 1, text[0]]
    assert tokenizer.decode(tf.constant([mixed])).numpy()[0].decode() == LINES[0]


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
        change_json(folder / TOKENIZER, tokenizer_class="SMALL100Tokenizer")
    else:
        (folder / "tokenization_small100.py").write_text("# its tokenizer")
    translator = load_m2m100(folder)
    ids = translator.encode(tf.constant(["A"]), *codes("", "de", 1)).numpy()[0]
    assert to_rows("m2m100", ids)[0] == language("m2m100", "de")
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
    source_ids = translator.encode(tf.constant(LINES), *codes("eng_Latn", "deu_Latn"))
    sources = [
        [piece.decode() for piece in row if piece]
        for row in translator.tokenizer.pieces(source_ids).numpy()
    ]
    assert sources[0][0] == "eng_Latn" and sources[0][-1] == "</s>"
    results = engine.translate_batch(
        sources, [["deu_Latn"]] * 4, beam_size=1, max_decoding_length=14
    )
    ours = translator(LINES, source_language="eng_Latn", target_language="deu_Latn")
    index = {piece: i for i, piece in enumerate(_pieces(translator.tokenizer.target))}
    for result, text in zip(results, ours, strict=True):
        ids = [[index[piece] for piece in result.hypotheses[0]]]
        assert translator.tokenizer.target.decode(tf.constant(ids)).numpy()[0].decode() == text


def _pieces(tokenizer):
    shown = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    return [piece.decode() for piece in shown]


# Malformed folders -------------------------------------------------------------------------------


CONFIG, SEARCH, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
EMBEDDING = "model.shared.weight"


def changed(file, **changes):
    return lambda folder: change_json(folder / file, **changes)


def removed(file):
    return lambda folder: (folder / file).unlink()


def rewritten(kind, edit):
    def change(folder):
        arrays = folders.weights(kind)
        edit(arrays)
        (folder / "model.safetensors").write_bytes(safetensors(arrays))

    return change


def with_index(files):
    def change(folder):
        (folder / "model.safetensors").rename(folder / "part.safetensors")
        write_json(folder / "model.safetensors.index.json", {"weight_map": files})

    return change


def without_languages(folder):
    change_json(folder / "special_tokens_map.json", additional_special_tokens=None)


def fewer_rows(folder):
    change_json(folder / CONFIG, vocab_size=150)
    rewritten("m2m100", lambda a: a.update({EMBEDDING: a[EMBEDDING][:150]}))(folder)


def other_ids(folder):
    vocab = {piece: row for row, piece in enumerate(folders.tokens("nllb")[:-7])}
    vocab["▁a"], vocab["▁s"] = vocab["▁s"], vocab["▁a"]
    write_json(folder / "tokenizer.json", {"model": {"vocab": vocab}, "added_tokens": []})


MALFORMED = {
    "mixture of experts": ("nllb", changed(CONFIG, model_type="nllb-moe"),
     "model_type is 'nllb-moe': only marian and m2m_100"),
    "post-norm": ("m2m100", changed(CONFIG, normalize_before=False), "normalize_before is False"),
    "untied": ("m2m100", changed(CONFIG, tie_word_embeddings=False), "tie_word_embeddings is"),
    "padding": ("nllb", changed(CONFIG, pad_token_id=4), "pad_token_id is 4 in config.json, and 1"),
    "too narrow": ("m2m100", changed(CONFIG, d_model=2, encoder_attention_heads=1,
     decoder_attention_heads=1), "fc1.weight of shape"),
    "fewer rows than languages": ("m2m100", fewer_rows,
     "the token of language .* has id .* below vocab_size of config.json, 150"),
    "minimum": ("nllb", changed(SEARCH, min_length=3), "min_length is 3: only 0 is supported"),
    "banned": ("nllb", changed(SEARCH, bad_words_ids=[[1]]), r"bad_words_ids is \[\[1\]\]: none"),
    "forced": ("nllb", changed(SEARCH, forced_bos_token_id=7),
     "forced_bos_token_id is 7: only the id of a language is supported"),
    "legacy": ("nllb", changed(TOKENIZER, legacy_behaviour=True), "legacy_behaviour is True"),
    "tokenizer": ("m2m100", changed(TOKENIZER, tokenizer_class="MBart50Tokenizer"),
     "tokenizer_class is 'MBart50Tokenizer'"),
    "added token": ("m2m100", changed("added_tokens.json", **{"<mt>": 5}),
     "adds the token '<mt>' with id 5: only languages"),
    "special token": ("nllb", changed(TOKENIZER, extra_special_tokens=["<mt>"]),
     "the special token '<mt>' is neither in the vocabulary"),
    "no vocab.json": ("m2m100", removed("vocab.json"),
     "has no vocab.json, which M2M-100 needs"),
    "taken id": ("nllb", changed("added_tokens.json", tyv_Cyrl=len(folders.tokens("nllb")) - 6),
     "gives the language 'deu_Latn' no id, and another token the id"),
    "only a new language": ("nllb", lambda folder: (without_languages(folder),
     changed("added_tokens.json", tyv_Cyrl=len(folders.tokens("nllb")) - 1)(folder)),
     "does not name the languages of NLLB-200"),
    "no languages": ("nllb", without_languages, "does not name the languages of NLLB-200"),
    "other ids": ("nllb", other_ids, "tokenizer.json does not give '▁.' the id"),
    "copies that differ": ("m2m100", rewritten("m2m100",
     lambda a: a.update({"lm_head.weight": a[EMBEDDING] + 1})),
     "model.shared.weight and lm_head.weight.*differ"),
    "positions": ("m2m100", rewritten("m2m100",
     lambda a: a.update({"model.decoder.embed_positions.weights": np.zeros([66, 16], "f4")})),
     "embed_positions.weights holds other positions"),
    "index of elsewhere": ("m2m100", with_index({EMBEDDING: "../part.safetensors"}),
     "weight_map does not map weights to files"),
    "missing array": ("m2m100", with_index({"other": "part.safetensors"}),
     "names other, which its file lacks"),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_folder_is_refused_by_one_sentence(name, written, tmp_path):
    kind, change, message = MALFORMED[name]
    folder = shutil.copytree(written[kind], tmp_path / "hf")
    change(folder)
    with pytest.raises(InputError, match=message) as error:
        load_pretrained(folder)
    assert "\n" not in str(error.value)


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
        translators["nllb"](LINES, **languages)
