"""With a calendar and deadlines set and finance away, a case goes to legal, who decide it."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from runs.journal.asked.queues import FRESH_SECONDS
from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME, approve, read_all, set_deadlines
from tests.waiting import eventually

WHY = "As agreed with the works council."


def add_calendar(page: Page) -> None:
    page.goto("/queues")
    page.click("a:has-text('Business calendars')")
    page.fill("#k-name", "DE")
    page.fill("#k-zone", "Europe/Atlantis")
    page.fill("#k-holidays", "2026-12-25 Christmas Day\n2027-01-01 New Year")
    page.fill("#k-why", WHY)
    page.click("#calendar-form button")
    expect(page.locator("#k-zone_error")).to_contain_text("time zone")
    expect(page.locator("#k-holidays")).to_have_value("2026-12-25 Christmas Day\n2027-01-01 New Year")
    page.fill("#k-zone", "Europe/Berlin")
    page.click("#calendar-form button")
    expect(page.locator("#calendar-DE")).to_contain_text("40 hours")
    holds_up(page)
    page.click("#calendar-DE a:has-text('DE')")
    expect(page.locator("main")).to_contain_text("on a Friday afternoon")
    holds_up(page)


def goes_away(page: Page, why: str) -> None:
    page.fill("#o-until", f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%dT%H:%M}")
    page.fill("#o-why", why)
    page.click("#absence-form button")
    expect(page.locator(".messages")).to_be_visible()


def test_what_finance_does_not_answer_goes_to_legal(
    admin: Page, person: Person, site: Site, complaints: Complaints
) -> None:
    add_calendar(admin)
    finance = person("approver_finance")
    set_deadlines(admin, calendar="DE", then="escalate", to="legal", hours="4")
    try:
        holds_up(admin)
        time.sleep(FRESH_SECONDS + 1)  # until the workers know it
        finance.goto("/queues")
        goes_away(finance, "The sea.")
        expect(finance.locator("#gone-title")).to_be_visible()
        holds_up(finance)
        admin.goto("/queues")  # like everybody else who decides there
        admin.fill("#o-person", "treasurer")
        goes_away(admin, "The hills.")
        admin.goto("/queues/of/finance_po")
        expect(admin.locator("main")).to_contain_text("Everyone is away.")
        case = site.asked("vendor-onboard", ACME | {"legal_name": "Sea Pallets Ltd"})
        run_id = case["run_id"]

        def went() -> bool:
            return bool(site.api(f"/approvals/{case['id']}")["escalated_to"] == ["legal"])

        eventually(went, "put to legal")
        # the escalation's decider finds it in their list, with the reason
        legal = person("approver_legal")
        legal.goto("/inbox")
        legal.click(f"a[href*='{case['id']}']")
        expect(legal.locator("main")).to_contain_text("escalated to legal")
        expect(legal.locator("#time")).to_contain_text("legal can decide too")
        holds_up(legal)
        read_all(legal)
        approve(legal)
        legal.goto(f"/inbox/{case['id']}")
        expect(legal.locator("#case")).to_contain_text("of legal")
        site.reaches(run_id, "completed")
        finance.goto("/queues")
        finance.locator("summary", has_text="End absence").first.click()
        finance.locator("[id^=absence-] [name=justification]").first.fill("Back.")
        finance.click("button:has-text('End absence')")
        expect(finance.locator("#gone-title")).to_have_count(0)
    finally:
        set_deadlines(admin, calendar="")
        time.sleep(FRESH_SECONDS + 1)  # later questions are not tested here
    assert complaints.besides("422") == []
