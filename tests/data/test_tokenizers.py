"""Text → ids → text, in the graph and out of it."""

import pickle
import random
import re
import tempfile
import unicodedata

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from t2t_keras.data import base_tokenizer, load_tokenizer, train_tokenizer
from t2t_keras.data.base_tokenizer import encode_with_eos
from t2t_keras.data.language_template import LanguageTemplate
from t2t_keras.data.sentence_piece import SentencePieceTokenizer
from t2t_keras.errors import InputError

SIZES = {"bpe": 330, "unigram": 312, "wordpiece": 340}
every_kind = pytest.mark.parametrize("kind", SIZES)
TEXTS = [
    "the old man sees the house.",
    "Der süße Hund, 3 Jahre alt – „groß“ (sehr!) und/oder weiß?",
    "L'été où naît le cœur; c'est-à-dire: ça coûte 5 € !",
    "漢字 и кириллица 😀👩‍🚀 ﬁ ½ … x² \t tab \u00a0 nbsp",
    "<s> </s> <unk> <pad> ## ##ing <0x41> nul \x00 and\x00 bell\x07",
    "x" * 1000,
    "",
]
# Marks that compose, reorder and decompose, Hangul in parts, bytes, spaces of all kinds.
LETTERS = "the house ü\u0308\u0301\u0323  ▁😀é\u1100\u1161\u11a8가\u0344\ufb1dq.,\x00\n\u00a0"
characters = st.sampled_from(LETTERS) | st.characters(codec="utf-8", exclude_categories=["Cn"])
many_texts = given(texts=st.lists(st.text(characters, max_size=20), min_size=20, max_size=20))
some_examples = settings(max_examples=6, deadline=None, derandomize=True)


@pytest.fixture(scope="module", params=SIZES)
def tokenizer(request, lines):
    return train_tokenizer(request.param, lines, SIZES[request.param])


def decoded(tokenizer, texts):
    return [text.decode() for text in tokenizer.decode(tokenizer.encode(texts)).numpy()]


def normal_form(text):
    return re.sub(" +", " ", unicodedata.normalize("NFC", text)).strip(" ")


def test_text_comes_back_in_its_normal_form(tokenizer, lines):
    assert decoded(tokenizer, lines[:200]) == lines[:200]
    (tag,) = tokenizer.encode(["<BT>"]).to_list()  # the tag of back-translation

    @some_examples
    @many_texts
    def check(texts):
        texts = [text.replace("▁", "") for text in texts] + TEXTS
        ids = tokenizer.encode(texts)
        assert decoded(tokenizer, texts) == [normal_form(text) for text in texts]
        assert tokenizer.encode([normal_form(text) for text in texts]).to_list() == ids.to_list()
        assert ids.dtype == tf.int32 and ids.row_lengths()[-1] == 0
        values = ids.flat_values.numpy()
        assert values.min() > 3 and values.max() < tokenizer.vocab_size
        tagged = tokenizer.encode([f"<BT> {text}" for text in texts]).to_list()
        assert tagged == [[*tag, *row] for row in ids.to_list()]

    check()
    assert (tokenizer.pad_id, tokenizer.eos_id, tokenizer.unk_id, tokenizer.bos_id) == (0, 1, 2, 3)


def test_places_in_bad_bytes_are_those_in_what_python_reads(tokenizer):
    bad = [b"the \xff\xe2\x82 house \xed\xa0\x80\xf0\x9f old", b"\xc3", b"the \xff\xfe man"]
    read = [text.decode("utf-8", "replace") for text in bad]
    assert decoded(tokenizer, bad) == read
    of_bytes, of_text = (tokenizer.encode_with_offsets(texts) for texts in (bad, read))
    for one, other in zip(of_bytes, of_text, strict=True):
        assert one.to_list() == other.to_list()
    assert tokenizer.encode_with_offsets([]).starts.to_list() == []
    # Whatever a model says, also half a character, decodes to valid UTF-8.
    tokenizer.decode(tf.range(tokenizer.vocab_size)[None]).numpy()[0].decode()


