"""Several corpora in one run: the directions of `data.corpora` and their texts.

`directions_of` parses the field, see `corpora.py`.
`parts_of` names the parts of a split, one for each direction, as `tokens/train/en-de`; a bilingual
run has one part, the split itself. `DirectedCorpora` is the corpus of all parts.
"""

import math

from pipelines.corpora import parse
from t2t_keras.data.language_template import advised_codes, direction_encoders
from t2t_keras.data.streams import sampling_probabilities
from t2t_keras.errors import InputError
from t2t_keras.tasks.text_io import language_codes


def directions_of(config):
    """Returns the `Direction`s in a run's config, none if it has one corpus."""
    return parse(config.data.get("corpora", ""))


def parts_of(config, split):
    """Returns the names of the parts of a split, which are folders of its tokens."""
    return [f"{split}/{d.name}" for d in directions_of(config)] or [split]


def split_of(part):
    """Returns the split of a part's name."""
    return part.partition("/")[0]


def text_pairs(examples):
    """Yields (source, target), bytes, of a dataset of texts."""
    for batch in examples.batch(1024).as_numpy_iterator():  # eighty times as fast as single pairs
        yield from zip(batch["source"], batch["target"], strict=True)


class DirectedCorpora:
    """The corpus of several directions, {name: corpus}, whose splits are those of `parts_of`."""

    def __init__(self, corpora):
        self.corpora = corpora

    def examples(self, part):
        corpus, split = self._corpus(part)
        return corpus.examples(split)

    def files(self, part):
        """Returns the files of a part, {"source": path, "target": path}; {} for TFDS."""
        corpus, split = self._corpus(part)
        return corpus.files(split) if hasattr(corpus, "files") else {}

    def has_text(self, part):
        """Returns whether the corpus of a part has any text of its split."""
        corpus, split = self._corpus(part)
        return corpus.has_text(split)

    def map(self, function):
        return DirectedCorpora({name: function(each) for name, each in self.corpora.items()})

    def _corpus(self, part):
        """Returns the corpus of a part and its split."""
        split, _, name = part.partition("/")
        if name not in self.corpora:
            raise InputError(
                f"the run has the directions {', '.join(self.corpora)}: give --source_language and "
                "--target_language."
            )
        return self.corpora[name], split

    def sampled_lines(self, split, temperature):
        """Yields the lines of all directions as often as training samples them.

        It yields about as many pairs as the corpora contain. If a direction is sampled n times as
        often as its size, each of its pairs comes n times, or, for n below 1, one in 1 / n pairs.
        `temperature` is that of `sampling_probabilities`.
        """
        pairs = {name: corpus.examples(split) for name, corpus in self.corpora.items()}
        sizes = [int(examples.cardinality()) for examples in pairs.values()]
        probabilities = sampling_probabilities(sizes, temperature)
        for examples, size, probability in zip(pairs.values(), sizes, probabilities, strict=True):
            times, done = sum(sizes) * probability / size, 0
            for number, sides in enumerate(text_pairs(examples), start=1):
                # The small addend keeps rounding from dropping pairs where times is 1.
                due = math.floor(number * times + 1e-6)
                yield from sides * (due - done)
                done = due


def check_vocabulary(config, tokenizer):
    """Raises InputError if a vocabulary lacks the tokens of a run's languages."""
    template = getattr(tokenizer, "languages", None)
    directions = directions_of(config)
    if template is None and directions:
        raise InputError(
            "data.corpora has several languages, and the vocabulary of the run has no tokens of "
            "languages: give a new --workdir, or a pretrained model of many languages."
        )
    for direction in directions:
        for name, code in direction.languages.items():
            if code not in template.ids:
                raise InputError(
                    f"data.corpora has {name} {code!r}, for which the vocabulary has no token: "
                    f"{advised_codes(code, template.codes)}."
                )


def check_languages(predictor, languages):
    """Raises InputError if a predictor does not take the languages {name: code}, or lacks one."""
    given = {name: languages.get(name) for name in ("source_language", "target_language")}
    language_codes(getattr(predictor, "languages", None), 0, **given)


def languages_of(config, direction, predictor):
    """Returns the languages that a call of a predictor takes, {name: code}; none if bilingual.

    The direction None means the config's only corpus; a code is None if the config names none.
    """
    if getattr(predictor, "languages", None) is None:
        return {}
    if direction is not None:
        return direction.languages
    data = config.data
    return {name: data[name] or None for name in ("source_language", "target_language")}


def encoders_of(config, template, sources, targets, part):
    """Returns the encoders of a part's sources and targets, which add the languages' tokens.

    The template is a `LanguageTemplate`, or None for a bilingual vocabulary.
    """
    if template is None:
        return sources, targets
    languages = config.data.source_language, config.data.target_language
    for direction in directions_of(config):
        if part == f"{split_of(part)}/{direction.name}":
            languages = direction.source, direction.target
    return direction_encoders(template, sources, targets, *languages)
