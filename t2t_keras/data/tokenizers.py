"""Training and loading tokenizers (paper section 5.1).

`train_tokenizer` learns a vocabulary from text, `Tokenizer.save` writes it to a folder, and
`load_tokenizer` reads it again. The interface that all tokenizers share is in `base_tokenizer.py`.
"""

import contextlib
import hashlib
import os
import random

import tensorflow as tf
import tensorflow_text as tf_text

from t2t_keras.data.base_tokenizer import DESCRIPTION_FILE, Tokenizer, is_blank
from t2t_keras.data.files import local_path, read_json
from t2t_keras.data.language_template import LanguageTemplate
from t2t_keras.data.placeholders import without_marks
from t2t_keras.data.sentence_piece import SentencePieceTokenizer
from t2t_keras.data.texts import as_strings, iterate
from t2t_keras.data.tree_tokenizer import TreeTokenizer
from t2t_keras.data.vocabulary_tokenizer import VocabularyTokenizer
from t2t_keras.data.word_piece import WordPieceTokenizer
from t2t_keras.errors import InputError, require_whole_number
from t2t_keras.settings import MAX_PLACEHOLDERS, Range
from t2t_keras.types import StrPath, Texts

MAX_TRAINING_LINES = 4_000_000
"""A vocabulary is learned from at most this many lines, sampled evenly from all."""

_LINES_PER_STEP = 8192

_FAMILIES = SentencePieceTokenizer, WordPieceTokenizer, TreeTokenizer, VocabularyTokenizer
_ALL = {kind: family for family in _FAMILIES for kind in family.kinds}

_RESERVED = ("languages", "placeholders")  # arguments of a `Tokenizer` that its description has

TRAINABLE = "bpe", "unigram", "wordpiece"
"""The kinds of `train_tokenizer`."""


def train_tokenizer(
    kind: str, lines: Texts, vocab_size: int, languages: Texts = (), placeholders: int = 0
) -> Tokenizer:
    """Learns a vocabulary from text.

    The paper uses a shared byte-pair vocabulary of about 37,000 tokens for English-German and
    32,000 word pieces for English-French (section 5.1): give the lines of both languages.

    Args:
        kind: `bpe`, `unigram` or `wordpiece`.
        lines: iterable of str or bytes, read once. Bytes that are not UTF-8 are skipped, as are
            blank lines; a lone surrogate in a str counts as U+FFFD. Lines may have any length.
        vocab_size: number of ids, the four special ones and 256 for bytes included.
        languages: codes of the languages of one model, such as `["de", "en"]`. The last ids before
            the placeholders are their tokens, and no text is encoded as one of them. The token of
            the target language is put before each source (Johnson et al. 2017). (): one direction.
        placeholders: tokens for protected spans after all others, up to 63; see `placeholders.py`.
            They count in vocab_size as well.

    Returns:
        A `Tokenizer` with exactly `vocab_size` ids. The same lines give the same bytes.

    Raises:
        InputError: for an unknown kind, lines without text, or a vocabulary larger or smaller
            than the text supports, naming the limit.

    Example:
        >>> lines = ["The old man sees a small dog.", "Der alte Mann sieht einen Hund."]
        >>> tokenizer = t2t.train_tokenizer("bpe", lines, vocab_size=300)
        >>> tokenizer.decode(tokenizer.encode(lines[:1])).numpy()
        array([b'The old man sees a small dog.'], dtype=object)
    """
    require_whole_number("vocab_size", vocab_size)
    Range(0, MAX_PLACEHOLDERS, whole=True).check("placeholders", placeholders)
    if kind not in TRAINABLE:
        raise InputError(f"there is no tokenizer {kind!r}; choose one of {', '.join(TRAINABLE)}")
    sample = _normalized(_sample(_encoded(lines), MAX_TRAINING_LINES))
    if not sample:
        raise InputError("there is no text to learn a vocabulary from; give a corpus with text")
    family = _ALL[kind]
    codes = sorted(set(as_strings(languages, "languages", sets=True)))
    first = vocab_size - len(codes) - placeholders
    if first == vocab_size:
        return family.train(kind, sample, vocab_size)
    if placeholders:
        sample = [without_marks(line) for line in sample]
    try:
        learned = family.train(kind, sample, first)
    except InputError as error:
        reserved = [f"the tokens of {len(codes)} languages"] * bool(codes)
        reserved += [f"{placeholders} placeholders"] * bool(placeholders)
        raise InputError(f"{error} (without {' and '.join(reserved)})") from error
    return _with_reserved(learned, codes, placeholders)


