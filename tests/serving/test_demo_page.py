"""The page in a browser: what its reader sees and does."""

import threading

import numpy as np
import pytest

for package in ("flask", "waitress", "selenium"):
    pytest.importorskip(package, reason=f"the extras demo and test are not installed: no {package}")

import waitress.server  # noqa: E402
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402

from t2t_keras.serving.demo.app import (  # noqa: E402
    Alignment,
    ExportedTranslator,
    Found,
    FoundTranslation,
    create_app,
)
from tests.serving.browser import Page, open_page  # noqa: E402

pytestmark = pytest.mark.slow

SENTENCE = "The old man sees a small dog."
HOSTILE = (
    "<script>document.title = 1</script> <img src=x onerror=alert(1)> \"'&amp; "
    "\u202e\u05d0\u05d1\u05d2\u202c \u0645\u0631\u062d\u0628\u0627 \U0001f468\u200d\U0001f469 "
    "{{ 7 * 7 }} \x00\x07 " + "Donaudampfschifffahrt" * 4
)
LAYERS, HEADS = 2, 3


class Echo:
    """Says back what it is told, in capitals too; attends as a random generator decides."""

    answers = threading.Event()
    answers.set()
    modes = ()

    def translate(self, text):
        self.answers.wait(20)
        found = [(text, -0.25), (text.upper(), -1.5), ("", -12.0)]
        return Found([FoundTranslation(*pair) for pair in found], len(text) > 500)

    def align(self, text, translation):
        if text == "fail":
            raise ValueError("as asked")
        source, target = (
            [f"▁{word}" for word in t.split()] + ["</s>"] for t in (text, translation)
        )
        logits = np.random.default_rng(1).normal(0, 2, (LAYERS, HEADS, len(target), len(source)))
        weights = np.exp(logits)
        return Alignment(source, target, weights / weights.sum(-1, keepdims=True))


class Teller(Echo):
    """Tells its tokens, draws samples and takes documents."""

    modes = ("document", "sample", "terms", "document_terms")

    def translate(self, text, terms=""):
        if terms:
            return Found([FoundTranslation(f"{text} {terms}", -0.25)], False)
        if text != "A \U0001f600 dog.":
            return super().translate(text)
        tokens = [  # "Ein 😀 Hund!", whose second word is two tokens
            [0, 3, np.log(0.9), 0, 1],
            [4, 5, np.log(0.5), 2, 3],
            [4, 5, np.log(0.8), 2, 3],
            [6, 8, np.log(0.5), 4, 7],
            [8, 10, np.log(0.3), 0, 1],
            [10, 11, np.log(0.1), 7, 8],
            [0, 0, np.log(0.9), 0, 0],
        ]
        return Found([FoundTranslation("Ein \U0001f600 Hund!", -0.5, tokens)], False)

    def sample(self, text, **settings):
        return Found([FoundTranslation(f"{text} {settings}", -1.0)] * 2, False)

    def document(self, text, terms=""):
        return text.upper() + terms


@pytest.fixture(scope="module")
def serve():
    """A function from a model to the page's address."""
    servers = []

    def start(model):
        server = waitress.server.create_server(create_app(model, "export/1"), port=0)
        threading.Thread(target=server.run, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.effective_port}"

    yield start
    for server in servers:
        server.close()


@pytest.fixture(scope="module")
def echo(serve):
    return serve(Echo())


@pytest.fixture(scope="module")
def teller(serve):
    return serve(Teller())


class DemoPage(Page):
    """The demo as its reader handles it."""

    def translate(self, text):
        """Asks for a text, put where send_keys could not type all of it, and waits."""
        self.script(
            "element('text').value = arguments[0]; element('source').replaceChildren();", text
        )
        self.find("#send").click()
        self.wait(lambda: self.texts("#source .piece"))

    def choose_mode(self, mode):
        self.find(f"input[value={mode}] + span").click()


@pytest.fixture
def page(chromium):
    with open_page(chromium, DemoPage) as page:
        yield page


def weight(text, translation, layer, head, target, source):
    attention = Echo().align(text, translation).attention
    layers = slice(None) if layer < 0 else [layer]
    heads = slice(None) if head < 0 else [head]
    return f"{attention[layers][:, heads].mean((0, 1))[target, source]:.3f}"


