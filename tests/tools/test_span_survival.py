import sacrebleu
from span_survival import measure, name_pairs

REFERENCES = ["{name}.", "A {name}."]


class Echo:
    """A translator into capitals that keeps spans in documents, and moves a tag in one of them."""

    def documents(self, texts):
        found = [text.replace("dog", "Hund").replace("cat", "Katze") for text in texts]
        return [text.replace("<b>Katze", "Katze <b>") for text in found]

    def predict(self, texts):
        return ["Hund"] * len(texts)


def test_spans_and_tags_are_counted(monkeypatch):
    nouns = {"dog": {"Hund", "Hunde"}, "cat": {"Katze"}}
    pairs = [("A dog.", "Hund."), ("A cat.", "A Katze."), ("A dog, a dog.", "Hunde.")]
    found = measure(Echo(), pairs, nouns)
    assert found == {
        "lines": 3,
        "kept": 3,
        "kept_without_protection": 0,
        "tags": 3,
        "tags_around_the_noun": 2,
        "lines_with_a_name": 2,
        "bleu_with_names": round(sacrebleu.corpus_bleu(["A {name}."] * 2, [REFERENCES]).score, 2),
        "exact_with_names": 1,
    }


def test_a_name_stands_for_a_noun_of_both_sides():
    nouns = {"dog": {"Hund", "Hunde"}, "cat": {"Katze"}}
    pairs = [("A dog, a cat.", "Katze Hunde."), ("A dog, a dog.", "Hund."), ("dogs", "Hund")]
    assert list(name_pairs(pairs, nouns)) == [("A {name}, a cat.", "Katze {name}.")]
