"""Allowing the same again by hand: an administrator lets it be allowed, finance allows it with a yes, the next runs go
through without asking and say so, until it is used up; and it is taken back while runs are under way, which ask then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person, Site, read_all
from tests.system.browser.looks import kept
from tests.system.browser.test_four_eyes import holds_up
from tests.system.browser.test_stepup import admin

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(480)]
__all__ = ["admin"]  # fixtures
SAME = {"item": "chairs of the framework contract", "amount_usd": 4_000}


@contextmanager
def again_allowed(admin: Page) -> Iterator[None]:
    """For three calls and thirty days at most; nobody may give any afterwards."""
    try:
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
        yield
    finally:
        admin.goto("/queues/of/finance_po")
        admin.locator("summary", has_text="Set how far that may go").click()
        for field in ("#g-times", "#g-days"):
            admin.fill(field, "")
        admin.fill("#g-why", "Each is asked again.")
        admin.click("#bounds-form button")
        expect(admin.locator("#bounds")).to_contain_text("Each call is asked about")


def say_yes(page: Page, *, times: str = "", until: str = "") -> None:
    """To the case that is open, and to so many more."""
    page.fill("#justification", "As the framework contract has it.")
    if times:
        page.locator("#again summary").click()
        page.fill("#again_times", times)
        page.fill("#again_sum", "9,000.00")
        page.fill("#again_until", until)
    read_all(page)
    page.locator("[data-verdict=approve]").click()
    expect(page.locator(".messages")).to_contain_text("Approved.")


def days(n: int) -> str:
    return (datetime.now(UTC) + timedelta(days=n)).strftime("%Y-%m-%dT%H:%M")


def test_the_same_again_twice_and_the_third_is_asked_about(
    admin: Page, person: Person, site: Site, complaints: Complaints
) -> None:
    first = site.start("zz-buyer", SAME)
    site.reaches(first, "waiting_human")
    finance = person("approver_finance")
    case = f"/inbox/{site.question(first)['id']}"
    finance.goto(case)
    expect(finance.locator("#again")).to_have_count(0)
    with again_allowed(admin):
        allowed(finance, case)
        used_up(finance, person("operator"), site)
    assert [each for each in complaints if "422" not in each] == []


def allowed(finance: Page, case: str) -> None:
    """Half of it is refused, where it was written."""
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
    expect(finance.locator("#case [data-closed]")).to_contain_text("and the same again")


def used_up(finance: Page, olga: Page, site: Site) -> None:
    """The next two go through, and say by what; the third is asked about, of people."""
    for n, told in ((1, "1 of 2, $4,000 of $9,000"), (2, "2 of 2, $8,000 of $9,000")):
        run_id = site.start("zz-buyer", SAME)
        site.reaches(run_id, "completed")
        finance.goto("/queues/grants")
        expect(finance.locator("table tbody tr").first).to_contain_text(told)
        holds_up(finance)
        finance.locator("table a", has_text="buy_it").first.click()
        expect(finance.locator("h1")).to_contain_text("Standing grant")
        expect(finance.locator("#uses-title")).to_contain_text(f"{n} use")
        holds_up(finance)
        use = finance.get_by_role("row").filter(has=finance.get_by_role("cell", name=str(n), exact=True))
        use.locator("a").click()
        expect(finance.locator("#case [data-closed]")).to_contain_text("beforehand, by standing grant")
        expect(finance.locator("#case [data-closed]")).to_contain_text(f"use {n}")
        holds_up(finance)
    third = site.start("zz-buyer", SAME)
    site.reaches(third, "waiting_human")
    olga.goto("/queues/grants")
    expect(olga.locator("table tbody tr").first).to_contain_text("used up")
    olga.goto(f"/runs/{third}")
    expect(olga.locator("#why")).to_contain_text("Waits for finance_po to decide")
    finance.goto(f"/inbox/{site.question(third)['id']}")
    say_yes(finance)
    expect(finance.locator("#case [data-closed]")).not_to_contain_text("beforehand")
    site.reaches(third, "completed")


def take_back(page: Page, why: str) -> None:
    """The newest."""
    page.goto("/queues/grants")
    page.locator("table a", has_text="buy_it").first.click()
    expect(page.locator("h1")).to_contain_text("Standing grant")
    page.locator("#end summary").click()
    page.fill("#e-why", why)
    page.click("#end-form button")
    expect(page.locator("main dl.pairs")).to_contain_text(why)


def count(site: Site, run_id: str) -> None:
    """What a run of the stocker waits for before it buys."""
    site.api(f"/runs/{run_id}/signals/counted", body={"payload": {"of": 4}})


def begun(site: Site) -> str:
    run_id = site.start("zz-stocker", SAME)
    site.reaches(run_id, "waiting_event")
    return run_id


def halt_the_tool(page: Page) -> None:
    page.goto("/halts")
    page.select_option("#n-scope", "tool")
    page.fill("#n-key", "buy_it")
    page.fill("#n-why", "The shop asks us to wait.")
    page.click("#halt-form button:has-text('Halt')")
    expect(page.locator("main")).to_contain_text("The shop asks us to wait.")


def lift(page: Page) -> None:
    page.goto("/halts")
    page.locator("details:has-text('Lift all of it') summary").first.click()
    page.fill("[id^=l-]", "The shop is back.")
    page.click("button:has-text('Lift all of it')")
    expect(page.locator("main")).to_contain_text("Nothing is halted")


def test_one_that_is_taken_back_lets_nothing_through_that_is_under_way(
    admin: Page, person: Person, site: Site, complaints: Complaints
) -> None:
    finance, olga = person("approver_finance"), person("operator")
    first, before, between = begun(site), begun(site), begun(site)
    with again_allowed(admin):
        count(site, first)
        site.reaches(first, "waiting_human")
        finance.goto(f"/inbox/{site.question(first)['id']}")
        say_yes(finance, times="2", until=days(3))
        site.reaches(first, "completed")
        # one has its yes by the grant, and stands before a halt: nothing has left
        halt_the_tool(olga)
        try:
            count(site, between)
            olga.goto(f"/runs/{between}")
            expect(olga.locator("#why")).to_contain_text("Halted: tool buy_it")
            expect(olga.locator(".tl")).to_contain_text("approved:")
            expect(olga.locator(".tl")).to_contain_text("halted")
            kept(olga, "grants-held")
            holds_up(olga)
            take_back(finance, "The contract has ended.")
            kept(finance, "grants-ended")
            holds_up(finance)
        finally:
            lift(olga)
    for run_id in (between, before):
        if run_id == before:  # and one had not come to its call yet
            count(site, run_id)
        asks_now(finance, olga, site, run_id)
    assert [each for each in complaints if "422" not in each] == []


def asks_now(finance: Page, olga: Page, site: Site, run_id: str) -> None:
    """A run that the grant was about, once it has ended."""
    olga.goto(f"/runs/{run_id}")
    expect(olga.locator("#why")).to_contain_text("Waits for finance_po to decide")
    expect(olga.locator(".facts")).to_contain_text("0 effects")
    kept(olga, f"grants-asks-{run_id}")
    finance.goto(f"/inbox/{site.question(run_id)['id']}")
    kept(finance, f"grants-case-{run_id}")
    holds_up(finance)
    say_yes(finance)
    site.reaches(run_id, "completed")
    expect(olga.locator(".facts")).to_contain_text("1 effect")
