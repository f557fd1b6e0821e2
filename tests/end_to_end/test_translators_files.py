"""The lines of the guide for translators' files, with the converters, on files of each format."""

import functools
import io
import re
import shutil
import subprocess
import zipfile

import pytest
import tensorflow as tf

from t2t_keras.tasks import graph_translator
from t2t_keras.tasks.documents import translate_documents
from tests.end_to_end.guides import PAGES, find, run_bash, run_python

INSTALL = find("translators_files.md", "python3 -m venv converters").text
README = find("translators_files.md", "md2po --no-code-blocks").text
CATALOG = find("translators_files.md", "--input=app.po").text
IN_PYTHON = find("translators_files.md", "translate_catalog").text
SNIPPETS = {
    name: find("translators_files.md", word).text
    for name, word in {
        "talk.vtt": "webvtt.read", "job.xlf": "etree.parse", "en.strings": ".strings"
    }.items()
}  # fmt: skip
ANDROID = find("translators_files.md", "--input=strings.xml").text
OFFICE = find("translators_files.md", "odf2po").text
MAN = find("translators_files.md", "po4a-updatepo").text
LINES = {
    source: (there, README.splitlines()[2].replace("readme", catalog), back)
    for there, source, catalog, back in re.findall(
        r"^\| [^|]+ \| `(\S+2po (\S+) (\S+)\.po)` \| `(.+)` \|$",
        PAGES["translators_files.md"],
        re.MULTILINE,
    )
}

ODF = "urn:oasis:names:tc:opendocument:xmlns"
NAMES = " ".join(f'xmlns:{x}="{ODF}:{x}:1.0"' for x in ("office", "text", "table", "style"))
ODT = f"""<office:document-content {NAMES} office:version="1.2">
<office:automatic-styles><style:style style:name="T1" style:family="text"><style:text-properties
 xmlns:fo="{ODF}:xsl-fo-compatible:1.0" fo:font-style="italic"/></style:style>
</office:automatic-styles><office:body><office:text>
<text:h text:outline-level="1">«The dog»</text:h><text:p>«The» <text:span
 text:style-name="T1">«old»</text:span> «dog»<text:line-break/>«sees»
<text:note text:note-class="footnote"><text:note-citation>1</text:note-citation><text:note-body>
<text:p>«A note».</text:p></text:note-body></text:note> «it».</text:p><table:table><table:table-row>
<table:table-cell><text:p>«A cell»</text:p></table:table-cell></table:table-row></table:table>
</office:text></office:body></office:document-content>"""


def odt(content):
    """Returns the bytes of a document of LibreOffice, with a note and a table."""
    mimetype = "application/vnd.oasis.opendocument.text"
    entries = "".join(
        f'<m:file-entry m:full-path="{path}" m:media-type="{kind}"/>'
        for path, kind in (("/", mimetype), ("content.xml", "text/xml"))
    )
    manifest = f'<m:manifest xmlns:m="{ODF}:manifest:1.0" m:version="1.2">{entries}</m:manifest>'
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as parts:
        parts.writestr("mimetype", mimetype)
        parts.writestr("content.xml", content.replace("\n", ""))
        parts.writestr("META-INF/manifest.xml", manifest)
    return file.getvalue()


