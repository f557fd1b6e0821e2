"""SentencePiece tokenizers: byte-pair encoding and unigram (paper section 5.1).

The graph uses the classic SentencePiece op of tensorflow-text, which model servers link. Training
uses the `sentencepiece` package with byte fallback and with Unicode's canonical composition (NFC)
as its only normalization.
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
    offsets_in_characters,
    valid_utf8,
)
from t2t_keras.errors import InputError
from t2t_keras.keras_compat import share_sentencepiece_resource


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model inside the graph.

    Args:
        kind: `bpe` or `unigram`.
        model: bytes of a SentencePiece model with the special ids of `base_tokenizer.py`.
    """

    kinds = ("bpe", "unigram")
    model_file = "sentencepiece.model"

    def __init__(self, kind, model):
        sentencepiece = tf_text.SentencepieceTokenizer(model, out_type=tf.int32)
        share_sentencepiece_resource(sentencepiece, model)
        ids = tf.range(sentencepiece.vocab_size())
        super().__init__(kind, model, sentencepiece.id_to_string(ids))
        self._sentencepiece = sentencepiece

    def encode(self, texts):
        return self._sentencepiece.tokenize(valid_utf8(texts))

    def encode_with_offsets(self, texts):
        texts = valid_utf8(texts)
        ids, starts, ends = self._sentencepiece.tokenize_with_offsets(texts)
        return offsets_in_characters(texts, ids, starts.values, ends.values)

    def _join(self, ids):
        return self._sentencepiece.detokenize(ids)

    @classmethod
    def train(cls, kind, lines, vocab_size):
        """Learns a model from a list of str; see `train_tokenizer`.

        SentencePiece itself skips lines beyond 4,192 bytes.
        """
        # Imported here: only training needs the package.
        import sentencepiece  # noqa: PLC0415

        model = io.BytesIO()
        with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="ascii") as rules:
            rules.write(_composition_rules())
            rules.flush()
            try:
                sentencepiece.SentencePieceTrainer.train(
                    sentence_iterator=iter(lines),
                    model_writer=model,
                    model_type=kind,
                    vocab_size=vocab_size,
                    character_coverage=_coverage(lines, max(256, vocab_size // 16)),
                    byte_fallback=True,
                    # Only equivalent spellings are unified; NFKC, the default, would rewrite
                    # "½" or "…" in references and translations alike.
                    normalization_rule_tsv=rules.name,
                    pad_id=PAD_ID,
                    eos_id=EOS_ID,
                    unk_id=UNK_ID,
                    bos_id=BOS_ID,
                    num_threads=16,  # the sums of unigram depend on the number of threads
                    minloglevel=2,
                )
            except RuntimeError as error:
                raise _explained(error, vocab_size) from error
        return cls(kind, _without_rule_path(model.getvalue()))


def _without_rule_path(model):
    """Returns a model without the path of the rules it was trained with, a temporary file.

    The model holds the rules themselves in compiled form. Without the path, the same lines give the
    same bytes. The two message types are declared here because `sentencepiece_model_pb2` of the
    `sentencepiece` package needs a newer protobuf than TensorFlow 2.21 has.
    """
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="rule_path.proto")
    file.message_type.add(name="NormalizerSpec").field.add(
        name="normalization_rule_tsv", number=6, label=field.LABEL_OPTIONAL, type=field.TYPE_STRING
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
    message_class = message_factory.GetMessageClass(pool.FindMessageTypeByName("ModelProto"))
    message = message_class.FromString(model)  # keeps all fields that are not declared
    message.normalizer_spec.ClearField("normalization_rule_tsv")
    return message.SerializeToString(deterministic=True)


def _coverage(lines, num_characters):
    """Returns the fraction of the text that its `num_characters` most frequent ones make up."""
    counts = collections.Counter()
    for line in lines:
        counts.update(line)
    return sum(count for _, count in counts.most_common(num_characters)) / counts.total()


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
    return InputError(f"SentencePiece could not learn a vocabulary of {vocab_size} ({message})")
