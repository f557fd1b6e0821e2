"""The lines of the guide for translators' files, with the converters, on files of each format."""

import functools
import json
import re
import subprocess

import pytest
import tensorflow as tf

from t2t_keras.tasks.documents import translate_documents
from t2t_keras.tasks.translation import Translator
from tests.end_to_end.guides import PAGES, find, run_bash, run_python
from tests.end_to_end.test_readme import commands, place  # noqa: F401  fixtures

INSTALL = find("translators_files.md", "python3 -m venv converters").text
README = find("translators_files.md", "md2po --no-code-blocks").text
CATALOG = find("translators_files.md", "--nofuzzy").text
IN_PYTHON = find("translators_files.md", "translate_catalog").text
VTT = find("translators_files.md", "webvtt.read").text
LINES = re.findall(
    r"^\| [^|]+ \| `(\S+2po (\S+) (\S+)\.po)` \| `(.+ (\S+))` \|$",
    PAGES["translators_files.md"],
    re.MULTILINE,
)

FILES = {
    "README.md": """---
title: The dog
---

# The *old* dog

It sees [a cat](x.md#y "A cat"), `code` and
**more** ![the dog](d.png).

```python
print('a')
```

~~~~
```
~~~~

[![badge](b.svg)](c)

| A dog | A cat |
| --- | --- |
| one | *two* |

- [ref]
- b

    indented = code

[ref]: https://x.org
""",
    "page.html": "<html><head><title>A dog</title></head><body><h1 id='a'>A <b>dog</b></h1><p>It "
    "sees <a href='b.html'>a cat</a>.</p></body></html>\n",
    "talk.srt": "1\n00:00:01,000 --> 00:00:02,000\nThe <i>old</i> dog.\n\n"
    "2\n00:00:03,000 --> 00:00:04,500\nIt\nis.\n",
    "ui.json": '{"menu": {"open": "Open {name}", "list": ["one", "two"]}}',
    "ui.yaml": "menu:\n  open: Open %s\n  list:\n  - one\n",
    "u.properties": "open=Open {0}\nclose=Close\n",
    "a.adoc": "= A dog\n\nThe *old* dog.\n\n----\ncode here\n----\n",
    "app.po": 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    'msgid "A dog"\nmsgstr ""\n',
    "talk.vtt": "WEBVTT - A title\nKind: captions\n\nNOTE a note\n\nSTYLE\n::cue { color: red }\n\n"
    "id1\n00:00:01.000 --> 00:00:04.000 align:start\nThe <c.x>old</c> dog\n",
}  # fmt: skip
STRUCTURE = r"""
import collections, json, sys
from lxml import html
from markdown_it import MarkdownIt
from ruamel.yaml import YAML
import webvtt
name = sys.argv[1]
text = open(name).read()
def keys(x):
    if isinstance(x, dict): return {k: keys(v) for k, v in x.items()}
    return [keys(v) for v in x] if isinstance(x, list) else bool(x)
if name.endswith(".md"):
    front, body = text.split("---\n")[1], text.split("---\n", 2)[2]
    def walk(tokens):
        for t in tokens:
            content = t.content if t.type in ("fence", "code_block", "code_inline") else ""
            yield t.type, t.tag, t.attrGet("href"), t.attrGet("src"), content
            yield from walk(t.children or [])
    tokens = walk(MarkdownIt("commonmark").enable("table").parse(body))
    found = [front, [t for t in tokens if t[0] not in ("text", "softbreak")]]
elif name.endswith(".html"):
    found = [[e.tag, dict(e.attrib)] for e in html.fromstring(text).iter()]
elif name.endswith((".srt", ".vtt")):
    cues = webvtt.from_srt(name) if name.endswith(".srt") else webvtt.read(name)
    found = [[c.identifier, c.start, c.end, c.raw_text.count("<")] for c in cues]
    found += [text.partition("id1\n")[0]] * name.endswith(".vtt")
elif name.endswith(".json"): found = keys(json.loads(text))
elif name.endswith(".yaml"): found = keys(YAML(typ="safe").load(text))
elif name.endswith(".adoc"): found = [text.count("\n"), text.split("----")[1]]
else: found = [line.partition("=")[0] for line in text.splitlines() if line]
print(json.dumps(found))
"""


def in_capitals(self, texts, terms=None, **languages):
    """Stands for `Translator.documents`: letters become capitals, spans and the rest stay."""
    del self, terms, languages
    upper = functools.partial(tf.strings.upper, encoding="utf-8")
    found = translate_documents(tf.constant(texts), upper, lambda x: x == "never")
    return [text.decode() for text in found.numpy()]


@pytest.mark.slow
def test_each_format_goes_there_and_back(commands, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(Translator, "documents", in_capitals)
    (tmp_path / "runs").symlink_to(commands / "runs")
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    try:
        run_bash(f"{INSTALL}converters/bin/pip install --quiet markdown-it-py lxml", tmp_path)
    except AssertionError:
        pytest.skip("no converters can be installed here")
    run_bash(README, tmp_path)
    run_bash(CATALOG, tmp_path)
    assert 'msgstr "A DOG"' in (tmp_path / "app.de.po").read_text()
    assert "1 entries: 1 translated" in run_python(IN_PYTHON, tmp_path)
    assert len(LINES) == 6
    for there, _, catalog, back, _ in LINES:
        command = README.splitlines()[2].replace("readme", catalog)
        run_bash(f"PATH=$PATH:$PWD/converters/bin\n{there}\n{command}\n{back}", tmp_path)
    python = tmp_path / "converters" / "bin" / "python"

    def structure(name):
        found = subprocess.check_output([python, "-c", STRUCTURE, name], cwd=tmp_path)
        return json.loads(found)

    pairs = [(source, target) for _, source, _, _, target in LINES]
    for source, target in [*pairs, ("README.md", "README.de.md")]:
        assert structure(target) == structure(source), target
        before, after = ((tmp_path / name).read_text() for name in (source, target))
        assert before != after and sum(map(str.isupper, after)) > sum(map(str.isupper, before))
    [packages] = (tmp_path / "converters").glob("lib/python*/site-packages")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "webvtt").symlink_to(packages / "webvtt")
    run_python(VTT, tmp_path)
    assert structure("talk.de.vtt") == structure("talk.vtt")
    assert "\nTHE <c.x>OLD</c> DOG\n" in (tmp_path / "talk.de.vtt").read_text()