def test_a_typed_sentence_is_translated_with_its_n_best(page, serve, exported):
    model = ExportedTranslator(exported)
    page.open(serve(model))
    page.find("#text").send_keys(SENTENCE, Keys.ENTER)
    page.wait(lambda: page.texts("#source .piece"))
    expected = model.translate(SENTENCE).translations
    assert len(expected) > 1
    assert page.texts("#translation") == [expected[0].text]
    assert page.texts("#n-best .candidate") == [found.text for found in expected]
    assert page.texts("#n-best .score") == [f"{x.score:.3f}".replace("-", "−") for x in expected]
    assert page.texts("#source-text") == [SENTENCE]
    alignment = model.align(SENTENCE, expected[0].text)
    assert len(page.texts("#source .piece")) == len(alignment.source_pieces)
    assert len(page.texts("#target .piece")) == len(alignment.target_pieces)
    assert "".join(page.texts("#source .piece"))[:-3] == SENTENCE.replace(" ", "")


def test_unlikely_words_are_marked_and_words_show_their_source(page, teller):
    page.open(teller).translate("A \U0001f600 dog.")
    assert page.texts("#translation") == ["Ein \U0001f600 Hund!"]
    assert page.texts("#translation .word") == ["Ein", "Hund"]  # no mark is a word
    assert page.texts("#translation .unsure") == []
    assert page.texts("#translation .doubtful") == ["Hund"]  # 0.5 · 0.3
    assert page.find("#word").text.startswith("1 word is less likely than not.")
    ein, hund = page.browser.find_elements(By.CSS_SELECTOR, "#translation .word")
    for word, expected in ((ein, ["A"]), (hund, ["A", "dog"])):
        ActionChains(page.browser, 0).move_to_element(word).perform()
        assert page.texts("#source-text mark") == expected
        assert page.texts("#source-text") == ["A \U0001f600 dog."]
        assert page.texts("#translation .pointed") == [word.text]
    assert page.find("#word").text == "“Hund” has probability 0.150, from “A” and “dog”"
    ActionChains(page.browser, 0).move_to_element(page.find("h1")).perform()
    assert page.texts("#source-text mark") == []
    page.script("document.querySelector('#translation .doubtful').focus()")  # by Tab, too
    assert page.texts("#source-text mark") == ["A", "dog"]
    page.translate("one two")  # without tokens
    assert not page.find("#words").is_displayed()
    assert page.texts("#translation .word") == []


def test_a_document_keeps_its_lines_and_samples_have_their_settings(page, teller):
    page.open(teller)
    text = page.find("#text")
    assert page.texts("#modes label") == ["Sentence", "Document", "Samples"]
    page.choose_mode("document")
    assert page.find("#text-label").text == "Document"
    text.send_keys("one two.", Keys.ENTER, Keys.ENTER, "three.", Keys.CONTROL, Keys.ENTER)
    page.wait(lambda: page.texts("#translation") == ["ONE TWO.\n\nTHREE."])
    assert page.find("#translation").value_of_css_property("white-space") == "pre-wrap"
    assert not page.find("#n-best").is_displayed()
    assert not page.find("#picture").is_displayed()
    assert "10,000" in page.find("#count").text

    page.choose_mode("sample")
    for name, value in {"temperature": "0.5", "top-p": "0.9", "seed": "-7"}.items():
        page.find(f"#{name}").clear()
        page.find(f"#{name}").send_keys(value)
    page.translate("one")
    settings = {"seed": -7, "temperature": 0.5, "top_p": 0.9}
    assert page.texts("#n-best .candidate") == [f"one {settings}"] * 2
    assert page.find("#n-best-heading").text.lower() == "samples"
    page.find("#temperature").clear()
    page.find("#send").click()
    page.wait(lambda: "temperature is None" in page.find("#error").text)
    (refused,) = page.browser.get_log("browser")
    assert "400" in refused["message"]
    page.choose_mode("sentence")
    assert not page.find("#sampling").is_displayed()
    page.find("summary").click()
    page.find("#terms").send_keys("dog = Hund", Keys.ENTER, "cat")
    page.find("#send").click()
    page.wait(lambda: "The term 'cat' has another form" in page.find("#error").text)
    page.find("#terms").send_keys(" =Katze ")
    page.browser.get_log("browser")
    page.translate("one")
    assert page.texts("#translation") == ["one dog\tHund\ncat\tKatze"]
    page.choose_mode("document")
    page.find("#text").clear()
    page.find("#text").send_keys("one", Keys.ENTER, "two")
    page.find("#send").click()
    page.wait(lambda: page.find("#translation").text.startswith("ONE\nTWOdog"))
    page.choose_mode("sample")
    assert not page.find("#terms").is_displayed()


