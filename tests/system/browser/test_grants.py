"""A standing approval lets the next calls through until it is used up or revoked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import approve, read_all

SAME = {"item": "chairs of the framework contract", "amount_usd": 4_000}


@contextmanager
def again_allowed(admin: Page) -> Iterator[None]:
    """Allow standing approvals for three calls and thirty days; forbid them afterwards."""
    try:
        admin.goto("/queues/of/finance_po")
        admin.locator("summary", has_text="Set limits").click()
        admin.fill("#g-times", "3")
        admin.fill("#g-why", "The framework contract names them.")
        admin.click("#bounds-form button")
        expect(admin.locator("#g-days_error")).to_be_visible()
        expect(admin.locator("#g-times")).to_have_value("3")
        admin.fill("#g-days", "30")
        admin.click("#bounds-form button")
        expect(admin.locator(".messages")).to_contain_text("Standing approval limits saved")
        expect(admin.locator("#bounds")).to_contain_text("at most 3 calls in 30 days")
        holds_up(admin)
        yield
    finally:
        admin.goto("/queues/of/finance_po")
        admin.locator("summary", has_text="Set limits").click()
        for field in ("#g-times", "#g-days"):
            admin.fill(field, "")
        admin.fill("#g-why", "Each is asked again.")
        admin.click("#bounds-form button")
        expect(admin.locator("#bounds")).to_contain_text("each call needs its own approval")


def days(n: int) -> str:
    return (datetime.now(UTC) + timedelta(days=n)).strftime("%Y-%m-%dT%H:%M")


def test_the_same_again_twice_and_the_third_is_asked_about(
    admin: Page, person: Person, site: Site, complaints: Complaints
) -> None:
    first = site.waiting("zz-buyer", SAME)
    finance = person("approver_finance")
    case = f"/inbox/{site.question(first)['id']}"
    finance.goto(case)
    expect(finance.locator("#again")).to_have_count(0)
    with again_allowed(admin):
        allowed(finance, case)
        used_up(finance, person("operator"), site)
    assert complaints.besides("422") == []


def allowed(finance: Page, case: str) -> None:
    """Give a standing approval, after an incomplete one was refused at its field."""
    finance.goto(case)
    finance.locator("#again summary").click()
    finance.fill("#again_times", "2")
    finance.fill("#justification", "As the framework contract has it.")
    holds_up(finance)
    read_all(finance)
    finance.locator("[data-verdict=approve]").click()
    expect(finance.locator("#again_until_error")).to_be_visible()
    expect(finance.locator("#again_times")).to_have_value("2")
    holds_up(finance)
    finance.fill("#again_sum", "9,000.00")
    finance.fill("#again_until", days(3))
    read_all(finance)
    finance.locator("[data-verdict=approve]").click()
    expect(finance.locator(".messages")).to_contain_text("Approved.")
    expect(finance.locator("#case [data-closed]")).to_contain_text("with a standing approval")


def used_up(finance: Page, olga: Page, site: Site) -> None:
    """Check that two calls go through under the grant, and that people are asked about the third."""
    for n, found in ((1, "1 of 2, $4,000 of $9,000"), (2, "2 of 2, $8,000 of $9,000")):
        run_id = site.start("zz-buyer", SAME)
        site.reaches(run_id, "completed")
        finance.goto("/queues/grants")
        expect(finance.locator("table tbody tr").first).to_contain_text(found)
        holds_up(finance)
        finance.locator("table a", has_text="buy_it").first.click()
        expect(finance.locator("h1")).to_contain_text("Standing approval")
        expect(finance.locator("#uses-title")).to_contain_text(f"{n} use")
        holds_up(finance)
        use = finance.get_by_role("row").filter(has=finance.get_by_role("cell", name=str(n), exact=True))
        use.locator("a").click()
        expect(finance.locator("#case [data-closed]")).to_contain_text("by standing approval")
        expect(finance.locator("#case [data-closed]")).to_contain_text(f"use {n}")
        holds_up(finance)
    third = site.waiting("zz-buyer", SAME)
    olga.goto("/queues/grants")
    expect(olga.locator("table tbody tr").first).to_contain_text("used up")
    olga.goto(f"/runs/{third}")
    expect(olga.locator("#why")).to_contain_text("Waiting for finance_po to decide")
    finance.goto(f"/inbox/{site.question(third)['id']}")
    approve(finance, "As the framework contract has it.")
    expect(finance.locator("#case [data-closed]")).not_to_contain_text("beforehand")
    site.reaches(third, "completed")
