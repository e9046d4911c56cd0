"""Reading documents before approval: pages, differences in text, and no approval before all were in view."""

from __future__ import annotations

import re

from playwright.sync_api import Page, Route, expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import approve, read_all, reject
from tests.waiting import eventually

DRAWN = "images => images.filter(each => each.complete && each.naturalWidth > 0).length"


def drawn(page: Page) -> None:
    """Wait until each page of the case is rendered; the browser requests those near the view."""
    expect(page.locator("#documents img")).to_have_count(4, timeout=120_000)  # rendered documents appear by themselves
    for picture in page.locator("#documents img").all():
        picture.scroll_into_view_if_needed()
        expect(picture).to_have_js_property("complete", True)
    # A page that the server had no time for is requested again.
    eventually(lambda: page.locator("#documents img").evaluate_all(DRAWN) == 4, "four pages are drawn")


def test_papers_are_read_whole_and_compared(person: Person, site: Site, complaints: Complaints) -> None:
    page, run_id = refused(person, site)
    second = site.question(run_id)
    assert second["revision"] == 2
    page.goto(f"/inbox/{second['id']}")
    compared(page)
    approve(page, "Read all of it.")
    site.reaches(run_id, "completed")
    digest = site.api(f"/approvals/{second['id']}")["documents"][1]["sha256"]
    auditor = person("auditor")
    auditor.goto(f"/audit?run={run_id}")
    expect(auditor.locator("main")).to_contain_text(digest)
    holds_up(auditor)
    assert complaints == []


def refused(person: Person, site: Site) -> tuple[Page, str]:
    case = site.asked("zz-signer", {})
    page = person("approver_finance", viewport={"width": 1280, "height": 800})
    page.goto(f"/inbox/{case['id']}")
    expect(page.locator("#documents h2")).to_contain_text("Documents · 3")
    # each page has a reserved place, so nothing jumps
    tall = page.locator("#document-2-page-3").bounding_box()
    drawn(page)
    assert tall is not None and page.locator("#document-2-page-3").bounding_box()["height"] == tall["height"]
    expect(page.get_by_role("img", name="Page 2 of 3 of contract.pdf, as a picture")).to_be_visible()
    # one page by itself, large, with the keyboard
    with page.context.expect_page() as large:
        page.locator("#document-2-page-1 a").focus()
        page.keyboard.press("Enter")
    assert large.value.url.endswith("/documents/2/pages/1")
    large.value.close()
    with page.expect_download() as file:
        page.locator("#document-2 a", has_text="Download").click()
    assert file.value.suggested_filename == "contract.pdf"
    # no approval before each page was in view
    page.reload()
    page.evaluate("scrollTo(0, 0)")
    expect(page.locator("#seen")).to_contain_text(re.compile(r"of 6 arguments and pages seen"))
    expect(page.locator("[data-verdict=approve]")).to_have_attribute("aria-disabled", "true")
    read_all(page)
    expect(page.locator("[data-verdict=approve]")).not_to_have_attribute("aria-disabled", "true")
    holds_up(page)
    reject(page, "Not at this price.")
    site.reaches(case["run_id"], "waiting_human")
    return page, case["run_id"]


def compared(page: Page) -> None:
    terms = page.locator("#document-1")
    expect(terms.locator("header")).to_contain_text("not the same as in revision 1")
    expect(terms.locator(".text del").first).to_contain_text("100")
    expect(terms.locator(".text ins").first).to_contain_text("90")
    expect(terms.locator(".text ins").last).to_contain_text("U+202E")
    expect(terms).to_contain_text("added")
    expect(page.locator("#document-3 header")).to_contain_text("the same as in revision 1")
    assert (
        terms.locator(".text del").first.evaluate("each => getComputedStyle(each).textDecorationLine") == "line-through"
    )
    drawn(page)
    holds_up(page)
    read_all(page)


def test_on_a_phone_a_page_is_as_wide_as_there_is_room(person: Person, site: Site) -> None:
    case = site.asked("zz-signer", {})
    page = person("approver_finance", viewport={"width": 390, "height": 844})
    page.goto(f"/inbox/{case['id']}")
    drawn(page)
    box = page.locator("#document-2-page-1 img").bounding_box()
    assert box is not None and 260 < box["width"] <= 390 and abs(box["height"] / box["width"] - 1754 / 1240) < 0.02
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    read_all(page)
    expect(page.locator("[data-verdict=approve]")).not_to_have_attribute("aria-disabled", "true")


def test_a_page_that_could_not_be_had_is_asked_for_again(person: Person, site: Site) -> None:
    case = site.asked("zz-signer", {})
    page, refused = person("approver_finance"), []

    def busy(route: Route) -> None:
        refused.append(route.request.url)
        route.fulfill(status=503, body="busy")

    page.route("**/documents/2/pages/2", busy)
    page.goto(f"/inbox/{case['id']}")
    figure = page.locator("#document-2-page-2")
    figure.scroll_into_view_if_needed()
    expect(figure.locator("[data-missing]")).to_be_visible()
    expect(figure).to_contain_text("couldn't be loaded")
    assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    holds_up(page)
    # all were in view, but that one was not rendered
    expect(page.locator("[data-verdict=approve]")).to_have_attribute("aria-disabled", "true")
    figure.get_by_role("button", name="Reload").click()
    page.unroute("**/documents/2/pages/2")
    expect(figure.locator("[data-missing]")).to_be_hidden()  # by itself, after some seconds
    assert len(refused) >= 2
    drawn(page)
    read_all(page)
    expect(page.locator("[data-verdict=approve]")).not_to_have_attribute("aria-disabled", "true")


def test_what_can_not_be_shown_is_said_and_can_only_be_rejected(person: Person, site: Site) -> None:
    case = site.asked("zz-signer", {"is_broken": True})
    page = person("approver_finance")
    page.goto(f"/inbox/{case['id']}")
    expect(page.locator("#not-shown")).to_contain_text("contract.pdf: it can't be opened")
    expect(page.locator("#document-2")).to_contain_text("can't be shown")
    expect(page.locator("[data-verdict=approve]")).to_be_disabled()
    expect(page.locator("#limit-note")).to_contain_text("You can reject it.")
    holds_up(page)
    reject(page, "Nobody can read it.")
