"""Text from agents, models, tools and inputs is only text: no page runs, fetches or obeys it."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.site import Site
from tests.system.browser.steps import approve, read_all

TABS = ("timeline", "transcript", "checkpoints", "decisions", "journal")
HIDDEN = ("\u202e", "\u202c", "\u200b", "\U000e0041")


def unfold(page: Page) -> None:
    page.evaluate("document.querySelectorAll('details:not([data-close])').forEach(d => d.open = true)")


def is_inert(page: Page, where: str, *, is_form: bool = False) -> None:
    """Check that no markup runs and hidden characters are named; form fields keep them as typed."""
    unfold(page)
    assert page.evaluate("window.pwned") is None, where
    assert page.locator("script:not([src]), style, img, svg[onload], form[action*=attack]").count() == 0, where
    words = page.evaluate("document.documentElement.outerHTML")
    assert is_form or not any(hidden in words for hidden in HIDDEN), where
    overflow = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 0, f"{where} is {overflow} px too wide"


def test_no_page_runs_what_it_shows(person: Person, site: Site, complaints: Complaints) -> None:
    waiting, failed = site.start("zz-hostile", {}), site.start("zz-hostile", {"fails": True})
    site.reaches(waiting, "waiting_human")
    site.reaches(failed, "failed")
    page = person("approver_finance")
    question = site.question(waiting)
    paths = [
        "/",
        "/inbox",
        f"/inbox/{question['id']}",
        "/runs",
        "/reconcile",
        "/audit",
        "/agents",
        "/agents/zz-hostile@1.0.0",
    ]
    paths += [f"/runs/{run}?tab={tab}" for run in (waiting, failed) for tab in TABS]
    for path in paths:
        page.goto(path)
        for width in (390, 1280):
            page.set_viewport_size({"width": width, "height": 844})
            is_inert(page, f"{path} at {width}")
    page.goto(f"/inbox/{question['id']}")
    unfold(page)
    for mark in ("U+202E", "U+200B", "U+043E", "U+E0041"):
        expect(page.locator("article .u", has_text=mark).first).to_be_visible()
    read_all(page)
    approve(page, "Looks odd, but is only text.")
    site.reaches(waiting, "completed")
    page.goto(f"/runs/{waiting}")
    is_inert(page, "the completed run")
    assert complaints == []


def test_the_start_form_keeps_hostile_text_as_text(person: Person, complaints: Complaints) -> None:
    page = person("integrator")
    page.goto("/runs/new?agent=zz-hostile@1.0.0")
    is_inert(page, "the form", is_form=True)
    page.fill("#f-text", "<script>window.pwned=5</script>")
    page.click("text=Start the run")
    page.wait_for_url("**/runs/*")
    is_inert(page, "the run")
    assert complaints == []
