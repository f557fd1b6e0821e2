"""How many protected spans survive a translation, and how well the text around them is translated.

python tools/span_survival.py --workdir=quickstart/run

Into each of 500 test lines of the built-in corpus it inserts a <b>noun</b> and up to two other
spans, and translates them as documents with the run's model, and as lines for comparison. With
--alignment placeholders of the vocabulary are left unused. Where a line and its reference have a
noun once, {name} replaces it on both sides, and the translation is compared. The last line printed
is JSON: lines, those whose spans all come out as often as they went in, with and without
protection; tags, and those around a form of the noun's translation and nothing else; lines with a
name, their BLEU, and those that equal their reference.
"""

import argparse
import collections
import csv
import itertools
import json
import pathlib
import random
import re

import sacrebleu

import t2t_keras as t2t
from pipelines.datasets.english_german import splits
from t2t_keras.tasks.protection import ByAlignment

SPANS = ["{name}", "%s", "%1$d", "&amp;", "https://example.com/a?b=1", "jo@example.com", "<br/>"]
_SPAN = re.compile("|".join(map(re.escape, ["<b>", "</b>", *SPANS])))
_FORMS = ("german", "oblique", "genitive", "german_plural")


def read_nouns():
    """Returns {English form of a noun: set of its German forms}."""
    nouns = collections.defaultdict(set)
    text = pathlib.Path(splits.__file__).with_name("nouns.tsv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines(), delimiter="\t"):
        for english in (row["english"], row["english_plural"]):
            nouns[english].update(row[form] for form in _FORMS)
    return dict(nouns)


def insert_spans(line, nouns, rng):
    """Returns a line with spans, and the word that is tagged: a noun, or any word without one."""
    words = line.split(" ")
    places = [i for i, word in enumerate(words) if re.sub(r"\W", "", word) in nouns]
    place = rng.choice(places or range(len(words)))
    word, rest = re.match(r"(\w*)(.*)", words[place]).groups()
    words[place] = f"<b>{word}</b>{rest}"
    for _ in range(rng.randint(0, 2)):
        words.insert(rng.randrange(len(words)), rng.choice(SPANS))
    return " ".join(words), word


def name_pairs(pairs, nouns):
    """Yields (source, reference) with {name} for a noun that each side has once."""
    for source, reference in pairs:
        words = re.findall(r"\w+", source)
        for noun in words:
            forms = [
                form
                for form in nouns.get(noun, ())
                if words.count(noun) == 1 == len(re.findall(rf"\b{form}\b", reference))
            ]
            if forms:
                sides = (source, noun), (reference, max(forms, key=len))
                yield tuple(re.sub(rf"\b{word}\b", "{name}", text) for text, word in sides)
                break


def measure(translator, pairs, nouns):
    """Returns what is printed, a dict; pairs: list of (source, reference)."""
    rng = random.Random(0)
    texts, tagged = zip(*(insert_spans(source, nouns, rng) for source, _ in pairs), strict=True)
    protected, plain = translator.documents(texts), translator.predict(texts)
    tags = [(word, text) for word, text in zip(tagged, protected, strict=True) if word in nouns]
    inside = [re.search("<b>(.*?)</b>", text) for _, text in tags]
    sources, references = zip(*name_pairs(pairs, nouns), strict=True)
    with_names = translator.documents(sources)
    return {
        "lines": len(texts),
        "kept": sum(map(_equal_spans, texts, protected)),
        "kept_without_protection": sum(map(_equal_spans, texts, plain)),
        "tags": len(tags),
        "tags_around_the_noun": sum(
            match is not None and match[1] in nouns[word]
            for (word, _), match in zip(tags, inside, strict=True)
        ),
        "lines_with_a_name": len(sources),
        "bleu_with_names": round(sacrebleu.corpus_bleu(with_names, [references]).score, 2),
        "exact_with_names": sum(map(str.__eq__, with_names, references)),
    }


def _equal_spans(text, other):
    first, second = (collections.Counter(_SPAN.findall(x)) for x in (text, other))
    return first == second


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", required=True, help="folder of a run on the built-in corpus")
    parser.add_argument("--lines", type=int, default=500, help="test lines; default: 500")
    parser.add_argument("--alignment", action="store_true", help="without placeholders")
    args = parser.parse_args()
    translator = t2t.load(args.workdir)
    if args.alignment:
        translator.protection = ByAlignment()
    test = list(itertools.islice(splits.sentence_pairs("test"), args.lines))
    print(json.dumps(measure(translator, test, read_nouns())))
