"""Catalogs of messages, gettext's files `.po` and `.pot`: entries without a translation get one.

`translate_catalog` does all of it; `Catalog` has its parts. The rest of a file stays byte for byte:
lines of `msgstr` and of flags are replaced in its text, which `polib` (extra `catalogs`) reads.

A translation agrees with its source in placeholders, tags, accelerators and the line ends at both
ends, as `msgfmt --check` demands, or its entry stays untranslated. The format is described in
https://www.gnu.org/software/gettext/manual/html_node/PO-Files.html.
"""

import collections
import dataclasses
import gettext
import itertools
import pathlib
import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from absl import logging

from t2t_keras.data.files import local_path, require_regular, write_file
from t2t_keras.errors import InputError
from t2t_keras.types import StrPath

SUFFIXES = (".po", ".pot")
_CHARSETS = ("utf-8", "utf8", "ascii", "us-ascii", "charset")  # the last of files without one
_WIDTH = 78
_OFTEN = 5  # numbers up to 1000 from which msgfmt demands all placeholders of a plural form

_PRINTF = (
    r"%%|%\([^)]*\)[-+#0_]*[\d.*]*[hlL]?[a-zA-Z]|%<[^>]*>(?:[-+#0]*[\d.]*[a-zA-Z])?|%\{[^}]*\}|%\d+%"
    r"|%L?\d+(?![\d$.a-zA-Z])"
    r"|%(?:\d+\$)?[-+#0,('_]*(?:\d+|\*(?:\d+\$)?)?(?:\.(?:\d+|\*(?:\d+\$)?)?)?"
    r"(?:hh|h|ll|l|q|j|z|t|L|I64|I32)?[a-zA-Z@]"
)
_PLACEHOLDER = rf"{_PRINTF}|\$\{{[^}}]*\}}|\$\w+|\{{\{{|\}}\}}|\{{[^{{}}]*\}}"
_ANY = re.compile(_PLACEHOLDER)
_OF_FORMAT = re.compile(_PLACEHOLDER.replace("[-+#0", "[- +#0") + "|~[:@]*[a-zA-Z%&]")
"""Placeholders of entries with a flag such as `c-format`, where a space is part of one."""
_NAMED = re.compile(r"%\(|%<|%\{|%L?\d+(?:[$%]|$)|\$|\{\s*\w|%n$")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>")
_ACCELERATOR = re.compile(r"(?<![&_~])[&_~](?=[^\W\d_])")


class _Left(Exception):
    """Raised for an entry that stays untranslated, with the reason."""


class _Place(NamedTuple):
    """Lines of an entry: those of flags, the first of its keywords, those of `msgstr`."""

    flags: list
    begin: int
    start: int
    end: int


@dataclasses.dataclass
class Report:
    """How many entries of a catalog were translated, kept, and left untranslated."""

    translated: int = 0  # entries that were filled
    kept: int = 0  # entries that had a translation
    # {reason: entries that stay untranslated}
    left: collections.Counter = dataclasses.field(default_factory=collections.Counter)

    def __str__(self):
        reasons = ", ".join(f"{count} {reason}" for reason, count in self.left.items())
        return (
            f"{self.translated + self.kept + self.left.total()} entries: {self.translated} "
            f"translated, {self.kept} kept, {self.left.total()} left"
            + (f" ({reasons})" if reasons else "")
        )


