"""SentencePiece tokenizers: byte-pair encoding and unigram (paper section 5.1).

The graph uses the classic SentencePiece op of tensorflow-text, which model servers link, after
Unicode's canonical composition (NFC). Training uses the `sentencepiece` package with byte fallback:
a character is in the vocabulary or, if it is rare in a large alphabet, becomes tokens of its bytes.
`SentencePieceTokenizer.read` takes models that were learned elsewhere.
"""

import collections
import functools
import io
import itertools
import re
import sys
import tempfile
import unicodedata

import tensorflow as tf
import tensorflow_text as tf_text
from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from t2t_keras.data.base_tokenizer import (
    BOS_ID,
    EOS_ID,
    FIRST_WORD,
    PAD_ID,
    SPECIAL,
    UNK_ID,
    Tokenizer,
    normalize_with_offsets,
    offsets_in_characters,
    valid_batch,
)
from t2t_keras.errors import InputError
from t2t_keras.keras_compat import share_sentencepiece_resource

_NORMALIZATION = "nfc"  # name in the model: texts are normalized before they reach the op
_MAX_LINE = 1048  # characters; SentencePiece skips lines beyond 4,192 bytes
_COVERAGE = 0.9995  # fraction of the text, usual for scripts of thousands of characters
_SMALL_ALPHABET = 256
_NORMAL, _UNKNOWN, _CONTROL = 1, 2, 3  # types of pieces
_BREAK = "\t"  # SentencePiece learns no token across it
_UNLEARNABLE = "\x00\u2585" + _BREAK  # SentencePiece drops NUL, and a line with the other


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model, with the special ids of `base_tokenizer.py`, inside the graph.

    Texts are normalized to NFC first if the model says so. Models of an earlier version do not say
    it: they compose letters with their marks and keep other spellings.
    """

    kinds = ("bpe", "unigram", "word", "char")
    model_file = "sentencepiece.model"

    def __init__(self, kind, model, languages=None, placeholders=0):
        sentencepiece = tf_text.SentencepieceTokenizer(model, out_type=tf.int32)
        share_sentencepiece_resource(sentencepiece, model)
        ids = tf.range(sentencepiece.vocab_size())
        super().__init__(kind, model, sentencepiece.id_to_string(ids), languages, placeholders)
        self._sentencepiece = sentencepiece
        self._normalizes = _parse(model).normalizer_spec.name == _NORMALIZATION

    def encode(self, texts):
        texts = valid_batch(texts)
        if self._normalizes:
            texts = tf_text.normalize_utf8(texts, "NFC")
        return self._sentencepiece.tokenize(texts)

    def encode_with_offsets(self, texts):
        texts = valid_batch(texts)
        if not self._normalizes:
            ids, starts, ends = self._sentencepiece.tokenize_with_offsets(texts)
            return offsets_in_characters(texts, ids, starts.values, ends.values)
        normalized, locate = normalize_with_offsets(texts)
        ids, starts, ends = self._sentencepiece.tokenize_with_offsets(normalized)
        return locate(ids, starts.values, ends.values)

    def _join(self, ids):
        return self._sentencepiece.detokenize(ids)

    @classmethod
    def read(cls, content: bytes) -> "SentencePieceTokenizer":
        """Returns the tokenizer of a `.model` file's bytes, written by SentencePiece's own trainer.

        It splits texts into the same pieces. Padding, end, unknown and start have the ids 0 to 3
        here. In a model with these ids all ids are its own; in other models the other pieces follow
        in the order of the model. A missing special token is added.

        Raises:
            ValueError: if it is not such a model.
        """
        try:
            model = _parse(content)
        except message.DecodeError as error:
            raise ValueError("it is not in SentencePiece's format") from error
        kind = dict(enumerate(("unigram", "bpe", "word", "char"), start=1)).get(
            model.trainer_spec.model_type
        )
        if kind is None or sum(piece.type == _UNKNOWN for piece in model.pieces) != 1:
            raise ValueError("it has no pieces, or is of an unknown type")
        if _move_special_first(model):
            content = model.SerializeToString(deterministic=True)
        return cls(kind, content)

    @property
    def has_bytes(self) -> bool:
        """Whether the first ids after the special ones are the 256 bytes."""
        first = self.pieces(tf.range(len(SPECIAL), min(FIRST_WORD, self.vocab_size))).numpy()
        return [piece.decode() for piece in first] == [f"<0x{byte:02X}>" for byte in range(256)]

    def learned_ids(self) -> list[int]:
        """Returns the ids of learned pieces: no special tokens, bytes or symbols of a user."""
        pieces = _parse(self.model_bytes).pieces
        return [id_ for id_, piece in enumerate(pieces) if piece.type == _NORMAL]

    @classmethod
    def train(cls, kind, lines, vocab_size):
        """Learns a model from a list of str in NFC; see `train_tokenizer`."""
        counts = _count_characters(lines)
        size = _alphabet_size(counts, vocab_size)
        while True:
            alphabet = [character for character, _ in counts.most_common(size)]
            breaks = dict.fromkeys(map(ord, [*(counts.keys() - alphabet), *_UNLEARNABLE]), _BREAK)
            try:
                return cls(kind, _learn(kind, lines, breaks, vocab_size))
            except RuntimeError as error:
                limit = re.search(r"value <= (\d+)", str(error))
                if not limit or size >= len(counts):
                    raise _explained(error, vocab_size) from error
                # There are too few longer tokens, and each further character is a token.
                size += vocab_size - int(limit[1])


def _learn(kind, lines, breaks, vocab_size):
    """Returns the bytes of a trained model.

    The model has no pieces for the characters of `breaks`, {code point: replacement}: it encodes
    them by their bytes.
    """
    # Imported here: only training needs the package.
    import sentencepiece  # noqa: PLC0415

    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="ascii") as rules:
        rules.write(_composition_rules())
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(part.translate(breaks) for line in lines for part in _divide(line)),
            model_writer=model,
            model_type=kind,
            vocab_size=vocab_size,
            character_coverage=1.0,  # of those without a break
            byte_fallback=True,
            # Only equivalent spellings are unified; NFKC, the default, would rewrite "½" or "…" in
            # references and translations alike. The graph normalizes before; the rules are for
            # other programs that read the model.
            normalization_rule_tsv=rules.name,
            pad_id=PAD_ID,
            eos_id=EOS_ID,
            unk_id=UNK_ID,
            bos_id=BOS_ID,
            num_threads=16,  # the sums of unigram depend on the number of threads
            minloglevel=2,
        )
    return _marked(model.getvalue())


def _count_characters(lines):
    """Returns how often lines have each character that a model can have, a Counter."""
    counts = collections.Counter({" ": len(lines)})  # one is put before each line
    for line in lines:
        counts.update(line)
    counts[" "] += counts.pop("▁", 0)  # a space as SentencePiece writes it
    for character in _UNLEARNABLE:
        del counts[character]
    return counts


def _alphabet_size(counts, vocab_size):
    """Returns how many of the most frequent characters get their own id.

    Up to 256 characters, all do. In larger alphabets, such as Chinese, enough characters to cover
    the text do, but at most half of the ids; the other ids are longer tokens. On
    40,000 lines of Chinese manual pages and 2,000 ids, half gives 0.70 tokens a character, a
    quarter 0.81, three quarters 0.74.
    """
    if len(counts) <= _SMALL_ALPHABET:
        return len(counts)
    wanted = _COVERAGE * counts.total()
    covered = itertools.accumulate(sorted(counts.values(), reverse=True))
    covering = sum(total < wanted for total in covered)
    room = vocab_size - 256 - len((PAD_ID, EOS_ID, UNK_ID, BOS_ID, _BREAK))
    return min(max(_SMALL_ALPHABET, vocab_size // 16, covering), max(room // 2, 1))


def _divide(line):
    """Yields the parts of a line, none longer than `_MAX_LINE`, divided at spaces if possible."""
    start = 0
    while len(line) - start > _MAX_LINE:
        end = line.rfind(" ", start + 1, start + _MAX_LINE)
        end = end if end > 0 else start + _MAX_LINE
        yield line[start:end]
        start = end
    yield line[start:]


def _parse(model):
    """Returns the bytes of a SentencePiece model as a message.

    The needed fields of its message types are declared here, because
    `sentencepiece_model_pb2` of the `sentencepiece` package needs a newer protobuf than TensorFlow
    2.21 uses. Fields that are not declared are kept.
    """
    return _message_class().FromString(model)


_TYPES = descriptor_pb2.FieldDescriptorProto
_DEFAULTS = [("unk", 0, "<unk>"), ("bos", 1, "<s>"), ("eos", 2, "</s>"), ("pad", -1, "<pad>")]
_PARTS = {"pieces": "Piece", "trainer_spec": "TrainerSpec", "normalizer_spec": "NormalizerSpec"}
_FIELDS = {
    "Piece": [(1, "piece", "STRING", ""), (2, "score", "FLOAT", ""), (3, "type", "INT32", "1")],
    "TrainerSpec": [
        (3, "model_type", "INT32", "1"),
        (4, "vocab_size", "INT32", ""),
        *((40 + i, f"{name}_id", "INT32", str(id_)) for i, (name, id_, _) in enumerate(_DEFAULTS)),
        *((45 + i, f"{name}_piece", "STRING", text) for i, (name, _, text) in enumerate(_DEFAULTS)),
    ],
    "NormalizerSpec": [(1, "name", "STRING", ""), (6, "normalization_rule_tsv", "STRING", "")],
}
"""{message: [(number, name, type, default)]}"""


@functools.cache
def _message_class():
    file = descriptor_pb2.FileDescriptorProto(name="sentencepiece_of_t2t_keras.proto")
    for name, fields in _FIELDS.items():
        declared = file.message_type.add(name=name)
        for number, field, kind, default in fields:
            added = declared.field.add(name=field, number=number, label=_TYPES.LABEL_OPTIONAL)
            added.type = getattr(_TYPES, f"TYPE_{kind}")
            if default:
                added.default_value = default
    model = file.message_type.add(name="ModelProto")
    for number, (field, name) in enumerate(_PARTS.items(), start=1):
        label = _TYPES.LABEL_REPEATED if field == "pieces" else _TYPES.LABEL_OPTIONAL
        kind = _TYPES.TYPE_MESSAGE
        model.field.add(name=field, number=number, label=label, type=kind, type_name=f".{name}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("ModelProto"))


def _move_special_first(model):
    """Gives the special tokens of a model the ids 0 to 3; returns whether this changes the model.

    As in SentencePiece, the unknown token is known by its type, the others by their names.
    """
    spec, old = model.trainer_spec, list(model.pieces)
    places = {piece.piece: i for i, piece in enumerate(old)}
    tokens = []
    for name, id_ in (("pad", PAD_ID), ("eos", EOS_ID), ("unk", UNK_ID), ("bos", BOS_ID)):
        text = getattr(spec, f"{name}_piece")
        place = places.get(text)
        if name == "unk":
            place = next(i for i, piece in enumerate(old) if piece.type == _UNKNOWN)
        elif place is None or old[place].type != _CONTROL:
            while text in places:  # an ordinary piece has the name
                text = f"<{text}>"
            place = None
            setattr(spec, f"{name}_piece", text)
        setattr(spec, f"{name}_id", id_)
        tokens.append((place, text))
    taken = [place for place, _ in tokens]
    if taken == list(range(len(taken))):
        return False
    special = [type(old[0])(piece=text, score=0, type=_CONTROL) for _, text in tokens]
    special = [new if i is None else old[i] for i, new in zip(taken, special, strict=True)]
    rest = [piece for i, piece in enumerate(old) if i not in taken]
    pieces = [type(piece).FromString(piece.SerializeToString()) for piece in (*special, *rest)]
    del model.pieces[:]
    model.pieces.extend(pieces)
    spec.vocab_size = len(pieces)
    return True


def _marked(model):
    """Returns a new model that contains the name of its normalization, and not the path of the
    rules, a temporary file, so that the same lines give the same bytes.
    """
    marked = _parse(model)
    marked.normalizer_spec.ClearField("normalization_rule_tsv")
    marked.normalizer_spec.name = _NORMALIZATION
    return marked.SerializeToString(deterministic=True)


@functools.cache
def _composition_rules():
    """Returns Unicode's canonical composition as SentencePiece rules, without Hangul syllables."""
    rules = {}
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        base, *marks = unicodedata.normalize("NFD", character)
        if not marks or unicodedata.normalize("NFC", character) != character:
            continue
        for order in itertools.permutations(marks):
            parts = base + "".join(order)
            if unicodedata.normalize("NFC", parts) == character:
                for cut in range(1, len(parts)):
                    rules[unicodedata.normalize("NFC", parts[:cut]) + parts[cut:]] = character

    def codes(text):
        return " ".join(f"{ord(character):X}" for character in text)

    hangul = range(0xAC00, 0xD7A4)
    return "".join(
        f"{codes(parts)}\t{codes(whole)}\n"
        for parts, whole in rules.items()
        if parts != whole and ord(whole) not in hangul
    )


def _explained(error, vocab_size):
    """Returns the `InputError` for a RuntimeError of SentencePiece's trainer."""
    message = str(error)
    if limit := re.search(r"value <= (\d+)", message):
        return InputError(
            f"vocab_size {vocab_size} is more than the text supports; the largest possible is "
            f"{limit[1]}"
        )
    if limit := re.search(r"(\d+) vs (\d+)", message):
        return InputError(
            f"vocab_size {vocab_size} cannot hold the 256 bytes and the characters of the text; "
            f"the smallest possible is {limit[2]}"
        )
    return InputError(
        f"SentencePiece could not learn a vocabulary of {vocab_size} ({message}): give another "
        "size or more text"
    )
