"""EVALB's parameter files: which labels and words count, and which count as one."""

import collections
import dataclasses
import sys
from typing import NamedTuple

from t2t_keras.data.files import read_text
from t2t_keras.errors import InputError


@dataclasses.dataclass(frozen=True)
class Parameters:
    """What an EVALB parameter file says; the defaults are those of COLLINS.prm.

    Attributes:
        delete_labels: words under these tags are left out, and brackets of these labels.
        delete_labels_for_length: tags of words that do not count in a sentence's length.
        equal_labels: pairs of labels that count as one.
        equal_words: pairs of words that count as one.
        quote_labels: tags of a quotation mark that can be confused; where the trees differ in
            length, such a mark is left out of both or of none.
        labeled: whether labels must agree, or spans alone.
        cutoff: longest sentence of the second set of figures.
    """

    delete_labels: frozenset = frozenset(["TOP", "-NONE-", ",", ":", "``", "''", "."])
    delete_labels_for_length: frozenset = frozenset(["-NONE-"])
    equal_labels: frozenset = frozenset([frozenset(["ADVP", "PRT"])])
    equal_words: frozenset = frozenset()
    quote_labels: frozenset = frozenset()
    labeled: bool = True
    cutoff: int = 40

    def same_label(self, first, second):
        return first == second or frozenset([first, second]) in self.equal_labels

    def same_word(self, first, second):
        return first == second or frozenset([first, second]) in self.equal_words

    def deletes(self, label):
        """Says whether brackets of a label are left out."""
        # An outer bracket without a label is what other treebanks call TOP.
        return not label or any(self.same_label(label, name) for name in self.delete_labels)


def read_parameters(path):
    """Reads an EVALB parameter file.

    Args:
        path: the file, lines of a name and its value; `#` begins a comment line.

    Returns:
        `Parameters`, with nothing deleted and nothing equal but what the file says.

    Raises:
        InputError: if the file can't be read or a value is no good.
    """
    sets, numbers = collections.defaultdict(set), {}
    for number, line in enumerate(read_text(path), start=1):
        if not line.strip() or line.startswith("#"):
            continue
        name, *values = line.split()
        if name in _SETS and len(values) == _SETS[name].values:
            sets[_SETS[name].field].add(values[0] if len(values) == 1 else frozenset(values))
        elif name in _NUMBERS and len(values) == 1 and values[0].lstrip("-").isdigit():
            numbers[name] = int(values[0])
        elif name in _SETS or name in _NUMBERS:
            wanted = f"{_SETS[name].values} names" if name in _SETS else "a whole number"
            raise InputError(
                f"{path}, line {number}: {name} is {' '.join(values)!r}: give {wanted}."
            )
        else:
            print(f"{path}, line {number}: unknown name {name} is passed over", file=sys.stderr)
    return Parameters(
        **{setting.field: frozenset(sets[setting.field]) for setting in _SETS.values()},
        labeled=bool(numbers.get("LABELED", 1)),
        cutoff=numbers.get("CUTOFF_LEN", 40),
    )


class _Set(NamedTuple):
    field: str
    values: int


_SETS = {
    "DELETE_LABEL": _Set("delete_labels", 1),
    "DELETE_LABEL_FOR_LENGTH": _Set("delete_labels_for_length", 1),
    "EQ_LABEL": _Set("equal_labels", 2),
    "EQ_WORD": _Set("equal_words", 2),
    "QUOTE_LABEL": _Set("quote_labels", 1),
}
_NUMBERS = {"LABELED", "CUTOFF_LEN", "DEBUG", "MAX_ERROR"}  # the last two change no figure
