import random

from span_survival import insert_spans, measure, read_nouns


class Echo:
    """A translator into capitals that keeps spans in documents, and moves a tag in one of them."""

    def documents(self, texts):
        found = [text.replace("dog", "Hund").replace("cat", "Katze") for text in texts]
        return [found[0], found[1].replace("<b>Katze", "Katze <b>")]

    def predict(self, texts):
        return ["Hund"] * len(texts)


def test_spans_and_tags_are_counted(monkeypatch):
    nouns = {"dog": {"Hund", "Hunde"}, "cat": {"Katze"}}
    found = measure(Echo(), [("A dog.", ""), ("A cat.", "")], nouns)
    assert found == {
        "lines": 2,
        "kept": 2,
        "kept_without_protection": 0,
        "tags": 2,
        "tags_around_the_noun": 1,
    }


def test_one_noun_of_a_line_is_tagged():
    nouns = read_nouns()
    assert nouns["man"] >= {"Mann", "Mannes"} and nouns["men"] >= {"Männer"}
    for seed in range(20):
        text, word = insert_spans("The old man, here.", nouns, random.Random(seed))
        assert word == "man" and "<b>man</b>," in text
        words = text.replace("<b>", "").replace("</b>", "").split()
        assert [w for w in words if w in ("The", "old", "man,", "here.")] == [
            "The", "old", "man,", "here.",
        ]  # fmt: skip