def _with_reserved(tokenizer, codes, placeholders):
    """Returns a tokenizer with tokens of languages and placeholders after its own."""
    ids = {code: tokenizer.vocab_size + i for i, code in enumerate(codes)}
    template = LanguageTemplate(ids, source="target") if ids else None
    return type(tokenizer)(
        tokenizer.kind, tokenizer.model_bytes, languages=template, placeholders=placeholders
    )


def read_sentencepiece(
    path: StrPath, languages: Texts = (), placeholders: int = 0
) -> SentencePieceTokenizer:
    """Makes a tokenizer of a model that was learned by SentencePiece elsewhere.

    Texts are normalized as the model says. Pieces and ids are those of
    `SentencePieceTokenizer.read`.

    Args:
        path: a `.model` file of SentencePiece, of any type.
        languages, placeholders: as for `train_tokenizer`; their tokens follow those of the model.

    Raises:
        InputError: if there is no such file, it is no model, or placeholders are wanted of a model
            without byte fallback.
    """
    Range(0, MAX_PLACEHOLDERS, whole=True).check("placeholders", placeholders)
    codes = sorted(set(as_strings(languages, "languages", sets=True)))
    path = local_path(path)
    try:
        with open(path, "rb") as file:
            tokenizer = SentencePieceTokenizer.read(file.read())
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}): check the path.") from error
    except (ValueError, tf.errors.OpError) as error:
        raise InputError(
            f"{path} is not a SentencePiece model ({error}): give the .model file of its trainer."
        ) from error
    if placeholders and not tokenizer.has_bytes:
        raise InputError(
            f"placeholders is {placeholders}, and {path} has no byte tokens, which they need: give "
            "0, or a model trained with --byte_fallback."
        )
    return _with_reserved(tokenizer, codes, placeholders)


def tokenizer_exists(directory: StrPath) -> bool:
    """Returns whether a folder contains all files of a tokenizer."""
    return os.path.exists(os.path.join(directory, DESCRIPTION_FILE))


def load_tokenizer(directory: StrPath) -> Tokenizer:
    """Reads a tokenizer that `Tokenizer.save` wrote, or a SentencePiece model.

    Args:
        directory: the folder given to `save`; or a `.model` file, see `read_sentencepiece`.

    Raises:
        InputError: if the folder holds no tokenizer, or its files are damaged.

    Example:
        >>> tokenizer.save("tokenizer")
        >>> t2t.load_tokenizer("tokenizer").vocab_size == tokenizer.vocab_size
        True
    """
    directory = local_path(directory)
    if os.path.isfile(directory):
        return read_sentencepiece(directory)
    try:
        description = read_json(os.path.join(directory, DESCRIPTION_FILE))
        kind = description["kind"]
        with open(os.path.join(directory, _ALL[kind].model_file), "rb") as file:
            model = file.read()
        digest = hashlib.sha256(model).hexdigest()
        if description.get("sha256", digest) != digest:  # older descriptions have none
            raise ValueError(f"{_ALL[kind].model_file} has another checksum")
        options = {name: description[name] for name in _RESERVED if name in description}
        if "languages" in options:
            options["languages"] = LanguageTemplate(**options["languages"])
        return _ALL[kind](kind, model, **options)
    except FileNotFoundError as error:
        raise InputError(
            f"{directory} holds no tokenizer ({os.path.basename(error.filename)} is missing); "
            "train one there first"
        ) from error
    except (ValueError, KeyError, TypeError, IsADirectoryError, tf.errors.InternalError) as error:
        raise InputError(
            f"the tokenizer in {directory} is damaged ({error}): copy it again, or train one in "
            "another folder."
        ) from error


def _encoded(lines):
    """Yields the lines as valid UTF-8 without their line ends."""
    for line in iterate(lines, "lines"):
        with contextlib.suppress(UnicodeDecodeError):
            line.decode()
            yield line.rstrip(b"\r\n")


def _normalized(lines):
    """Returns the lines that are not blank, a list of str in NFC, as the graphs normalize them."""
    kept = []
    for start in range(0, len(lines), _LINES_PER_STEP):
        batch = tf.constant(lines[start : start + _LINES_PER_STEP])
        texts = tf.boolean_mask(tf_text.normalize_utf8(batch, "NFC"), ~is_blank(batch))
        kept += [text.decode() for text in texts.numpy()]
    return kept


def _sample(lines, limit):
    """Keeps an even sample of the lines by reservoir sampling with a fixed seed."""
    rng = random.Random(0)
    kept = []
    for number, line in enumerate(lines):
        if number < limit:
            kept.append(line)
        elif (place := rng.randrange(number + 1)) < limit:
            kept[place] = line
    return kept