FILES = {
    "README.md": """---
title: The dog
---

# «The *old* dog»

«It sees [a cat»](x.md#y "«A cat»"), `code` «and
**more** ![the dog»](d.png).

```python
print('a')
```

~~~~
```
~~~~

[![«badge»](b.svg)](c)

| «A dog» | «A cat» |
| --- | --- |
| «one» | *«two»* |

- [«ref»]
- «b»

    «indented = code»

[«ref»]: https://x.org
""",
    "page.html": '<html><head><title>«A dog»</title></head><body><h1 id="a">«A» <b>«dog»</b></h1>'
    '<p>«It sees» <a href="b.html">«a cat»</a>.</p></body></html>\n',
    "talk.srt": "1\n00:00:01,000 --> 00:00:02,000\n«The» <i>«old»</i> «dog».\n\n"
    "2\n00:00:03,000 --> 00:00:04,500\n«It\nis».\n",
    "ui.json": '{"menu": {"open": "«Open» {name}", "list": ["«one»", "«two»"]}}',
    "ui.yaml": "menu:\n  open: «Open» %s\n  list:\n  - «one»\n",
    "u.properties": "open=«Open» {0}\nclose=«Close»\n",
    "a.adoc": "= A dog\n\n«The *old* dog».\n\n----\ncode here\n----\n",
    "app.po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    'msgid "A dog"\nmsgstr ""\n',
    "talk.vtt": "WEBVTT - A title\nKind: captions\n\nNOTE a note\n\nSTYLE\n::cue { color: red }\n\n"
    "id1\n00:00:01.000 --> 00:00:04.000 align:start\n«The» <c.x>«old»</c> «dog»\n",
    "job.xlf": '<xliff xmlns="urn:oasis:names:tc:xliff:document:1.2" version="1.2"><file><body>'
    '<trans-unit id="1"><source>The <g id="1">old</g> dog<x id="2"/> &amp; it</source>\n<target/>'
    '<note>A note</note></trans-unit><trans-unit id="2" translate="no"><source>One</source>'
    '</trans-unit><trans-unit id="3"><source>A</source><target state="final">Ein</target>'
    '<alt-trans><source>B</source></alt-trans></trans-unit></body></file><file><body/></file>'
    "</xliff>",
    "job2.xlf": '<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0"><file><unit '
    'id="u"><notes><note>A note</note></notes><segment><source>The <pc id="1">old</pc><ph id="2"/>'
    "</source></segment><segment><source>Two.</source></segment></unit></file></xliff>",
    "en.strings": '/* "The" = "menu" */\n"open" = "«Open» %@";\n"A \\"dog\\"" = "«A» \\"«dog»\\"\\n'
    '«is»";\n// Only\nkey="";\n',
    "strings.xml": """<?xml version="1.0" encoding="utf-8"?>
<resources xmlns:xliff="urn:oasis:names:tc:xliff:document:1.2">
    <!-- The menu -->
    <string name="app" translatable="false">DogApp</string>
    <string name="open">«Open» <b>«the»</b> «dog» %1$s\\n&amp; «it»</string>
    <string name="hi">«Hi» <xliff:g id="n" example="Jo">%1$s</xliff:g>.</string>
    <string name="ref">@string/app</string>
    <string name="html"><![CDATA[«The» <b>«dog»</b>]]></string>
    <string-array name="list"><item>«One»</item></string-array>
    <plurals name="n"><item quantity="one">%d «dog»</item></plurals>
</resources>
""",
    "letter.odt": ODT,
    "dog.1": '.TH DOG 1 "May 2026"\n.SH NAME\ndog \\- sees a cat\n.SH OPTIONS\n.TP\n.B \\-\\-all\n'
    "The \\fIold\\fR dog\\(em see\n.BR cat (1).\n.PP\n.nf\ndog \\-\\-all\n.fi\n",
}  # fmt: skip
"""Texts, each with marks around what is translated."""
OF_WORD = r"<w:(?:p|r|t|b|i|br|tbl|tc|hyperlink|footnoteReference)(?=[ />])"


def written(name, content):
    """Returns the bytes of a file."""
    text = re.sub("[«»]", "", content)
    return odt(text) if name.endswith("odt") else text.encode()


def comparable(text):
    """Returns a text without white space, lengths of rulers, new targets and an XML declaration."""
    text = re.sub(r"<target>.*?</target>|<target/>|<\?xml.*?\?>", "", text)
    return re.sub("-+", "-", "".join(text.split()))


def parts_of_a_man_page(text):
    """Returns macros, and words in bold and italics, whichever way they are written."""
    text = text.replace("\\fP", "\\fR")
    text = re.sub(r"(?m)^\.B (.*)", r"\\fB\1\\fR", re.sub(r"(?m)^\.BR (\S+) ", r"\\fB\1\\fR", text))
    return re.findall(r"(?m)^\.[A-Z]\w*|^\.[a-z]\w|\\f[BI].*?\\fR", text)


def in_capitals(texts, translate, is_too_long, *rest, **options):
    """Stands for `translate_documents`: letters become capitals, spans and the rest stay."""
    del translate
    upper = functools.partial(tf.strings.upper, encoding="utf-8")
    return translate_documents(texts, lambda x, *_: upper(x), is_too_long, *rest, **options)


