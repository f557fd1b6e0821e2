"""How often a term stands in the place of its source's translation, and what it does to the rest.

python tools/terms_in_place.py --workdir=RUN --data=DATA

DATA has Multi30k's test_2016_flickr.en and .de. The first 200 lines with one of eight nouns are
translated as documents, without terms and with them. A term counts if the translation without terms
has the usual one as often as the source has the noun; it is in place if both translations are
aligned with the term where the usual one was. BLEU of the rest counts a noun, its term and its
usual translations as equal. The last line printed is JSON.
"""

import argparse
import difflib
import json
import pathlib
import re

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


def _usual(noun, other=""):
    return re.compile(rf"(?<![\w-])(?:{TERMS[noun][1]}{other})(?![\w-])")


def _rest(text):
    for noun, (target, _) in TERMS.items():
        text = _usual(noun, f"|{target}").sub("TERM", text)
    return text


def count_in_place(text, plain, with_terms):
    """Returns the number of terms that count in a translation, and of those in place."""
    counts = [noun.lower() for noun in _NOUN.findall(text)]
    counts = {noun: counts.count(noun) for noun in counts}
    counts = {n: count for n, count in counts.items() if len(_usual(n).findall(plain)) == count}
    for noun in counts:
        plain = _usual(noun).sub(TERMS[noun][0], plain)
    sides = [re.findall(r"[\w-]+|[^\w\s]", x) for x in (plain, with_terms)]
    blocks = difflib.SequenceMatcher(None, *sides, autojunk=False).get_matching_blocks()
    same = [word for a, _, size in blocks for word in sides[0][a : a + size]]
    in_place = (min(same.count(TERMS[noun][0]), count) for noun, count in counts.items())
    return sum(counts.values()), sum(in_place)


def measure(translator, texts, references):
    """Returns what is printed, a dict."""
    terms = {source: target for source, (target, _) in TERMS.items()}
    plain, with_terms = translator.documents(texts), translator.documents(texts, terms=terms)
    counts = zip(*map(count_in_place, texts, plain, with_terms), strict=True)
    references = [[*map(_rest, references)]]
    bleu = [sacrebleu.corpus_bleu([*map(_rest, x)], references).score for x in (plain, with_terms)]
    return dict(zip(("terms", "in_place"), map(sum, counts), strict=True)) | {
        "bleu_of_the_rest": [round(score, 2) for score in bleu]
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workdir", required=True, help="a trained run, English to German")
    parser.add_argument("--data", required=True, help="folder of Multi30k's test_2016_flickr.*")
    args = parser.parse_args()
    sides = (
        pathlib.Path(args.data, f"test_2016_flickr.{language}").read_text("utf-8").splitlines()
        for language in ("en", "de")
    )
    pairs = [pair for pair in zip(*sides, strict=True) if _NOUN.search(pair[0])][:200]
    print(json.dumps(measure(t2t.load(args.workdir), *map(list, zip(*pairs, strict=True)))))
