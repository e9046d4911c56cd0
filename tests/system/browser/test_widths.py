"""Words without an end, as people may write them, make no page wider."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.system.browser.conftest import Complaints, Person, Site, profiles, running
from tests.system.browser.test_hostile import is_inert, unfold
from tests.system.browser.test_looks import FAINT
from tests.system.browser.test_set_up import invited
from tests.system.browser.test_stepup import admin
from tests.system.infra.installation import eventually

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(480)]
__all__ = ["admin"]  # a fixture


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """One of its own: what is halted is told on every page of everybody."""
    site = Site(tmp_path_factory.mktemp("wide") / "data")
    with running(site):
        yield site


def test_a_word_without_an_end_makes_no_page_wider(admin: Page, person: Person, complaints: Complaints) -> None:
    """In a heading, and in the reason of what is halted now."""
    word = "Rückerstattungsgenehmigungsverfahrensstelle" * 2
    admin.goto("/queues")
    unfold(admin)
    for field, text in {"name": "long_words", "title": word, "role": "approver_legal", "why": word * 5}.items():
        admin.fill(f"#q-{field}", text)
    admin.click("#queue-form button")
    expect(admin.locator("main")).to_contain_text(word)
    operator = person("operator")
    operator.goto("/halts")
    operator.select_option("#n-scope", "agent")
    operator.fill("#n-key", "nobody-" + "x" * 90)
    operator.fill("#n-why", word * 5)
    operator.click("#halt-form button")
    expect(operator.locator(".messages")).to_be_visible()
    for page, path in ((admin, "/queues"), (admin, "/queues/of/long_words"), (operator, "/halts"), (operator, "/")):
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 844})
            answer = page.goto(path)
            assert answer is not None and answer.ok, path
            is_inert(page, f"{path} at {width}")
    assert complaints == []


def test_whatever_somebody_is_called_the_header_has_room(admin: Page, browser: Browser, site: Site) -> None:
    """On a narrow phone too; and so with the name of a queue where what is missing is listed."""
    admin.goto("/queues")
    unfold(admin)
    for field, text in {"name": "q" * 63, "title": "Long", "role": "approver_finance", "why": "As agreed."}.items():
        admin.fill(f"#q-{field}", text)
    admin.click("#queue-form button")
    expect(admin.locator(".messages")).to_be_visible()

    def is_listed() -> bool:
        admin.goto("/setup")
        return admin.locator("b", has_text="q" * 63).count() == 1

    eventually(is_listed, "the queue on the page Set-up")
    with profiles(browser, site) as of:
        for mail, name in {"anna@example.org": "anna@harbor.example", "w@example.org": "W" * 150}.items():
            page = invited(admin, of(), name, "Operator", is_admin=True, mail=mail)
            for width in (360, 390, 800, 1241, 1280):
                page.set_viewport_size({"width": width, "height": 844})
                for path in ("/", "/setup", "/account", "/people"):
                    page.goto(path)
                    # as where a page is live: the button is beside the name
                    page.evaluate("document.getElementById('live-pause').hidden = false")
                    is_inert(page, f"{path} of {name[:20]} at {width}")
                    box = page.locator(".who > summary").bounding_box()
                    assert box is not None and box["width"] >= 64 and box["x"] + box["width"] <= width


def test_what_is_open_can_be_read_and_a_box_keeps_its_size(person: Person) -> None:
    """The button that opened a form, in both themes; a box beside words that take several lines."""
    page = person("operator", viewport={"width": 390, "height": 844})
    page.evaluate("""document.getElementById("main").innerHTML = ["main", "go", "stop", ""].map((kind) =>
        `<details class="act" open><summary class="btn ${kind}">Do it…</summary></details>`).join("")
        + `<label class="row"><input type="checkbox"><span>${"many words ".repeat(40)}</span></label>`""")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert page.locator(".act[open]").count() == 4 and page.evaluate(FAINT) == [], theme
    box = page.locator("main input[type=checkbox]").bounding_box()
    assert box is not None and box["width"] == box["height"] == 16