# Lines whose NFC is another spelling: letters that NFC takes apart, marks in another order, jamo.
UNNORMALIZED = [
    "\u09b8\u09ae\u09df \u09ac\u09be\u09dc\u09bf",  # Bengali
    "\u095b\u092e\u0940\u0928 \u0932\u095c\u0915\u093e",  # Hindi
    unicodedata.normalize("NFD", "한국어 문장을 번역합니다"),
    "\u0628\u0651\u064e\u0651 \u0645\u0651\u064f",  # Arabic, shadda before the vowel
    "\u05e9\u05c1\u05bc\u05b8 \ufb2a\ufb4b",  # Hebrew
    "O\u0308l und gru\u0308n",
]


@every_kind
def test_training_lines_have_the_tokens_of_their_normal_form_where_they_are_written(kind):
    size = {"bpe": 360, "unigram": 310, "wordpiece": 360}[kind]
    tokenizer = train_tokenizer(kind, UNNORMALIZED * 20, size)
    normalized = [unicodedata.normalize("NFC", text) for text in UNNORMALIZED]
    assert all(map(str.__ne__, normalized, UNNORMALIZED))
    ids = tokenizer.encode(UNNORMALIZED)
    assert ids.to_list() == tokenizer.encode(normalized).to_list()
    pieces = tokenizer.pieces(ids).flat_values.numpy().tolist()
    assert not [piece for piece in pieces if re.fullmatch(b"<0x..>", piece)]
    for text, located in located_pieces(tokenizer, UNNORMALIZED):
        covered = set()
        for piece, begin, end in located:
            surface = piece.removeprefix("##").strip("▁")
            assert surface in unicodedata.normalize("NFC", text[begin:end])
            covered.update(range(begin, end))
        assert {i for i, character in enumerate(text) if character != " "} <= covered


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_a_vocabulary_of_an_earlier_version_normalizes_as_before(kind, lines, monkeypatch):
    """Its file names no normalization: compositions alone are known to its op."""
    monkeypatch.setattr("t2t_keras.data.sentence_piece._NORMALIZATION", "user_defined")
    model = train_tokenizer(kind, lines, SIZES[kind]).model_bytes
    monkeypatch.undo()
    earlier, jamo = SentencePieceTokenizer(kind, model), unicodedata.normalize("NFD", "가각")
    assert decoded(earlier, ["gru\u0308n", jamo]) == ["grün", jamo]
    offsets = earlier.encode_with_offsets([f"a {jamo}"])
    assert offsets.ids.to_list() == earlier.encode([f"a {jamo}"]).to_list()


@pytest.mark.parametrize(("kind", "size"), [("bpe", 400), ("unigram", 400), ("bpe", 2000)])
def test_scripts_of_thousands_of_characters_have_vocabularies_of_usual_sizes(kind, size):
    """Lines without spaces, of words of two characters, some of them much more frequent."""
    rng = random.Random(0)
    words = ["".join(chr(rng.randrange(0x4E00, 0x4E00 + 3000)) for _ in "12") for _ in range(2000)]
    weights = [1 / rank for rank in range(1, 2001)]
    lines = ["".join(rng.choices(words, weights, k=12)) + "。" for _ in range(600)]
    lines += [f"the {line[:4]} word" for line in lines[:200]]
    learned = train_tokenizer(kind, lines, size)
    assert learned.vocab_size == size
    assert decoded(learned, lines) == lines
    pieces = [piece.decode() for piece in learned.pieces(tf.range(260, size)).numpy()]
    # Frequent characters and words of several are tokens; what is rare is bytes.
    assert sum(len(piece.strip("▁")) > 1 for piece in pieces) > 20
    assert sum(len(piece) == 1 for piece in pieces) > 50
    assert not [piece for piece in pieces if "\t" in piece.strip("\t")]
    tokens = learned.encode(lines).flat_values.shape[0]
    assert tokens < sum(map(len, lines)) * (2 if size > 400 else 3)