class Catalog:
    """A catalog of messages.

    Args:
        path: path of a file `.po` or `.pot`, UTF-8.
        retranslate: whether entries that are marked fuzzy are translated again.

    Raises:
        InputError: if `polib` is missing, or the file is not a catalog in UTF-8, or has an entry
            twice.

    Attributes:
        texts: list of str, which `fill` needs translations of.
    """

    def __init__(self, path: StrPath, retranslate: bool = False):
        try:
            import polib  # noqa: PLC0415  an extra
        except ImportError as error:
            raise InputError(
                "catalogs of messages need polib: pip install 't2t_keras[catalogs]'."
            ) from error
        self._polib, self._path = polib, local_path(path)
        require_regular(path, "a catalog is")
        try:
            text = pathlib.Path(self._path).read_bytes().decode()
            self._lines = re.findall(r"[^\n]*\n|[^\n]+", text)
            catalog = polib.pofile(self._path, encoding="utf-8")
        except (OSError, ValueError) as error:
            raise InputError(
                f"{path} is not a catalog of messages in UTF-8: {' '.join(str(error).split())}; "
                "msgfmt --check lists its errors, msgconv --to-code=UTF-8 converts it."
            ) from error
        charset = re.search(r"charset=([^\s;]+)", catalog.metadata.get("Content-Type", ""))
        if charset and charset[1].lower() not in _CHARSETS:
            raise InputError(
                f"{path} is in {charset[1]}: convert it by msgconv --to-code=UTF-8 first."
            )
        entries, places = [entry for entry in catalog if not entry.obsolete], _places(self._lines)
        self._header = places.pop(0) if len(places) > len(entries) else None
        if len(places) != len(entries) or not (self._header or places):
            raise InputError(
                f"{path} is not a catalog of messages: msgfmt --check lists its errors."
            )
        seen = set()
        for entry in entries:
            if (key := (entry.msgctxt, entry.msgid)) in seen:
                raise InputError(
                    f"{path} line {entry.linenum}: the entry {entry.msgid!r} is there twice; keep "
                    "one of them (msguniq)."
                )
            seen.add(key)
        self._forms = _plural_forms(catalog.metadata.get("Plural-Forms", ""))
        self._wanted = [
            (entry, place)
            for entry, place in zip(entries, places, strict=True)
            if (retranslate and entry.fuzzy) or not all(_given(entry))
        ]
        self._kept = len(entries) - len(self._wanted)
        self.texts = [_Source(x).read for entry, _ in self._wanted for x in self._sources(entry)]

    def fill(self, translations: Sequence[str], fuzzy: bool = True) -> tuple[str, Report]:
        """Returns the text of the file with translations, one of each of `texts`, and a `Report`.

        Args: fuzzy, whether filled entries are marked so, the convention for machine translation.
        """
        translations = iter(translations)
        lines, report = list(self._lines), Report(kept=self._kept)
        for entry, place in self._wanted:
            pairs = [(source, next(translations)) for source in self._sources(entry)]
            try:
                self._put(lines, place, entry, _filled(entry, pairs), fuzzy)
                report.translated += 1
            except _Left as reason:
                report.left[str(reason)] += 1
                logging.warning(
                    "%s line %d: %r stays untranslated: %s",
                    self._path,
                    place.begin + 1,
                    entry.msgid,
                    reason,
                )
        if self._header:
            for number in range(self._header.start, self._header.end):
                lines[number] = lines[number].replace("charset=CHARSET", "charset=UTF-8")
        return "".join(lines), report

    def _sources(self, entry):
        """Returns the texts of an entry that are translated."""
        if not entry.msgid_plural:
            return [entry.msgid]
        if not self._forms:
            return []
        count, singular, others = self._forms
        same = _placeholders(entry.msgid, entry) == _placeholders(entry.msgid_plural, entry)
        if count == 1 or (others and not same):  # the form of 1 is also that of 21
            singular = None
        return [entry.msgid if n == singular else entry.msgid_plural for n in range(count)]

    def _put(self, lines, place, entry, forms, fuzzy):
        """Puts forms and flags of an entry into the lines of the file."""
        end = re.search(r"\r?\n?$", lines[place.begin])[0]
        last = end if place.end < len(lines) or lines[place.end - 1].endswith("\n") else ""
        written = []
        for number, form in enumerate(forms):
            name = f"msgstr[{number}]" if entry.msgid_plural else "msgstr"
            written += _quoted(name, form, self._polib.escape)
        for number in range(place.start, place.end):
            lines[number] = ""
        lines[place.start] = end.join(written) + last
        flags = [flag for flag in entry.flags if flag != "fuzzy"]
        flags = ["fuzzy", *flags] if fuzzy else flags
        if set(flags) != set(entry.flags):
            for number in place.flags:
                lines[number] = ""
            text = f"#, {', '.join(flags)}{end}" if flags else ""
            lines[place.begin] = text + lines[place.begin]


def translate_catalog(
    path: StrPath,
    output: StrPath,
    translate: Callable[[list[str]], list[str]],
    fuzzy: bool = True,
    retranslate: bool = False,
) -> Report:
    """Writes a catalog, a file `.po` or `.pot`, whose entries without a translation are filled.

    Args:
        path, output: of the file to read, and to write.
        translate: function of texts to their translations, such as `translator.documents`, which
            keeps placeholders and markup.
        fuzzy: see `Catalog.fill`.
        retranslate: see `Catalog`.

    Raises:
        InputError: see `Catalog`; nothing is written then.
    """
    catalog = Catalog(path, retranslate)
    text, report = catalog.fill(translate(catalog.texts) if catalog.texts else [], fuzzy)
    write_file(output, text.encode())
    logging.info("%s: %s", output, report)
    return report


def _filled(entry, translated):
    """Returns the forms of an entry of its pairs of a source and a translation; may raise _Left."""
    if not translated:
        raise _Left("plural forms without a header Plural-Forms that says how many")
    given = [] if entry.fuzzy else _given(entry)[: len(translated)]
    pairs = itertools.zip_longest(translated, given)
    return [own or _Source(source).put(translation, entry) for (source, translation), own in pairs]


