import pytest
from terms_in_place import count_in_place, measure


class Echo:
    """A translator of "dog" and "man" that puts a term first."""

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


def test_terms_are_counted_and_the_rest_is_scored():
    found = measure(Echo(), ["See the dog run home ."], ["See the Hund run home ."])
    assert (found["terms"], found["in_place"]) == (1, 0)
    plain, rest = found["bleu_of_the_rest"]
    assert rest < plain == 100.0