@every_kind
def test_long_lines_count(kind, lines):
    expected = train_tokenizer(kind, lines, SIZES[kind])
    found = train_tokenizer(kind, [" ".join(lines)], SIZES[kind])
    ids = tf.range(260, SIZES[kind])
    shared = set(found.pieces(ids).numpy()) & set(expected.pieces(ids).numpy())
    assert len(shared) > 0.8 * len(ids)
    if kind != "wordpiece":  # whose words end at spaces
        rng = random.Random(0)
        words = ["".join(rng.choices("abcdefgh", k=12)) for _ in range(20)]
        learned = train_tokenizer(kind, ["".join(rng.choices(words, k=1000))], 280)
        assert learned.encode(words).flat_values.shape[0] < 0.9 * len("".join(words))


# Unicode's white space and ignorable characters, and control characters.
BLANK = ["\u00a0", "\u3000", "\u2003 ", "\x0b", "\u200b", "\ufeff", "\x00", "\u3164\ufe0f", " \t\r"]


def test_a_blank_text_has_no_tokens_but_the_end(tokenizer):
    assert encode_with_eos(BLANK, tokenizer).to_list() == [[1]] * len(BLANK)
    seen = ["\u2800.", "۝", "\u3000x"]
    assert all(len(ids) > 1 for ids in encode_with_eos(seen, tokenizer).to_list())


@every_kind
@pytest.mark.parametrize("text", [[], BLANK, [b"\xff\xfe"]])
def test_no_text_no_vocabulary(kind, text):
    with pytest.raises(InputError, match="no text"):
        train_tokenizer(kind, text, 300)


def test_decode_passes_over_padding_and_stops_at_the_end(tokenizer):
    house, man = (row.numpy().tolist() for row in tokenizer.encode(["the house", "the man"]))
    row = [3, *house, 1, *man, 1]
    ids = tf.constant([[*row, 0, 0], [0, *row, 0], [1] * (len(row) + 2)])
    assert tokenizer.decode(ids).numpy().tolist() == [b"the house", b"the house", b""]
    assert tokenizer.decode(tf.RaggedTensor.from_tensor(ids)).numpy()[0] == b"the house"


def test_pieces_keep_the_shape(tokenizer):
    ids = tokenizer.encode(["the house", "a"])
    ragged, dense = tokenizer.pieces(ids), tokenizer.pieces(ids.to_tensor())
    assert ragged.to_tensor("").numpy().tolist() == dense.numpy().tolist()
    assert "".join(piece.decode().removeprefix("##") for piece in dense.numpy()[0]) == "▁the▁house"
    assert dense.numpy()[1, -1] == b""


def test_the_same_lines_give_the_same_bytes(tokenizer, lines, capfd):
    kind, size = tokenizer.kind, SIZES[tokenizer.kind]
    again = train_tokenizer(kind, iter(lines), size)
    assert again.model_bytes == tokenizer.model_bytes
    assert tempfile.gettempdir().encode() not in tokenizer.model_bytes
    mixed = [*(line.encode() + b"\r\n" for line in lines), b"\xff\xff"]
    again = train_tokenizer(kind, mixed, size)
    assert again.encode(TEXTS).to_list() == tokenizer.encode(TEXTS).to_list()
    assert "LOG(INFO)" not in capfd.readouterr().err
    odd, same = ([f"{line[:5]}{c}{line[5:]}" for line in lines] for c in ("\ud800", "\ufffd"))
    assert (
        train_tokenizer(kind, odd, 350).model_bytes == train_tokenizer(kind, same, 350).model_bytes
    )
    pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy()
    assert len(set(pieces)) == tokenizer.vocab_size == size


