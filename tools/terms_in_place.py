"""How often a term stands in the place of its source's translation, and what it does to the rest.

python tools/terms_in_place.py --workdir=RUN --data=DATA

DATA has Multi30k's test_2016_flickr.en and .de. The first 200 lines with one of eight nouns are
translated without terms, and with each way to enforce them: "alignment", which documents use;
"placeholder", a {name} instead of the noun; and "enclosed", a {name} before the noun and one behind
it, between which the translation is replaced. A term counts if the translation without terms has
the usual one as often as the source has the noun; it is in place if both translations are aligned
with the term where the usual one was. BLEU of the rest counts a noun, its term and its usual
translations as equal. The last line printed is JSON.
"""

import argparse
import difflib
import functools
import json
import pathlib
import re
import time

import sacrebleu

import t2t_keras as t2t

TERMS = {
    "dog": ("Dackel", "Hund|Hundes|Hunde"),
    "man": ("Herr", "Mann|Mannes"),
    "woman": ("Dame", "Frau"),
    "boy": ("Bube", "Junge|Jungen"),
    "girl": ("Mädel", "Mädchen|Mädchens"),
    "beach": ("Küste", "Strand|Strandes"),
    "street": ("Allee", "Straße"),
    "shirt": ("Trikot", "Hemd|Hemdes|Shirt|T-Shirt|Oberteil"),
}
"""{noun: (the target of its term, its usual translations)}"""
_NOUN = re.compile(rf"(?i)\b({'|'.join(TERMS)})\b(?![-'’])")


def alignment(translator, texts):
    """Returns translations with terms as documents have them."""
    terms = {source: target for source, (target, _) in TERMS.items()}
    return translator.documents(texts, terms=terms)


def placeholder(translator, texts):
    """Returns translations of texts with placeholders instead of nouns, and their terms there."""
    return _with_targets(translator, texts, "{{{0}}}", r"\{(\d)\}")


def enclosed(translator, texts):
    """Returns translations of texts with placeholders around nouns, and their terms inside."""
    found = _with_targets(translator, texts, "{{a{0}}} {1} {{b{0}}}", r"\{a(\d)\}[^{}]*\{b\1\}")
    return [re.sub(r" *\{\w\d\}", "", text) for text in found]


def _with_targets(translator, texts, form, pattern):
    """Returns translations of texts whose nouns have a form; terms replace matches of a pattern."""
    found = translator.documents([_numbered(text, form) for text in texts])
    return [
        re.sub(pattern, functools.partial(_target, text), translation)
        for text, translation in zip(texts, found, strict=True)
    ]


def _target(text, match):
    return TERMS[_NOUN.findall(text)[int(match[1])].lower()][0]


def _numbered(text, form):
    """Returns a text whose nouns have a form, of their number and themselves."""
    numbers = iter(range(10))
    return _NOUN.sub(lambda match: form.format(next(numbers), match[0]), text)


def _usual(noun, other=""):
    return re.compile(rf"(?<![\w-])(?:{TERMS[noun][1]}{other})(?![\w-])")


def _rest(text):
    for noun, (target, _) in TERMS.items():
        text = _usual(noun, f"|{target}").sub("TERM", text)
    return text


def count_in_place(text, plain, found):
    """Returns the number of terms that count in a translation, and of those in place."""
    counts = [noun.lower() for noun in _NOUN.findall(text)]
    counts = {noun: counts.count(noun) for noun in counts}
    counts = {n: count for n, count in counts.items() if len(_usual(n).findall(plain)) == count}
    for noun in counts:
        plain = _usual(noun).sub(TERMS[noun][0], plain)
    sides = [re.findall(r"[\w-]+|[^\w\s]", x) for x in (plain, found)]
    blocks = difflib.SequenceMatcher(None, *sides, autojunk=False).get_matching_blocks()
    same = [word for a, _, size in blocks for word in sides[0][a : a + size]]
    in_place = (min(same.count(TERMS[noun][0]), count) for noun, count in counts.items())
    return sum(counts.values()), sum(in_place)


def measure(translator, texts, references):
    """Returns what is printed, a dict."""

    def bleu(found):
        return sacrebleu.corpus_bleu([*map(_rest, found)], [[*map(_rest, references)]]).score

    def timed(way):
        way(texts[:9])  # traces
        begin = time.process_time()
        return way(texts), round(time.process_time() - begin, 1)

    plain, seconds = timed(translator.documents)
    results = {"bleu_of_the_rest": round(bleu(plain), 2), "cpu_seconds": seconds}
    for way in (alignment, placeholder, enclosed):
        found, seconds = timed(lambda texts, way=way: way(translator, texts))
        counts = map(count_in_place, texts, plain, found)
        terms, in_place = map(sum, zip(*counts, strict=True))
        results[way.__name__] = {
            "terms": terms,
            "in_place": in_place,
            "bleu_of_the_rest": round(bleu(found), 2),
            "cpu_seconds": seconds,
        }
    return results


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", required=True, help="a run with data.placeholders=8")
    parser.add_argument("--data", required=True, help="folder of Multi30k's test_2016_flickr.*")
    parser.add_argument("--lines", type=int, default=200, help="lines with a noun; default: 200")
    args = parser.parse_args()
    sides = (
        pathlib.Path(args.data, f"test_2016_flickr.{language}").read_text("utf-8").splitlines()
        for language in ("en", "de")
    )
    pairs = [pair for pair in zip(*sides, strict=True) if _NOUN.search(pair[0])][: args.lines]
    print(json.dumps(measure(t2t.load(args.workdir), *map(list, zip(*pairs, strict=True)))))
