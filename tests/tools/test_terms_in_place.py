import pytest
from terms_in_place import count_in_place, measure


class Echo:
    """A translator of "dog" and "man" that puts a term first, or behind a placeholder."""

    def documents(self, texts, terms=None):
        if terms:
            return [f"{terms['dog']} {text}".replace(" dog", "") for text in texts]
        return [text.replace("dog", "Hund").replace("man", "Mann") for text in texts]


@pytest.mark.parametrize(
    ("text", "plain", "found", "counts"),
    [
        ("A dog.", "Ein Hund.", "Ein Dackel.", (1, 1)),
        ("A man, a dog.", "Ein Mann, ein Hund.", "Ein Herr, Dackel ein Hund.", (2, 1)),
        ("A dog.", "Ein Tier.", "Ein Dackel.", (0, 0)),
        ("A dog, a Dog.", "Hunde, ein Hund.", "Dackel, ein Tier.", (2, 1)),
        ("A man-made dog's.", "Hund", "Hund", (0, 0)),
    ],
)
def test_a_term_is_in_place_where_its_usual_translation_was(text, plain, found, counts):
    assert count_in_place(text, plain, found) == counts


def test_each_way_is_measured():
    found = measure(Echo(), ["See the dog run home ."], ["See the Hund run home ."])
    assert [found[x]["in_place"] for x in ("alignment", "placeholder", "enclosed")] == [0, 1, 1]
    assert all(found[x]["terms"] == 1 for x in ("alignment", "placeholder", "enclosed"))
    assert found["alignment"]["bleu_of_the_rest"] < found["placeholder"]["bleu_of_the_rest"]
    assert found["bleu_of_the_rest"] == 100.0
