"""The built site in a browser: on a phone and on a desk, by day and by night."""

import shutil

import pytest
from test_site import site  # noqa: F401  (a fixture)

PHONE, DESK = 390, 1280  # pixels
OPTIONS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
# How far the page can be scrolled to the right, and the elements that make it so.
OVERFLOW = """
const width = document.documentElement.clientWidth;
const wide = [...document.querySelectorAll("article *")].filter(
    one => one.getBoundingClientRect().right > width + 1 && !one.closest("pre, table, .table-wrapper, .scrolls, svg"));
return [document.documentElement.scrollWidth - width, wide.map(one => one.outerHTML.slice(0, 80))];
"""
# Code and tables that are cut, to be scrolled in their own box.
CUT = """
return [...document.querySelectorAll("article pre, article .table-wrapper, article .scrolls")].filter(
    one => one.scrollWidth > one.clientWidth + 1).map(one => one.innerText.slice(0, 80))
"""


@pytest.fixture(scope="module")
def browser():
    webdriver = pytest.importorskip("selenium.webdriver")
    chromium, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("needs chromium and chromedriver on the path (Debian: chromium, chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for option in OPTIONS:
        options.add_argument(option)
    opened = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield opened
    opened.quit()


def look(browser, page, width, scheme="light"):
    """Open a page as a device of this width shows it, by day or by night."""
    metrics = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 500}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    by_scheme = [{"name": "prefers-color-scheme", "value": scheme}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": by_scheme})
    browser.get(page.as_uri())


def brightness(browser):
    """Return the brightness of the background and of the text, from 0 to 1."""
    script = "const {backgroundColor, color} = getComputedStyle(document.body); return [backgroundColor, color]"
    colours = browser.execute_script(script)
    return [sum(map(float, colour[colour.index("(") + 1 : -1].split(",")[:3])) / 765.0 for colour in colours]


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_no_page_is_wider_than_the_screen(site, browser, width):  # noqa: F811
    pages = [*sorted(site.glob("*.html")), site / "tables" / "benchmarks.html"]
    assert len(pages) > 25
    found = {}
    for page in pages:
        look(browser, page, width)
        # What is folded counts too.
        browser.execute_script("document.querySelectorAll('details').forEach(fold => { fold.open = true })")
        beyond, elements = browser.execute_script(OVERFLOW)
        cut = browser.execute_script(CUT) if width == DESK else []
        if beyond > 0 or elements or cut:
            found[page.name] = (beyond, elements[:3], cut[:3])
    assert found == {}


def test_an_element_that_is_too_wide_is_found(site, browser):  # noqa: F811
    look(browser, site / "index.html", PHONE)
    browser.execute_script("document.querySelector('article').insertAdjacentHTML('beforeend', '<p id=x>x</p>')")
    browser.execute_script("document.querySelector('#x').style.width = '500px'")
    _, elements = browser.execute_script(OVERFLOW)
    assert [element for element in elements if 'id="x"' in element]
    browser.execute_script("document.body.append(document.querySelector('#x'))")
    beyond, _ = browser.execute_script(OVERFLOW)
    assert beyond > 0
    look(browser, site / "index.html", DESK)
    assert browser.execute_script(CUT) == []
    code = "<pre style='white-space: pre; overflow: auto'>" + 200 * "x" + "</pre>"
    browser.execute_script("document.querySelector('article').insertAdjacentHTML('beforeend', arguments[0])", code)
    assert browser.execute_script(CUT) == [80 * "x"]


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize(("scheme", "is_dark"), [("light", False), ("dark", True)])
def test_text_is_legible_by_day_and_by_night(site, browser, width, scheme, is_dark):  # noqa: F811
    for name in ("index", "benchmarks", "support", "quickstart"):
        look(browser, site / f"{name}.html", width, scheme)
        background, text = brightness(browser)
        assert (background < text) is is_dark
        assert abs(background - text) > 0.6


def test_a_phone_shows_the_support_matrix_in_its_own_size_and_scrolls_it(site, browser):  # noqa: F811
    look(browser, site / "support.html", PHONE)
    box = "const box = document.querySelector('.scrolls'), picture = box.querySelector('img'); "
    shown, drawn, room, content = browser.execute_script(
        f"{box} return [picture.offsetWidth, picture.naturalWidth, box.clientWidth, box.scrollWidth]"
    )
    assert shown == drawn > PHONE
    assert content > room


@pytest.mark.parametrize("name", ["benchmarks", "support"])
@pytest.mark.parametrize("width", [PHONE, DESK])
def test_a_page_shows_its_pictures_and_folds_the_long_table(site, browser, name, width):  # noqa: F811
    look(browser, site / f"{name}.html", width)
    pictures = "return [...document.querySelectorAll('article img')]"
    shown = browser.execute_script(f"{pictures}.map(one => one.naturalWidth > 0 && one.offsetHeight > 100)")
    assert shown
    assert all(shown)
    folds = "return [...document.querySelectorAll('details')]"
    found = browser.execute_script(f"{folds}.map(one => [one.open, one.querySelector('table') !== null])")
    assert found == [[False, True]] * (name == "support")
