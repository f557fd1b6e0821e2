"""Catalogs of messages: what is filled, what stays byte for byte, and what msgfmt says of it."""

import re
import shutil
import subprocess

import polib
import pytest

from t2t_keras.errors import InputError
from t2t_keras.tasks.catalogs import translate_catalog

HEADER = (
    'msgid ""\nmsgstr ""\n"Content-Type: text/plain; charset=UTF-8\\n"\n"Language: de\\n"\n'
    '"Plural-Forms: nplurals=2; plural=(n != 1);\\n"\n\n'
)


def upper(texts):
    """Translates by capitals outside of placeholders and tags."""
    kept = r"(%\(\w+\)s|%\w|%%|\{[^}]*\}|<[^>]*>|&\w+;)"
    return ["".join(re.split(kept, x)[0::2]) and re.sub(
        rf"{kept}|[^%{{<&]+", lambda found: found[0] if found[1] else found[0].upper(), x
    ) for x in texts]  # fmt: skip


def filled(tmp_path, entries, translate=upper, header=HEADER, **options):
    """Returns a catalog's text behind its header when it is filled, and the report."""
    path, output = tmp_path / "a.po", tmp_path / "b.po"
    path.write_bytes(f"{header}{entries}".encode())
    report = translate_catalog(path, output, translate, **options)
    if shutil.which("msgfmt"):
        subprocess.run(["msgfmt", "--check", "-o", tmp_path / "b.mo", output], check=True)
    text = output.read_bytes().decode()
    assert text.startswith(header)
    return text[len(header) :], report


KEPT = (
    "# A translator.\n#. A programmer.\n#: a.py:1\n#, python-format\n#| msgid \"Was %s\"\n"
    'msgctxt "menu"\nmsgid "Is %s"\nmsgstr "Ist "\n"%s"\n\n'
    '#, fuzzy\n#| msgid "Old"\nmsgid "New"\nmsgstr "Alt"\n\n'
)  # fmt: skip


def test_entries_without_translation_are_filled_and_the_rest_stays(tmp_path):
    entries = (
        f'{KEPT}#: b.py:2\n#, python-format\nmsgid "Dog %(name)s"\nmsgstr ""\n\n'
        'msgctxt "c"\nmsgid ""\n"A\\n"\n"b.\\n"\nmsgstr ""\n\n#~ msgid "x"\n#~ msgstr "y"\n'
    )
    expected = (
        f'{KEPT}#: b.py:2\n#, fuzzy, python-format\nmsgid "Dog %(name)s"\nmsgstr "DOG %(name)s"\n\n'
        '#, fuzzy\nmsgctxt "c"\nmsgid ""\n"A\\n"\n"b.\\n"\nmsgstr ""\n"A\\n"\n"B.\\n"\n\n'
        '#~ msgid "x"\n#~ msgstr "y"\n'
    )
    found, report = filled(tmp_path, entries)
    assert found == expected
    assert str(report) == "4 entries: 2 translated, 2 kept, 0 left"
    found, _ = filled(tmp_path, entries, fuzzy=False)
    assert found == expected.replace("#, fuzzy, py", "#, py").replace(
        "#, fuzzy\nmsgctxt", "msgctxt"
    )
    found, _ = filled(tmp_path, entries, retranslate=True)
    assert found == expected.replace("Alt", "NEW")
    assert filled(tmp_path, KEPT.replace("\n", "\r\n"))[0] == KEPT.replace("\n", "\r\n")
    last = 'msgid "a"\nmsgstr ""'  # without a line end, with \r\n
    assert filled(tmp_path, last, fuzzy=False)[0] == 'msgid "a"\nmsgstr "A"'
    found, _ = filled(tmp_path, last.replace("\n", "\r\n"))
    assert found == '#, fuzzy\r\nmsgid "a"\r\nmsgstr "A"'


def test_flags_of_an_obsolete_entry_stay(tmp_path):
    old = '#, fuzzy\n#~ msgid "x"\n#~ msgstr "y"\n\n'
    found, _ = filled(tmp_path, f'{old}#, c-format\nmsgid "a"\nmsgstr ""\n')
    assert found == f'{old}#, fuzzy, c-format\nmsgid "a"\nmsgstr "A"\n'


@pytest.mark.parametrize(("forms", "singular", "plural", "written"), [
    ("nplurals=2; plural=n > 1;", "A dog", "%d dogs", ["A DOG", "%d DOGS"]),
    ("nplurals=1; plural=0;", "A dog", "%d dogs", ["%d DOGS"]),
    ("nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2;",
     "%d dog", "%d dogs", ["%d DOG", "%d DOGS", "%d DOGS"]),
    ("nplurals=3; plural=n%10==1 && n%100!=11 ? 0 : n%10>=2 && (n%100<10 || n%100>=20) ? 1 : 2;",
     "A dog", "%d dogs", ["%d DOGS"] * 3),  # the first form is that of 21, too
])  # fmt: skip
def test_plural_forms_are_those_of_the_header(tmp_path, forms, singular, plural, written):
    header = HEADER.replace("nplurals=2; plural=(n != 1);", forms)
    entry = f'#, c-format\nmsgid "{singular}"\nmsgid_plural "{plural}"\n'
    found, _ = filled(tmp_path, f'{entry}msgstr[0] ""\nmsgstr[1] ""\n', header=header, fuzzy=False)
    lines = [f'msgstr[{number}] "{text}"\n' for number, text in enumerate(written)]
    assert found == entry + "".join(lines)


