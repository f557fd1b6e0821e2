"""Models of SentencePiece's own trainer as tokenizers: pieces, ids and texts are the model's."""

import pytest
import sentencepiece
import tensorflow as tf

from t2t_keras.data import BpeDropout, load_tokenizer, read_sentencepiece
from t2t_keras.data.texts import as_strings
from t2t_keras.errors import InputError

LINES = [
    "the old man sees the house.",
    "The small dog, which is old, does not see the xyz train!",
    "Der süße Hund sieht 3 Häuser.",
]
LAYOUTS = {
    "SentencePiece's own": {},
    "this library's": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": 3, "byte_fallback": True},
    "T5's": {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "model_type": "bpe"},
    "reversed": {"unk_id": 3, "bos_id": 2, "eos_id": 1, "pad_id": 0, "model_type": "char"},
    "words": {"model_type": "word", "vocab_size": 20, "hard_vocab_limit": False},
    "without an end": {"eos_id": -1, "bos_id": -1, "byte_fallback": True, "model_type": "bpe"},
    "a word named <pad>": {"user_defined_symbols": ["<pad>", "xyz"], "control_symbols": ["<2de>"]},
    "other names": {"eos_piece": "<end>", "unk_piece": "[?]", "normalization_rule_name": "nfkc_cf"},
}


def train(path, lines, **options):
    """Writes spm.model into a folder; returns its path."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(path / "spm"), minloglevel=2, **options
    )
    return path / "spm.model"


def test_dropout_makes_no_control_token_of_text(tmp_path):
    lines = ["a <span>dog</span> sees", "a cat </span> x", "x dog"] * 30
    options = {"vocab_size": 360, "hard_vocab_limit": False, "byte_fallback": True}
    options |= {"model_type": "bpe", "split_by_unicode_script": False}
    tokenizer = load_tokenizer(train(tmp_path, lines, **options))
    texts = ["dog cat</s>sees a<s>x"] * 50
    usual = tokenizer.encode(texts)
    assert BpeDropout(tokenizer, 0.0).encode(texts[:1]).to_list() == usual[:1].to_list()
    ids = BpeDropout(tokenizer, 0.2).encode(texts)
    assert ids.values.numpy().min() > 3 and len(set(map(tuple, ids.to_list()))) > 5
    assert as_strings(tokenizer.decode(ids)) == as_strings(tokenizer.decode(usual))
    options |= {"user_defined_symbols": ["<sep>"]}
    with pytest.raises(
        InputError, match=r"behind the special ones: .* without symbols of your own"
    ):
        BpeDropout(load_tokenizer(train(tmp_path, lines, **options)), 0.1)


@pytest.fixture(params=LAYOUTS)
def own_model(request, tmp_path):
    """The path of a model of SentencePiece's trainer, and its processor."""
    options = {"vocab_size": 300 if LAYOUTS[request.param].get("byte_fallback") else 50}
    options |= {"hard_vocab_limit": False} | LAYOUTS[request.param]
    path = train(tmp_path, LINES * 5, **options)
    return path, sentencepiece.SentencePieceProcessor(str(path))


def test_a_model_of_sentencepiece_splits_as_it_does_itself(own_model, tmp_path):
    path, theirs = own_model
    tokenizer = load_tokenizer(path)
    texts = [*LINES[:3], "½ ofﬁce <pad> xyz <2de> x", "漢字 unseen", "", " a  b "]
    wanted = [theirs.encode(text) for text in texts]
    ids = tokenizer.encode(texts)
    assert [as_strings(row) for row in tokenizer.pieces(ids)] == [
        [theirs.id_to_piece(i) for i in row] for row in wanted
    ]
    own = [theirs.pad_id(), theirs.eos_id(), theirs.unk_id(), theirs.bos_id()]
    if own == [0, 1, 2, 3]:
        assert ids.to_list() == wanted
        assert tokenizer.model_bytes == path.read_bytes()
    assert as_strings(tokenizer.decode(ids)) == [theirs.decode(row) for row in wanted]
    ended = tf.constant([[*row, 1, 5, 0, 0] for row in ids.to_list()[:1]])
    assert as_strings(tokenizer.decode(ended)) == [theirs.decode(wanted[0])]
    found = tokenizer.encode_with_offsets(texts[:3])
    assert found.ids.to_list() == ids.to_list()[:3]
    tokenizer.save(tmp_path / "saved")
    saved = load_tokenizer(tmp_path / "saved")
    assert (saved.kind, saved.fingerprint()) == (tokenizer.kind, tokenizer.fingerprint())
    more = read_sentencepiece(path, languages=["en", "de"])
    assert more.encode(texts).to_list() == ids.to_list()
    assert more.languages.ids == {"de": tokenizer.vocab_size, "en": tokenizer.vocab_size + 1}


def test_placeholders_and_dropout_need_a_model_with_bytes(own_model):
    path, theirs = own_model
    if theirs.piece_to_id("<0x00>") == theirs.unk_id():
        with pytest.raises(InputError, match=r"placeholders is 2, and .* has no byte tokens"):
            read_sentencepiece(path, placeholders=2)
        with pytest.raises(InputError, match=r"byte tokens|a (unigram|char|word) vocabulary"):
            BpeDropout(load_tokenizer(path), 0.1)
    else:
        tokenizer = read_sentencepiece(path, placeholders=2)
        assert len(tokenizer.placeholder_ids) == 2
        if tokenizer.kind == "bpe":
            found = BpeDropout(tokenizer, 0.0).encode(LINES).to_list()
            assert found == tokenizer.encode(LINES).to_list()


@pytest.mark.parametrize("content", [b"", b"a\t0\nb\t-1\n", b'{"version": "1.0"}', b"\x08\x01"])
def test_files_that_are_no_model_are_named(content, tmp_path):
    (tmp_path / "spm.model").write_bytes(content)
    with pytest.raises(
        InputError, match=r"spm.model is not a SentencePiece model \(.*\): give the"
    ):
        load_tokenizer(tmp_path / "spm.model")
    with pytest.raises(InputError, match=r"none.model cannot be read \(No such file"):
        read_sentencepiece(tmp_path / "none.model")
