"""SentencePiece tokenizers: byte-pair encoding and unigram (paper section 5.1).

The graph uses the classic SentencePiece op of tensorflow-text, which model servers link, after
Unicode's canonical composition (NFC). Training uses the `sentencepiece` package with byte fallback:
a character is in the vocabulary or, if it is rare in a large alphabet, becomes tokens of its bytes.
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
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from t2t_keras.data.base_tokenizer import (
    BOS_ID,
    EOS_ID,
    PAD_ID,
    UNK_ID,
    Tokenizer,
    normalize_with_offsets,
    offsets_in_characters,
    valid_utf8,
)
from t2t_keras.data.ragged import rows_of
from t2t_keras.errors import InputError
from t2t_keras.keras_compat import share_sentencepiece_resource

_NORMALIZATION = "nfc"  # name in the model: texts are normalized before they reach the op
_MAX_LINE = 1048  # characters; SentencePiece skips lines beyond 4,192 bytes
_COVERAGE = 0.9995  # fraction of the text, usual for scripts of thousands of characters
_SMALL_ALPHABET = 256
_BREAK = "\t"  # SentencePiece learns no token across it
_UNLEARNABLE = "\x00\u2585" + _BREAK  # SentencePiece drops NUL, and a line with the other


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model inside the graph.

    Args:
        kind: `bpe` or `unigram`.
        model: bytes of a SentencePiece model with the special ids of `base_tokenizer.py`. Texts are
            normalized to NFC first if the model says so. Models of an earlier version do not say
            it: they compose letters with their marks and keep other spellings.
        languages: `LanguageTemplate` or None.
        placeholders: int, tokens after all others.
    """

    kinds = ("bpe", "unigram")
    model_file = "sentencepiece.model"

    def __init__(self, kind, model, languages=None, placeholders=0):
        sentencepiece = tf_text.SentencepieceTokenizer(model, out_type=tf.int32)
        share_sentencepiece_resource(sentencepiece, model)
        ids = tf.range(sentencepiece.vocab_size())
        super().__init__(kind, model, sentencepiece.id_to_string(ids), languages, placeholders)
        self._sentencepiece = sentencepiece
        self._normalizes = _parse(model).normalizer_spec.name == _NORMALIZATION

    def encode(self, texts):
        texts = valid_utf8(texts)
        if self._normalizes:
            texts = tf_text.normalize_utf8(texts, "NFC")
        return self._sentencepiece.tokenize(texts)

    def encode_with_offsets(self, texts):
        texts = valid_utf8(texts)
        if not self._normalizes:
            ids, starts, ends = self._sentencepiece.tokenize_with_offsets(texts)
            return offsets_in_characters(texts, ids, starts.values, ends.values)
        normalized, source_offsets = normalize_with_offsets(texts)
        ids, starts, ends = self._sentencepiece.tokenize_with_offsets(normalized)
        return offsets_in_characters(
            texts, ids, *source_offsets(rows_of(ids), starts.values, ends.values)
        )

    def _join(self, ids):
        return self._sentencepiece.detokenize(ids)

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

    The needed fields of its two message types are declared here, because
    `sentencepiece_model_pb2` of the `sentencepiece` package needs a newer protobuf than TensorFlow
    2.21 uses. Fields that are not declared are kept.
    """
    return _message_class().FromString(model)


@functools.cache
def _message_class():
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="normalizer.proto")
    normalizer = file.message_type.add(name="NormalizerSpec")
    for number, name in ((1, "name"), (6, "normalization_rule_tsv")):
        normalizer.field.add(
            name=name, number=number, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING
        )
    file.message_type.add(name="ModelProto").field.add(
        name="normalizer_spec",
        number=3,
        label=field.LABEL_OPTIONAL,
        type=field.TYPE_MESSAGE,
        type_name=".NormalizerSpec",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("ModelProto"))


def _marked(model):
    """Returns a new model that contains the name of its normalization.

    The model holds the rules themselves in compiled form. The path of the rules, a temporary file,
    is left out, so that the same lines give the same bytes.
    """
    message = _parse(model)
    message.normalizer_spec.ClearField("normalization_rule_tsv")
    message.normalizer_spec.name = _NORMALIZATION
    return message.SerializeToString(deterministic=True)


@functools.cache
def _composition_rules():
    """Returns Unicode's canonical composition (NFC) as SentencePiece rules, a str.

    Hangul syllables are left out.
    """
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