def test_a_saved_tokenizer_comes_back(tokenizer, tmp_path):
    folder = tmp_path / "new" / "folder"
    tokenizer.save(folder)
    loaded = load_tokenizer(folder)
    assert (loaded.kind, loaded.vocab_size) == (tokenizer.kind, tokenizer.vocab_size)
    assert loaded.encode(TEXTS).to_list() == tokenizer.encode(TEXTS).to_list()
    assert len(list(folder.iterdir())) == 2
    tokenizer.save(folder)  # replaces its own files
    with pytest.raises(InputError, match="holds no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "BPE"}}')  # Hugging Face's
    with pytest.raises(InputError, match=r"tokenizer.json is another program's"):
        tokenizer.save(tmp_path)


RESERVED = {
    "languages": ({"languages": ["fr", "en", "de"]}, ["<2de>", "<2en>", "<2fr>"]),
    "placeholders": ({"placeholders": 3}, ["<ph1>", "<ph2>", "<ph3>"]),
    "both": ({"languages": ["de", "en"], "placeholders": 2}, ["<2de>", "<2en>", "<ph1>", "<ph2>"]),
}


@every_kind
@pytest.mark.parametrize("reserved", RESERVED)
def test_a_vocabulary_ends_with_reserved_tokens_and_is_otherwise_the_same(
    kind, reserved, lines, tmp_path
):
    (options, added), size = RESERVED[reserved], SIZES[kind]
    first, text = size - len(added), "the old man"
    tokenizer, plain = (
        train_tokenizer(kind, lines, size, **options),
        train_tokenizer(kind, lines, first),
    )
    pieces = [piece.decode() for piece in tokenizer.pieces(tf.range(size)).numpy()]
    assert pieces == [*(p.decode() for p in plain.pieces(tf.range(first)).numpy()), *added]
    ids = {code[2:-1]: first + i for i, code in enumerate(added) if code.startswith("<2")}
    assert tokenizer.languages == (LanguageTemplate(ids, source="target") if ids else None)
    assert tokenizer.placeholder_ids == range(first + len(ids), size)
    texts = [*lines[:20], *TEXTS, " <2de> <2en>x", "<ph1> <ph2>x", "de", "\ue001", text]
    assert tokenizer.encode(texts).to_list() == plain.encode(texts).to_list()
    assert tokenizer.fingerprint() != plain.fingerprint()
    [row] = tokenizer.encode([text]).to_list()
    row = [size - 1, *row[:2], first, *row[2:], first + 1, 1, 0]
    assert tokenizer.decode([row]).numpy().tolist() == [text.encode()]
    tokenizer.save(tmp_path)
    for copy in (load_tokenizer(tmp_path), pickle.loads(pickle.dumps(tokenizer))):
        for name in ("languages", "placeholder_ids", "vocab_size"):
            assert getattr(copy, name) == getattr(tokenizer, name)
        assert copy.fingerprint() == tokenizer.fingerprint()


# Offsets ------------------------------------------------------------------------------------------


def located_pieces(tokenizer, texts):
    """Yields each text and a list of its (piece, begin, end)."""
    found = tokenizer.encode_with_offsets(texts)
    assert found.ids.to_list() == tokenizer.encode(texts).to_list()
    rows = zip(*(x.to_list() for x in (tokenizer.pieces(found.ids), *found[1:])), strict=True)
    for text, row in zip(texts, rows, strict=True):
        yield text, [(piece.decode(), *place) for piece, *place in zip(*row, strict=True)]


def test_pieces_say_which_characters_of_the_text_they_are(tokenizer):
    @some_examples
    @many_texts
    def check(texts):
        for text, pieces in located_pieces(tokenizer, [*TEXTS, *texts]):
            covered = set()
            for piece, begin, end in pieces:
                assert 0 <= begin < end <= len(text)
                covered.update(range(begin, end))
                surface = piece.removeprefix("##").strip("▁")
                part = unicodedata.normalize("NFC", text[begin:end]).strip(" ▁")
                if surface and not re.fullmatch("<0x..>", piece):
                    assert part == surface and text[begin] != " "
                elif not surface:  # spaces, or the first piece, which stands for missing ones
                    assert not part or not text[:begin].strip(" ▁")
            assert all(text[i] in " ▁" for i in range(len(text)) if i not in covered)
            assert sorted(pieces, key=lambda piece: piece[1:]) == pieces

    check()
    ((_, pieces),) = located_pieces(tokenizer, ["a 😀\u0301 e\u0316\u0308 b"])
    places = {(begin, end) for piece, begin, end in pieces if piece.startswith("<0x")}
    assert places >= {(2, 3), (3, 4)} and all(end - begin <= 3 for begin, end in places)


def test_tokens_are_where_their_joined_text_has_them(tokenizer, monkeypatch):
    monkeypatch.setattr(base_tokenizer, "_MAX_PREFIX_TOKENS", 1000)  # several parts
    rng = random.Random(1)
    letters = "the house ü  😀é\u1100가q.,\x00\n"
    short = [text for text in TEXTS if len(text) < 100]
    texts = ["", *short, *("".join(rng.choices(letters, k=rng.randrange(14))) for _ in range(60))]
    texts = tokenizer.decode(tokenizer.encode(texts))
    ids = tokenizer.encode(texts)
    ended = tf.concat([ids, tf.fill([len(texts), 1], 1), tf.fill([len(texts), 1], 7)], axis=1)
    found, *offsets = tokenizer.decode_with_offsets(ended.to_tensor())
    assert found.numpy().tolist() == texts.numpy().tolist()
    starts, ends = (x.numpy() for x in offsets)
    for row, (_, pieces) in enumerate(located_pieces(tokenizer, texts.numpy().tolist())):
        for i, (piece, begin, end) in enumerate(pieces):
            # The bytes of a character may be those of a space.
            if piece.removeprefix("##").strip("▁") and not re.fullmatch("<0x..>", piece):
                assert (starts[row, i], ends[row, i]) == (begin, end), (texts[row], piece)
        assert not ends[row, len(pieces) :].any()


def test_bytes_of_no_character_are_within_the_joined_text(tokenizer):
    pieces = tokenizer.pieces(tf.range(tokenizer.vocab_size)).numpy().tolist()
    byte = {int(piece[3:5], 16): i for i, piece in enumerate(pieces) if piece.startswith(b"<0x")}
    (word,) = tokenizer.encode(["the"]).to_list()
    rows = [[byte[b] for b in text] for text in (b"\xe2\x82\xac", b"\xe2\x82", b"\xff\xf0\x9f")]
    ids = [[*word, *row, *word] for row in rows]
    ids.append([*word, 0, 3, 2, *word])  # padding, begin and unknown amid a text
    texts, starts, ends = tokenizer.decode_with_offsets(tf.ragged.constant(ids).to_tensor())
    for text, row_ids, begins, stops in zip(texts.numpy(), ids, starts, ends, strict=True):
        count = len(row_ids)
        assert np.all(begins[:count] >= 0) and np.all(begins[:count] <= stops[:count])
        assert stops[count - 1] == len(text.decode())
        assert text.decode()[begins[0] : stops[len(word) - 1]] == "the"
    for of_bytes, place in ((starts, 3), (ends, 4)):
        assert of_bytes[0, len(word) : len(word) + 3].numpy().tolist() == [place] * 3
    assert tokenizer.decode_with_offsets(tf.zeros([0, 0], tf.int32))[1].shape == [0, 0]


# Graphs and limits --------------------------------------------------------------------------------


@every_kind
def test_a_vocabulary_beyond_the_text_names_the_largest_possible(kind, lines):
    with pytest.raises(InputError, match=r"vocab_size 9000 .* largest possible is \d+") as error:
        train_tokenizer(kind, lines, 9000)
    limit = int(str(error.value).split()[-1])
    assert train_tokenizer(kind, lines, limit).vocab_size == limit
    with pytest.raises(InputError, match=r"vocab_size 100 .* smallest possible is"):
        train_tokenizer(kind, lines, 100)


def test_words_too_long_to_learn_from_leave_the_characters():
    with pytest.raises(InputError, match=r"largest possible is 263$"):
        train_tokenizer("wordpiece", ["x" * 100], 400)
    tokenizer = train_tokenizer("wordpiece", ["x" * 100], 263)
    assert tokenizer.pieces([260, 261, 262]).numpy().tolist() == [b"x", "▁".encode(), b"##x"]
    with pytest.raises(InputError, match=r"'morse'.*bpe, unigram, wordpiece"):
        train_tokenizer("morse", ["text"], 300)
    for size in (300.5, "300", None, 0):
        with pytest.raises(InputError, match=f"vocab_size is {size!r}: give a whole number"):
            train_tokenizer("bpe", ["text"], size)


def test_seeds_set_later_do_no_harm(tokenizer, lines):
    encode, lines = tf.function(tokenizer.encode), lines[:50]
    before = encode(tf.constant(lines)).to_list()
    keras.utils.set_random_seed(0)
    assert encode(tf.constant(lines)).to_list() == before == tokenizer.encode(lines).to_list()
