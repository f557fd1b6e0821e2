"""Translation: pairs of sentences, learned pieces, BLEU."""

import dataclasses

from pipelines.tasks.sequences import SequenceTask
from pipelines.tasks.text import TextTask, import_dataset, questions_of
from t2t_keras.data.corpora import FolderCorpus, TFDSCorpus, aligned_files
from t2t_keras.data.tokenizers import train_tokenizer
from t2t_keras.errors import InputError
from t2t_keras.evaluation.text import corpus_scores
from t2t_keras.tasks.translation import Translator


class Task(TextTask, SequenceTask):
    """Translation as the binaries see it.

    Args:
        config: the experiment's config.

    Attributes:
        metric: str, the key of `score` that validations watch.
    """

    metric = "bleu"

    def make_corpus(self):
        """Returns the corpus that config.data names: `examples(split)` gives its texts."""
        data = self._config.data
        languages = data.source_language, data.target_language
        if data.folder:
            return FolderCorpus(data.folder, *languages)
        import_dataset(data.get("tfds_import"))
        return TFDSCorpus(data.tfds, *languages, data_dir=data.tfds_data_dir or None)

    def train_tokenizer(self, corpus):
        """Returns the tokenizer of a corpus."""
        data = self._config.data
        lines = _sides(corpus.examples(data.train_split))
        return train_tokenizer(data.tokenizer, lines, self._config.model.vocab_size)

    def make_predictor(self, model, tokenizer):
        """Returns what takes a list of str and gives a list of str."""
        if "constrained" in self._config.decode:
            raise InputError("--constrained is for parsing: leave it out.")
        return Translator(model, tokenizer, **self._config.decode)

    def questions_of_files(self, source, reference):
        """Returns the same of two files, empty names where there is none."""
        if not (source and reference):
            raise InputError("give both --source and --reference, or neither.")
        return questions_of(aligned_files(source, reference))

    def score(self, outputs, references, **tokenization):
        """Returns the scores of outputs, a dict that JSON can hold.

        Args:
            outputs: list of str.
            references: list, as `questions` gives them.
            **tokenization: `tokenize` and `lowercase` of `corpus_scores`.
        """
        scores = corpus_scores(outputs, references, **tokenization)
        exact = sum(map(str.__eq__, outputs, references)) / len(references)
        return dataclasses.asdict(scores) | {"exact": exact}


def _sides(examples):
    for pairs in examples.batch(
        1024
    ).as_numpy_iterator():  # one by one they take eighty times as long
        for source, target in zip(pairs["source"], pairs["target"], strict=True):
            yield source
            yield target
