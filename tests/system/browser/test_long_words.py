"""Endless words, as people may write them, make no page wider."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person, Profile
from tests.system.browser.looks import FAINT
from tests.system.browser.site import Site
from tests.system.browser.steps import invited
from tests.system.browser.test_hostile import is_inert, unfold
from tests.waiting import eventually


@pytest.fixture
def site(quiet: Site) -> Site:
    return quiet


def test_a_word_without_an_end_makes_no_page_wider(
    admin: Page, person: Person, site: Site, complaints: Complaints
) -> None:
    """In a heading, and in the reason of a halt in force."""
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
        answer = page.goto(path)
        assert answer is not None and answer.ok, path
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 844})
            is_inert(page, f"{path} at {width}")
    site.lift_halts()
    assert complaints == []


def test_whatever_somebody_is_called_the_header_has_room(admin: Page, profiles: Profile, site: Site) -> None:
    """Also on a narrow phone, and with a queue's name in the list of what is missing."""
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
    for mail, name in {"anna@example.org": "anna@harbor.example", "w@example.org": "W" * 150}.items():
        page = invited(admin, profiles(site), name, "Operator", is_admin=True, mail=mail)
        for path in ("/", "/setup", "/account", "/people"):
            page.goto(path)
            # as on a live page: the button is next to the name
            page.evaluate("document.getElementById('live-pause').hidden = false")
            for width in (360, 390, 800, 1241, 1280):
                page.set_viewport_size({"width": width, "height": 844})
                is_inert(page, f"{path} of {name[:20]} at {width}")
                box = page.locator(".who > summary").bounding_box()
                assert box is not None and box["width"] >= 64 and box["x"] + box["width"] <= width


def test_what_is_open_can_be_read_and_a_box_keeps_its_size(person: Person) -> None:
    """The button of an open form, in both themes; a box next to several lines of text."""
    page = person("operator", viewport={"width": 390, "height": 844})
    page.evaluate("""document.getElementById("main").innerHTML = ["main", "go", "stop", ""].map((kind) =>
        `<details class="act" open><summary class="btn ${kind}">Do it…</summary></details>`).join("")
        + `<label class="row"><input type="checkbox"><span>${"many words ".repeat(40)}</span></label>`""")
    for theme in ("light", "dark"):
        page.emulate_media(color_scheme=theme)
        assert page.locator(".act[open]").count() == 4 and page.evaluate(FAINT) == [], theme
    box = page.locator("main input[type=checkbox]").bounding_box()
    assert box is not None and box["width"] == box["height"] == 16
