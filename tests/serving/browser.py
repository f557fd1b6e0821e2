"""A page in Chromium, as its reader handles it; tests of it are skipped without selenium."""

import contextlib
import shutil

import pytest

pytest.importorskip("selenium", reason="the extra test is not installed: no selenium")

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.wait import WebDriverWait


def start_chromium():
    """Returns a new browser without a window."""
    programs = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if not all(programs):
        pytest.skip("Debian's chromium and chromium-driver are not installed")
    options = webdriver.ChromeOptions()
    options.binary_location, driver = programs
    for flag in ("headless=new", "no-sandbox", "disable-gpu", "disable-dev-shm-usage"):
        options.add_argument(f"--{flag}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(options, Service(driver))


@contextlib.contextmanager
def open_page(browser, page):
    """Gives a `Page` of this class; in the end the browser must have complained of nothing."""
    yield page(browser)
    assert [entry for entry in browser.get_log("browser") if "favicon" not in entry] == []


class Page:
    """A page with a picture of attention."""

    def __init__(self, browser):
        self.browser = browser

    def open(self, url, width=1100, **media):
        metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        features = [
            {"name": f"prefers-{k.replace('_', '-')}", "value": v} for k, v in media.items()
        ]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        self.browser.get(url)
        return self

    def find(self, selector):
        return self.browser.find_element(By.CSS_SELECTOR, selector)

    def texts(self, selector):
        return self.script(
            "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)", selector
        )

    def script(self, code, *arguments):
        return self.browser.execute_script(code, *arguments)

    def wait(self, condition):
        WebDriverWait(self.browser, 20, 0.05).until(lambda _: condition())

    def choose(self, name, value):
        self.find(f"input[name={name}][value='{value}']").click()

    def cell(self, target, source):
        """Where a cell is, from the middle of the matrix."""
        return self.script(
            """const m = picture.matrix, box = element("matrix");
            box.scrollIntoView({block: "center"});
            return [m.left + (arguments[1] + 0.5) * m.cell - box.offsetWidth / 2,
                    m.top + (arguments[0] + 0.5) * m.cell - box.offsetHeight / 2]
                .map(Math.round);""",
            target,
            source,
        )

    def picture(self):
        return self.script("return element('cells').toDataURL()")
