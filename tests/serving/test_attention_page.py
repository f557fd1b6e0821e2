"""The page of a sentence's attention in a browser: a file, without server or network."""

import re

import numpy as np
import pytest

from t2t_keras.serving.demo.attention_page import attention_page

pytest.importorskip("selenium", reason="the extra test is not installed: no selenium")

from selenium.webdriver.common.action_chains import ActionChains

from tests.serving.browser import Page, open_page

SOURCE, TARGET = ["▁the", "▁ox", "</s>"], ["▁der", "▁Och", "se", "</s>"]
HOSTILE = "</script><script>document.title = 1</script> <!-- {{ data }} \u2028"
KINDS = {
    "encoder self-attention": (("source", "source"), SOURCE, SOURCE),
    "decoder self-attention": (("translation so far", "translation so far"), TARGET, TARGET),
    "cross-attention": (("source", "translation"), SOURCE, TARGET),
}


def weights(keys, queries):
    found = np.exp(np.random.default_rng(queries).normal(0, 2, (2, 3, queries, keys)))
    return found / found.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    maps = [
        (title, names, keys, queries, weights(len(keys), len(queries)))
        for title, (names, keys, queries) in KINDS.items()
    ]
    path = tmp_path_factory.mktemp("page") / "attention.html"
    path.write_text(attention_page("runs/one", HOSTILE, "Der Ochse", maps), encoding="utf-8")
    return path


@pytest.fixture
def page(chromium, file):
    with open_page(chromium, Page) as page:
        yield page.open(file.as_uri())


def test_the_file_asks_for_nothing(file):
    html = file.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[\w./]*", html)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"""(src|href|action)\s*=|@import|url\(""", html)


def test_each_kind_layer_and_head_is_shown_and_reacts_to_the_pointer(page):
    assert page.texts("#kinds span") == list(KINDS)
    assert page.texts("#sentence") == [HOSTILE]
    assert page.texts("#translation") == ["Der Ochse"]
    assert page.browser.title == "Attention of a sentence"
    for index, (names, keys, queries) in enumerate(KINDS.values()):
        page.choose("kind", index)
        page.choose("layer", 0)
        page.choose("head", 2)
        assert len(page.texts("#source .piece")) == len(keys)
        assert len(page.texts("#target .piece")) == len(queries)
        assert page.texts("#column-name, #row-name") == [names[1], names[0]]
        x, y = page.cell(2, 1)
        matrix = page.find("#matrix")
        ActionChains(page.browser, 0).move_to_element_with_offset(matrix, x, y).perform()
        shown = f"{weights(len(keys), len(queries))[0, 2, 2, 1]:.3f}"
        assert page.find("#readout").text.endswith(shown)
        assert page.script("return document.documentElement.scrollWidth <= innerWidth")