def test_without_plural_forms_in_the_header_entries_are_left(tmp_path):
    entry = 'msgid "A dog"\nmsgid_plural "Dogs"\nmsgstr[0] ""\nmsgstr[1] ""\n'
    for forms in ("Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;", "X-A: b"):
        header = HEADER.replace("Plural-Forms: nplurals=2; plural=(n != 1);", forms)
        path, output = tmp_path / "a.pot", tmp_path / "b.po"
        path.write_text(header.replace("UTF-8", "CHARSET") + entry)
        report = translate_catalog(path, output, upper)
        assert output.read_text() == header + entry
        assert str(report).endswith("without a header Plural-Forms that says how many)")


@pytest.mark.parametrize(("source", "read", "translation", "written"), [
    ("&File", "File", "Datei", "&Datei"),
    ("Save _As…", "Save As…", "Sichern als", "Sichern _als"),
    ("E&xit", "Exit", "Ende", "&Ende"),
    ("~Open", "Open", "打开", "打开(~O)"),
    ("_Open %s", "Open %s", "%s öffnen", "%s _öffnen"),
    ("AT&T", "AT&T", "AT&T", "AT&T"),
    ("Drag&Drop", "Drag&Drop", "Ziehen&Ablegen", "Ziehen&Ablegen"),
    ("A && B", "A && B", "A && B", "A && B"),
    ("file_name and &copy;", "file_name and &copy;", "x", "x"),
    ("  A\n", "A", " B ", "  B\n"),
    ("100% of it", "100% of it", "100 % davon", "100 % davon"),
    ("\t\n", "", "", "\t\n"),
])  # fmt: skip
def test_accelerators_and_white_space_at_ends_are_those_of_the_source(
    tmp_path, source, read, translation, written
):
    def translate(texts):
        assert texts == [read]
        return [translation]

    quoted = source.replace("\n", "\\n").replace("\t", "\\t")
    filled(tmp_path, f'msgid "{quoted}"\nmsgstr ""\n', translate, fuzzy=False)
    assert polib.pofile(tmp_path / "b.po")[0].msgstr == written


@pytest.mark.parametrize(("flag", "source", "translation", "reason"), [
    ("python-format", "%s dogs %d", "%d Hunde %s", "placeholders"),
    ("python-format", "%(n)d dogs", "Hunde", "placeholders"),
    ("python-format", "100%% dog", "100% Hund", "placeholders"),
    ("python-format", "100 % of it", "100 % davon", "placeholders"),
    ("python-brace-format", "{n} dogs {}", "{m} Hunde {}", "placeholders"),
    ("c-format", "%-5.2f%s", "%f%s", "placeholders"),
    ("java-format", "{0} dogs", "l'{0}", "apostrophe"),
    ("", "<b>A</b> dog", "<b>Hund", "tags"),
    ("", "{name}", "{Name}", "placeholders"),
    ("", "&File", "A & B", "accelerator"),
    ("", "A dog", " ", "without a translation"),
])  # fmt: skip
def test_an_entry_whose_translation_does_not_agree_stays_untranslated(
    tmp_path, caplog, flag, source, translation, reason
):
    entry = f'#, {flag}\nmsgid "{source}"\nmsgstr ""\n'.removeprefix("#, \n")
    found, report = filled(tmp_path, entry, lambda texts: [translation])
    assert found == entry and reason in str(report)
    assert f"{source!r} stays untranslated" in caplog.text


@pytest.mark.parametrize("placeholders", [
    "%(a)s %(b)d", "{a} {b!r:>10}", "%1$s %2$s", "${a} $b", "%1 %2", "%{a} %<b>s",
])  # fmt: skip
def test_placeholders_with_names_or_numbers_may_change_places(tmp_path, placeholders):
    first, second = placeholders.split()
    entry = f'msgid "A {first} b {second}"\nmsgstr ""\n'
    _, report = filled(tmp_path, entry, lambda texts: [f"{second} B {first}"])
    assert report.translated == 1


def test_long_translations_are_wrapped_and_quoted(tmp_path):
    text = f'"{"word " * 30}\t{"x" * 90}\\ end.'
    quoted = text.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
    found, _ = filled(tmp_path, f'msgid "{quoted}"\nmsgstr ""\n', list, fuzzy=False)
    lines = found.splitlines()[2:]
    assert max(map(len, lines)) == 95 and sum(len(line) < 80 for line in lines) == len(lines) - 1
    assert polib.pofile(tmp_path / "b.po")[0].msgstr == text


@pytest.mark.parametrize(("content", "message"), [
    (b"", "is not a catalog"),
    (b"Just text.\n", "is not a catalog of messages in UTF-8: Syntax error"),
    (b'msgid "a', "is not a catalog of messages"),
    (b'msgid "a\xe4"\nmsgstr ""\n', "in UTF-8: 'utf-8' codec can't decode"),
    (HEADER.replace("UTF-8", "ISO-8859-1").encode(), "is in ISO-8859-1: convert it by msgconv"),
    (2 * b'msgid "a"\nmsgstr ""\n', "line 3: the entry 'a' is there twice"),
])  # fmt: skip
def test_what_is_no_catalog_is_refused_and_nothing_is_written(tmp_path, content, message):
    path, output = tmp_path / "a.po", tmp_path / "b.po"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(message)) as error:
        translate_catalog(path, output, upper)
    assert "\n" not in str(error.value) and not output.exists()
