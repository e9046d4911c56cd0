"""Approving with changes by hand: an incomplete change, the preview, and exactly what is sent."""

from __future__ import annotations

from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import read_all


def test_half_of_it_will_do(person: Person, site: Site, complaints: Complaints) -> None:
    case = site.asked("zz-buyer", {"item": "chairs for the new floor", "amount_usd": 84_000})
    run_id = case["run_id"]
    assert set(case["editable"]["properties"]) == {"amount_usd", "needed_by"}
    page = person("approver_finance")
    page.goto(f"/inbox/{case['id']}")
    read_all(page)
    page.click("#change-it")
    page.wait_for_url("**/changes")
    holds_up(page)
    page.get_by_label("Amount usd").fill("much")
    page.click("button:has-text('Preview changes')")
    expect(page.locator("#change-error")).to_be_visible()
    page.get_by_label("Amount usd").fill("42000")
    page.click("button:has-text('Preview changes')")
    expect(page.locator("#diff")).to_contain_text("84000")
    expect(page.locator("#diff")).to_contain_text("42000")
    assert site.api(f"/approvals/{case['id']}")["state"] == "open", "looking changes nothing"
    holds_up(page)
    # later input is shown again before it is sent
    page.fill("#justification", "Half of the floor.")
    page.get_by_label("Amount usd").fill("40000")
    page.click("button:has-text('Approve with these changes')")
    expect(page.locator("#diff")).to_contain_text("40000")
    assert site.api(f"/approvals/{case['id']}")["state"] == "open"
    page.click("button:has-text('Approve with these changes')")
    expect(page.locator(".messages")).to_contain_text("Approved with your changes")
    expect(page.locator("#before-title")).to_have_text("Revision 1 was amended")
    holds_up(page)
    site.reaches(run_id, "completed")
    assert site.run(run_id)["output"] == {
        "item": "chairs for the new floor",
        "amount_usd": 40_000,
        "needed_by": "2027-01-31",
    }
    page.goto(f"/runs/{run_id}")
    expect(page.locator("main")).to_contain_text("Half of the floor.")
    page.goto(f"/inbox/{case['id']}")
    expect(page.locator("#case")).to_contain_text("Amended by")
    decided_meanwhile(page, site)
    assert complaints.besides("422") == []


def decided_meanwhile(page: Page, site: Site) -> None:
    """Check that the form is disabled when someone else decides meanwhile."""
    question = site.asked("zz-buyer", {"item": "lamps for the new floor", "amount_usd": 61_000})
    page.goto(f"/inbox/{question['id']}")
    page.fill("#justification", "Let me see,")
    expect(page.locator("#change-it")).to_be_enabled()
    site.decide(question, "reject")
    expect(page.locator("#change-it")).to_be_disabled()
    expect(page.locator("#change-it[href]")).to_have_count(0)
    expect(page.locator("#justification")).to_have_value("Let me see,")
    holds_up(page)
