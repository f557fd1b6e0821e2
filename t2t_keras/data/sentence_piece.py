"""SentencePiece vocabularies: byte-pair encoding and unigram (paper section 5.1).

The graph uses the classic SentencePiece op of tensorflow-text, which model servers link.
"""

import collections
import functools
import hashlib
import io
import itertools
import re
import sys
import tempfile
import unicodedata

import tensorflow as tf
import tensorflow_text as tf_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from t2t_keras.data.ids import END_ID, PAD_ID, START_ID, UNKNOWN_ID
from t2t_keras.data.offsets import located, valid_utf8
from t2t_keras.data.tokenizers import Tokenizer
from t2t_keras.errors import InputError


class SentencePieceTokenizer(Tokenizer):
    """A SentencePiece model inside the graph.

    Args:
        kind: `bpe` or `unigram`.
        model: bytes of a SentencePiece model with the ids of `ids.py`.
    """

    kinds = ("bpe", "unigram")
    model_file = "sentencepiece.model"

    def __init__(self, kind, model):
        sentencepiece = tf_text.SentencepieceTokenizer(model, out_type=tf.int32)
        _outlive_kernels(sentencepiece, model)
        ids = tf.range(sentencepiece.vocab_size())
        super().__init__(kind, model, sentencepiece.id_to_string(ids))
        self._sentencepiece = sentencepiece

    def encode(self, texts):
        return self._sentencepiece.tokenize(valid_utf8(texts))

    def locate(self, texts):
        texts = valid_utf8(texts)
        ids, begins, ends = self._sentencepiece.tokenize_with_offsets(texts)
        return located(texts, ids, begins.values, ends.values)

    def _join(self, ids):
        return self._sentencepiece.detokenize(ids)

    @classmethod
    def learn(cls, kind, lines, vocab_size):
        """Learns a model from a list of str; see `learn_tokenizer`.

        SentencePiece itself passes over lines beyond 4,192 bytes.
        """
        # Imported here: who only uses a vocabulary need not have the package.
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
                    # Only equivalent spellings are made one; NFKC, the default, would rewrite
                    # "½" or "…" in references and translations alike.
                    normalization_rule_tsv=rules.name,
                    pad_id=PAD_ID,
                    eos_id=END_ID,
                    unk_id=UNKNOWN_ID,
                    bos_id=START_ID,
                    num_threads=16,  # the sums of unigram depend on the number of threads
                    minloglevel=2,
                )
            except RuntimeError as error:
                raise _explained(error, vocab_size) from error
        return cls(kind, model.getvalue())


def _outlive_kernels(tokenizer, model):
    """Lets a tf_text tokenizer go on after `tf.random.set_seed` and `set_random_seed`.

    They drop TensorFlow's kernels, and with the kernel that made it the tokenizer's resource,
    unless the resource has a name of its own. tf_text gives none.
    """
    with tf.init_scope():
        tokenizer._model_resource._resource_handle = (
            sentencepiece_tokenizer.gen_sentencepiece_tokenizer.sentencepiece_op(
                model=model, shared_name=f"sentencepiece_{hashlib.sha256(model).hexdigest()}"
            )
        )


def _coverage(lines, most):
    """The share of the text that its `most` frequent characters make up."""
    counts = collections.Counter()
    for line in lines:
        counts.update(line)
    return sum(count for _, count in counts.most_common(most)) / counts.total()


@functools.cache
def _composition_rules():
    """Unicode's canonical composition (NFC) as SentencePiece rules, Hangul syllables apart."""
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
