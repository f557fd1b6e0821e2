"""What tasks share whose sources are text in a learned vocabulary."""

import importlib

from t2t_keras.data.bpe_dropout import BpeDropout, RepeatedCorpus, check_bpe_dropout
from t2t_keras.data.tokenizers import load_tokenizer
from t2t_keras.errors import InputError


class TextTask:
    """A task whose corpus gives `{"source": text, "target": text}`; it has its config."""

    def check(self):
        """Raises InputError for settings that can't work, before anything is done."""
        data = self._config.data
        if data.bpe_dropout:
            check_bpe_dropout(data.tokenizer, data.bpe_dropout)

    def load_tokenizer(self, directory):
        """Returns the tokenizer that was saved in a folder."""
        return load_tokenizer(directory)

    def training_corpus(self, corpus, tokenizer):
        """Returns the corpus whose training split is learned from, as a rule the corpus itself."""
        del tokenizer
        data = self._config.data
        if data.subword_copies == 1:
            return corpus
        return RepeatedCorpus(corpus, data.train_split, data.subword_copies)

    def training_tokenizer(self, tokenizer):
        """Returns what cuts the training split: the `tokenizer` itself, or one that samples."""
        rate = self._config.data.bpe_dropout
        return BpeDropout(tokenizer, rate, self._config.train.seed) if rate else tokenizer

    def questions(self, split, limit=None):
        """Returns what can be scored of a split.

        Args:
            split: its name.
            limit: int, how many at most; None for all.

        Returns:
            List of inputs, str, and list of references, as `score` takes them.
        """
        return questions_of(self.make_corpus().examples(split), limit)


def import_dataset(module):
    """Imports the module that registers a TFDS dataset; an empty name imports none.

    Raises:
        InputError: if there is no such module.
    """
    if not module:
        return
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise InputError(
            f"data.tfds_import is {module!r}, which cannot be imported ({error}): give a module "
            "that registers the dataset of data.tfds, or leave it empty for one of TFDS's own."
        ) from error


def questions_of(examples, limit=None):
    """Returns the sources and the targets of a dataset of texts, two lists of str."""
    examples = list(examples.take(-1 if limit is None else limit).as_numpy_iterator())
    return tuple(
        [example[side].decode(errors="replace") for example in examples]
        for side in ("source", "target")
    )