@pytest.fixture(scope="module")
def folder(trained, tmp_path_factory):
    """A folder with a run, the files and the converters."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "runs").mkdir()
    (folder / "runs" / "grammar").symlink_to(trained)
    for name, content in FILES.items():
        (folder / name).write_bytes(written(name, content))
    try:
        run_bash(INSTALL, folder)
    except AssertionError:
        pytest.skip("no converters can be installed here")
    return folder


@pytest.fixture
def translated(folder, monkeypatch):
    """A function of a script and two files: runs it, checks that what is marked is translated."""
    monkeypatch.setattr(graph_translator, "translate_documents", in_capitals)
    monkeypatch.syspath_prepend(folder)

    def run(script, source, target):
        run_python(script, folder) if "import" in script else run_bash(script, folder)
        before, after = (read(folder / name) for name in (source, target))
        if source.endswith(".1"):
            assert parts_of_a_man_page(after) == parts_of_a_man_page(before)
        elif source.endswith(".docx"):  # LibreOffice adds properties each time
            assert re.findall(OF_WORD, after) == re.findall(OF_WORD, before)
            texts = ["".join(re.findall("<w:t(?: [^>]*)?>(.*?)</w:t>", x)) for x in (before, after)]
            assert texts[1] == texts[0].upper() != texts[0]  # all of it is marked
        else:
            expected = re.sub(r"(?s)«(.*?)»", lambda found: found[1].upper(), FILES[source])
            assert comparable(after) == comparable(expected)
        return after

    return run


def read(path):
    """Returns the text of a file; of an archive that of its main part."""
    if not zipfile.is_zipfile(path):
        return path.read_text()
    with zipfile.ZipFile(path) as parts:
        [name] = {"content.xml", "word/document.xml"} & {*parts.namelist()}
        return parts.read(name).decode()


@pytest.mark.slow
def test_a_catalog_is_filled(folder, monkeypatch):
    monkeypatch.setattr(graph_translator, "translate_documents", in_capitals)
    run_bash(CATALOG, folder)
    assert 'msgstr "A DOG"' in (folder / "app.de.po").read_text()
    assert "1 entries: 1 translated" in run_python(IN_PYTHON, folder)


@pytest.mark.slow
@pytest.mark.parametrize("source", ["README.md", *LINES])
def test_a_format_goes_there_and_back_through_a_catalog(translated, source):
    script = README
    if source != "README.md":
        script = "\n".join(["PATH=$PATH:$PWD/converters/bin", *LINES[source]])
    translated(script, source, source.replace(".", ".de."))
    assert len(LINES) == 6


@pytest.mark.slow
@pytest.mark.parametrize(("source", "target", "part"), [
    ("talk.vtt", "talk.de.vtt", "\nTHE <c.x>OLD</c> DOG\n"),
    ("job.xlf", "job.de.xlf", '<target>THE <g id="1">OLD</g> DOG<x id="2"/> &amp; IT</target>'),
    ("job2.xlf", "job2.de.xlf", '<target>THE <pc id="1">OLD</pc><ph id="2"/></target>'),
    ("en.strings", "de.strings", '"A \\"dog\\"" = "A \\"DOG\\"\\nIS";\n'),
])  # fmt: skip
def test_a_format_is_translated_in_python(translated, folder, source, target, part):
    [packages] = (folder / "converters").glob("lib/python*/site-packages")
    if not (folder / "webvtt").exists():
        (folder / "webvtt").symlink_to(packages / "webvtt")
    script = SNIPPETS[source.replace("job2", "job")].replace("job", source.partition(".")[0])
    assert part in translated(script, source, target)


@pytest.mark.slow
def test_strings_of_android_are_a_document(translated):
    found = translated(ANDROID, "strings.xml", "strings.de.xml")
    assert ">OPEN <b>THE</b> DOG %1$s\\n&amp; IT<" in found


@pytest.mark.slow
def test_documents_of_libreoffice_and_office(translated, folder):
    has_office = shutil.which("soffice")
    if has_office:
        command = "soffice --headless --convert-to docx letter.odt"
        subprocess.run(command.split(), cwd=folder, check=True, capture_output=True)
    script = OFFICE.splitlines()
    found = translated("\n".join(script if has_office else [script[0], *script[2:-1]]),
        "letter.odt", "letter.de.odt")  # fmt: skip
    assert ">OLD<" in found and ">A NOTE.<" in found
    if has_office:
        translated(":", "letter.docx", "letter.de.docx")


@pytest.mark.slow
def test_pages_of_manuals(translated):
    if not shutil.which("po4a-updatepo"):
        pytest.skip("po4a is not installed")
    found = translated(MAN, "dog.1", "dog.de.1")
    assert "THE \\fIold\\fP DOG\\(em SEE \\fBcat\\fP(1).\n" in found
