"""The field `data.corpora`: corpora with their languages, a `Direction` for each order."""

import dataclasses

from t2t_keras.errors import InputError

_FORM = "PLACE:SOURCE-TARGET, or PLACE:ONE=OTHER for both directions"


@dataclasses.dataclass(frozen=True)
class Direction:
    """A corpus in one direction."""

    name: str  # such as en-de; en-de.2 for a second corpus of the same languages
    place: str  # a folder or the name of a TFDS dataset
    source: str  # codes of the languages: endings of files or TFDS's features
    target: str

    @property
    def languages(self):
        """The arguments `source_language` and `target_language` of a `Translator`, a dict."""
        return {"source_language": self.source, "target_language": self.target}


class Corpora:
    """The setting `data.corpora`, checked as a `Range` is."""

    def __str__(self):
        return f"a list {_FORM}, with commas between; or empty"

    def check(self, name, value):
        if not isinstance(value, str):
            raise InputError(f"{name} is {value!r}: give {self}.")
        parse(value, name)
        return value


def parse(text, name="data.corpora"):
    """Returns the `Direction`s of a list of corpora; InputError if it is none, or repeats one."""
    directions = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        place, _, pair = item.rpartition(":")
        separator = "=" if "=" in pair else "-"
        codes = pair.split(separator)
        if not place or len(codes) != 2 or not all(codes) or codes[0] == codes[1]:
            raise InputError(f"{name} has {item!r}: give {_FORM}, such as pairs:en=de.")
        for source, target in [codes, codes[::-1]][: 2 if separator == "=" else 1]:
            if any((place, source, target) == (d.place, d.source, d.target) for d in directions):
                raise InputError(f"{name} has {place}:{source}-{target} twice: leave one out.")
            number = 1 + sum((source, target) == (d.source, d.target) for d in directions)
            ending = f".{number}" if number > 1 else ""
            directions.append(Direction(f"{source}-{target}{ending}", place, source, target))
    return directions
