"""Two real files as documents: a page of HTML, and a file of a program's strings."""

import ast
import html
import html.parser
import importlib.util
import pathlib
import re

import pytest

from t2t_keras.tasks.document_lines import join_lines
from tests.tasks.in_capitals import in_capitals

RAW = ("script", "style", "pre", "code")
PLACEHOLDER = re.compile(r"%\(\w+\)[a-z]|%[sd]|\{\w*\}|</?\w[^>]*>|https?:\S+[\w/]")


def path_in(package, *parts):
    spec = importlib.util.find_spec(package)
    path = spec and pathlib.Path(spec.origin).parent.joinpath(*parts)
    if not path or not path.exists():
        pytest.skip(f"{package} is not installed: it has the file {parts[-1]}")
    return path


class Page(html.parser.HTMLParser):
    """The tags of a page in order, and its text outside of raw elements and inside of them."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.text, self.raw, self._inside = [], "", "", []
        self.feed(content)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, attributes))
        self._inside += [tag] * (tag in RAW)

    def handle_endtag(self, tag):
        self.tags.append(tag)
        if tag in self._inside:
            self._inside.remove(tag)

    def handle_data(self, data):
        if self._inside:
            self.raw += data
        else:
            self.text += data

    def handle_decl(self, declaration):
        self.tags.append(declaration)

    handle_comment = handle_pi = handle_decl


@pytest.mark.slow
def test_a_page_of_documentation_keeps_its_tags_and_sentences():
    path = path_in("idlelib", "help.html")
    with path.open("rb") as file:
        found, sentences = in_capitals([*join_lines(file)], limit=500)
    before, after = Page(path.read_text("utf-8")), Page("".join(found))
    assert after.tags == before.tags and len(before.tags) > 1000
    assert after.raw == before.raw
    assert after.text.casefold().split() == before.text.casefold().split()
    # What stays in small letters is spans.
    small = [word for word in after.text.split() if word != word.upper()]
    assert len(small) < 0.02 * len(after.text.split()), small
    assert len(sentences) > 300


@pytest.mark.slow
def test_strings_of_a_program_keep_their_placeholders():
    path = path_in("django", "conf", "locale", "en", "LC_MESSAGES", "django.po")
    strings = [
        "".join(ast.literal_eval(part) for part in match[1].split("\n") if part)
        for match in re.finditer(r'^msgid(?:_plural)? ((?:".*"\n)+)', path.read_text("utf-8"), re.M)
    ]
    lines = [string.replace("\n", " ") + "\n" for string in strings if string]
    found, _ = in_capitals([*join_lines(line.encode() for line in lines)], limit=500)
    found = "".join(found).splitlines(keepends=True)
    for line, translation in zip(lines, found, strict=True):
        assert PLACEHOLDER.findall(translation) == PLACEHOLDER.findall(line)
        assert translation.casefold().split() == line.casefold().split()
        rest = html.unescape(PLACEHOLDER.sub("", translation)).replace(":ss", "")  # like :count
        assert rest == rest.upper(), translation
    assert len(found) > 200
