"""Allowing the same again by hand: an administrator lets it be allowed, finance allows it with a yes, the next run goes
through without asking and says so, and it is taken back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Complaints, Person, Site, read_all
from tests.browser.test_four_eyes import holds_up
from tests.browser.test_stepup import admin

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(480)]
__all__ = ["admin"]  # fixtures
SAME = {"item": "chairs of the framework contract", "amount_usd": 4_000}


def test_the_same_again(admin: Page, person: Person, site: Site, complaints: Complaints) -> None:
    first = site.start("zz-buyer", SAME)
    site.reaches(first, "waiting_human")
    finance = person("approver_finance")
    case = f"/inbox/{site.question(first)['id']}"
    finance.goto(case)
    expect(finance.locator("#again")).to_have_count(0)
    admin.goto("/queues/of/finance_po")
    admin.locator("summary", has_text="Set how far that may go").click()
    admin.fill("#g-times", "3")
    admin.fill("#g-why", "The framework contract names them.")
    admin.click("#bounds-form button")
    expect(admin.locator("#g-days_error")).to_be_visible()
    expect(admin.locator("#g-times")).to_have_value("3")
    admin.fill("#g-days", "30")
    admin.click("#bounds-form button")
    expect(admin.locator(".messages")).to_contain_text("How far the same again may be allowed is set")
    expect(admin.locator("#bounds")).to_contain_text("for 3 calls at most, 30 days at most")
    holds_up(admin)
    try:
        allowed(finance, person("operator"), site, case)
    finally:
        admin.goto("/queues/of/finance_po")
        admin.locator("summary", has_text="Set how far that may go").click()
        for field in ("#g-times", "#g-days"):
            admin.fill(field, "")
        admin.fill("#g-why", "Each is asked again.")
        admin.click("#bounds-form button")
        expect(admin.locator("#bounds")).to_contain_text("Each call is asked about")
    assert [each for each in complaints if "422" not in each] == []


def allowed(finance: Page, olga: Page, site: Site, case: str) -> None:
    # half of it is refused, where it was written
    finance.goto(case)
    finance.locator("#again summary").click()
    finance.fill("#again_times", "1")
    finance.fill("#justification", "As the framework contract has it.")
    holds_up(finance)
    read_all(finance)
    finance.locator("[data-verdict=approve]").click()
    expect(finance.locator("#again_until_error")).to_be_visible()
    expect(finance.locator("#again_times")).to_have_value("1")
    holds_up(finance)
    finance.fill("#again_sum", "9,000.00")
    finance.fill("#again_until", (datetime.now(UTC) + timedelta(days=3)).strftime("%Y-%m-%dT%H:%M"))
    read_all(finance)
    finance.locator("[data-verdict=approve]").click()
    expect(finance.locator(".messages")).to_contain_text("Approved.")
    expect(finance.locator("#case [data-closed]")).to_contain_text("and the same again")
    # the next one goes through, and says by what
    second = site.start("zz-buyer", SAME)
    site.reaches(second, "completed")
    finance.goto("/queues/grants")
    expect(finance.locator("table")).to_contain_text("1 of 1, $4,000 of $9,000")
    holds_up(finance)
    finance.locator("table a", has_text="buy_it").first.click()
    expect(finance.locator("h1")).to_contain_text("Standing grant")
    holds_up(finance)
    finance.locator("section:has(#uses-title) a").click()
    expect(finance.locator("#case [data-closed]")).to_contain_text("beforehand, by standing grant")
    holds_up(finance)
    # the third is asked about
    third = site.start("zz-buyer", SAME)
    site.reaches(third, "waiting_human")
    olga.goto("/queues/grants")
    expect(olga.locator("table")).to_contain_text("used up")