def test_the_picture_reacts_to_the_pointer(page, echo):
    page.open(echo).translate(SENTENCE)
    page.choose("layer", 0)
    page.choose("head", 1)
    before = page.picture()
    matrix = page.find("#matrix")
    x, y = page.cell(1, 4)
    ActionChains(page.browser, 0).move_to_element_with_offset(matrix, x, y).perform()
    expected = weight(SENTENCE, SENTENCE, 0, 1, 1, 4)
    assert page.find("#readout").text == f"“old” looks at “a” {expected}"
    assert page.find("#tip").text == f"old ← a {expected}"
    assert (page.texts("#source .on"), page.texts("#target .on")) == (["a"], ["old"])
    assert len(page.texts("#curves path")) == (float(expected) >= 0.02)
    assert page.picture() != before

    chip = page.find("#target .piece:nth-of-type(3)")
    ActionChains(page.browser, 0).move_to_element(chip).perform()
    assert page.find("#readout").text.startswith("“man” looks at “")
    best = max(weight(SENTENCE, SENTENCE, 0, 1, 2, s) for s in range(8))
    assert page.texts("#readout .weight")[0] == best
    assert not page.find("#tip").is_displayed()

    ActionChains(page.browser, 0).move_to_element(page.find("h1")).perform()
    assert page.find("#readout").text == "Point at a piece or a cell."
    assert page.picture() == before


def test_all_is_done_from_the_keyboard(page, echo):
    page.open(echo)
    press = ActionChains(page.browser, 0)
    press.send_keys(SENTENCE, Keys.TAB, Keys.ENTER).perform()  # the sentence has the focus
    page.wait(lambda: page.texts("#source .piece"))

    def focused():
        element = page.browser.switch_to.active_element
        return element.get_attribute("id") or element.get_attribute("class") or element.tag_name

    keys = ActionChains(page.browser, 0)
    keys.send_keys(Keys.TAB * 4, Keys.ARROW_RIGHT, Keys.TAB, Keys.ARROW_LEFT, Keys.TAB).perform()
    chosen = page.script(
        "return [...document.querySelectorAll('.choice input:checked')].map(i => i.value)"
    )
    assert chosen == ["-1", "2"]
    assert page.find("#readout").text.startswith("“The” is looked at by")
    ActionChains(page.browser, 0).send_keys(Keys.ARROW_RIGHT * 2).perform()
    assert page.find("#readout").text.startswith("“man” is looked at by")
    ActionChains(page.browser, 0).send_keys(Keys.TAB, Keys.END).perform()
    assert page.find("#readout").text.startswith("end looks at")
    ActionChains(page.browser, 0).send_keys(
        Keys.TAB, Keys.ARROW_DOWN * 2, Keys.ARROW_RIGHT
    ).perform()
    assert focused() == "matrix"
    assert page.find("#readout").text.startswith("“old” looks at “old” 0.")


@pytest.mark.parametrize("width", [1100, 320])
def test_hostile_text_is_text_and_stays_within_the_page(page, echo, width):
    page.open(echo, width=width).translate(HOSTILE)
    assert page.texts("#translation") == [HOSTILE]
    assert page.texts("#n-best .candidate") == [HOSTILE, HOSTILE.upper(), "nothing"]
    shown = page.texts("#source .piece")
    assert shown[0] == "<script>document.title"
    assert "U+0000 U+0007" in shown
    assert page.browser.title == "Translation and attention"
    assert len(page.browser.find_elements(By.CSS_SELECTOR, "img, body script")) == 1
    page.script("picture.point(0, 0)")
    assert page.script("return document.documentElement.scrollWidth <= innerWidth")
    outside = page.script(
        """return [...document.querySelectorAll("main *")].filter(e => !e.closest("svg, .extent")
            && (e.getBoundingClientRect().right > innerWidth)).map(e => e.outerHTML)"""
    )
    assert outside == []


def test_the_page_says_why_a_text_is_not_translated(page, echo):
    page.open(echo)
    page.find("#send").click()
    assert page.find("#error").text == "Type a sentence first."
    page.script("element('text').value = 'a'.repeat(1001)")
    page.find("#send").click()
    assert page.find("#error").text == "The sentence is too long: at most 1,000 characters."
    page.translate("word " * 110)
    assert not page.find("#error").is_displayed()
    assert page.find("#truncated").is_displayed()
    page.script("element('text').value = 'fail'")
    page.find("#send").click()
    page.wait(lambda: page.find("#attention-error").is_displayed())
    assert page.find("#attention-error").text.startswith("The model failed on this text")
    assert not page.find("#picture").is_displayed()
    (failed,) = page.browser.get_log("browser")
    assert "500" in failed["message"]
    page.translate("it goes on")
    assert page.find("#picture").is_displayed()