class _Source:
    """A text of a catalog: what of it is translated, and what its translation gets back."""

    def __init__(self, text):
        self.before, core, self.after = re.fullmatch(r"(?s)(\s*)(.*?)(\s*)", text).groups()
        self._core, self._mark = core, ""
        self.read = core  # without an accelerator and without white space at both ends
        outside = _blanked(core)
        marks = [match.start() for match in _ACCELERATOR.finditer(outside)]
        if len(marks) == 1 and _is_accelerator(outside, marks[0]):
            self._mark, self._letter = core[marks[0]], core[marks[0] + 1]
            self.read = core[: marks[0]] + core[marks[0] + 1 :]

    def put(self, translation, entry):
        """Returns the translation as the entry needs it; raises _Left if it does not agree."""
        text = translation.strip()
        if not text and self.read:
            raise _Left("without a translation")
        if self._mark:
            if self._mark in _blanked(text):
                raise _Left("with another accelerator")
            text = _accelerated(text, self._mark, self._letter)
        if _placeholders(self._core, entry) != _placeholders(text, entry):
            raise _Left("with other placeholders")
        if _TAG.findall(self._core) != _TAG.findall(text):
            raise _Left("with other tags")
        if "java-format" in entry.flags and text.count("'") % 2:
            raise _Left("with an apostrophe that quotes placeholders")
        return f"{self.before}{text}{self.after}"


def _placeholders(text, entry):
    """Returns what is equal for two texts that have the same placeholders."""
    has_format = any(flag.endswith("-format") and flag[:3] != "no-" for flag in entry.flags)
    placeholders = (_OF_FORMAT if has_format else _ANY).findall(text)
    counts = [text.count(mark) for mark in "%{}"] if has_format else []
    return sorted(placeholders), [x for x in placeholders if not _NAMED.match(x)], counts


def _blanked(text):
    """Returns a text of the same length with spaces for placeholders, tags and entities."""
    pattern = (
        rf"{_ANY.pattern}|{_TAG.pattern}|&#?\w+;|https?://\S+|\S+@\S+|`[^`]*`|\w+(?:_\w+){{2,}}"
    )
    return re.sub(pattern, lambda match: " " * len(match[0]), text)


def _is_accelerator(text, place):
    """Returns whether the mark at a place is one, and not that of `Drag&Drop` or `file_name`.

    `drag&drop` looks like `e&xit`, and counts as one.
    """
    before, behind = text[:place], text[place + 1 :]
    if text[place] == "~" or not before or not before[-1].isalnum():
        return text.count(text[place]) == 1
    if text[place] == "&":  # E&xit
        return not behind[0].isupper()
    word = re.search(r"\w+$", before)[0]
    return text[place] == "_" and word[0].isupper() and behind[0].islower() and len(word) < 8


def _accelerated(text, mark, letter):
    """Returns a text with an accelerator: at the same letter, at the beginning of a word, or behind
    a text in a script that keyboards do not have keys of."""
    outside = _blanked(text)
    if not any(character.lower() != character.upper() for character in outside):
        return f"{text}({mark}{letter.upper()})"
    own = re.escape(letter)
    for pattern in (rf"\b{own}", own, r"\b[^\W\d_]", r"[^\W\d_]"):
        if match := re.search(pattern, outside, re.IGNORECASE):
            return f"{text[: match.start()]}{mark}{text[match.start() :]}"
    return text


def _given(entry):
    """Returns the translations that an entry has, "" for none."""
    return list(entry.msgstr_plural.values()) if entry.msgid_plural else [entry.msgstr]


def _plural_forms(header):
    """Returns how many forms there are, which that of 1 is, and whether others often have it too.

    None if the header does not say it.
    """
    match = re.fullmatch(r"\s*nplurals\s*=\s*(\d+)\s*;\s*plural\s*=\s*([^;]+);?\s*", header)
    try:
        form_of = gettext.c2py(match[2])
        forms = [form_of(number) for number in range(1001)]
    except (TypeError, ValueError, ArithmeticError):
        return None
    count = int(match[1])
    if count < 1 or max(forms) >= count:
        return None
    return count, forms[1], forms.count(forms[1]) >= _OFTEN


def _places(lines):
    """Returns the `_Place` of each entry that is not obsolete, in the order of the file."""
    places, flags, begin, start = [], [], None, None
    for number, line in enumerate([*lines, "#"]):
        text = line.strip()
        if start is not None and not text.startswith(('"', "msgstr")):
            places.append(_Place(flags, begin, start, number))
            flags, begin, start = [], None, None
        if text.startswith("#~"):
            flags = []  # those before it are an obsolete entry's
        elif text.startswith("#,") and begin is None:
            flags.append(number)
        elif begin is None and text.startswith(("#|", "msgctxt", "msgid")):
            begin = number
        elif start is None and text.startswith("msgstr"):
            start = number
    return places


def _quoted(name, text, escape):
    """Returns the lines of a name and its text in quotes, wrapped as gettext wraps them."""
    if "\n" not in text[:-1] and len(name) + len(escape(text)) + 3 <= _WIDTH:
        return [f'{name} "{escape(text)}"']
    lines = []
    for line in re.findall(r"[^\n]*\n|[^\n]+", text):
        lines.append("")
        for word in re.findall(r"\S*\s+|\S+", line):
            if lines[-1] and len(escape(lines[-1] + word.rstrip())) > _WIDTH - 2:
                lines.append("")
            lines[-1] += word
    return [f'{name} ""', *(f'"{escape(line)}"' for line in lines)]
