"""A question that nobody answers, by hand in a browser: it expires, which is told apart from a no everywhere; by a
calendar it has until people work again; and one that waits for ever reminds people and goes on waiting."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from runs.journal.asked.queues import FRESH_SECONDS
from tests.system.browser.conftest import Complaints, Person, Site, read_all
from tests.system.browser.looks import kept
from tests.system.browser.test_deadlines import set_deadlines
from tests.system.browser.test_four_eyes import holds_up
from tests.system.browser.test_stepup import admin
from tests.system.infra.installation import eventually

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(480)]
__all__ = ["admin"]  # fixtures
# The next one comes a minute after the first: on a busy machine the page is looked at after that.
REMINDED = re.compile(r"Reminded \d+ times?\.")
SHUT = "SHUT"  # a calendar in which nobody works for days


def asked(site: Site, about: str, **more: Any) -> tuple[str, str]:
    """A run that asks, and its case."""
    run_id = site.start("zz-caller", {"about": about, **more})
    site.reaches(run_id, "waiting_human")
    return run_id, str(site.question(run_id)["id"])


@contextmanager
def shut_for_days(page: Page) -> Iterator[date]:
    """Finance works by a calendar in which today and the next two days are holidays. Yields the last of them."""
    today = datetime.now(UTC).date()
    page.goto("/queues/calendars")
    page.fill("#k-name", SHUT)
    page.fill("#k-zone", "UTC")
    page.fill("#k-holidays", "\n".join(f"{today + timedelta(days=n)} Works outing" for n in range(3)))
    page.fill("#k-why", "All are at sea.")
    page.click("button:has-text('Add the calendar')")
    expect(page.locator(f"#calendar-{SHUT}")).to_be_visible()
    set_deadlines(page, calendar=SHUT, then="", to="", hours="", at_once=False)
    time.sleep(FRESH_SECONDS + 1)  # until the workers know it
    try:
        yield today + timedelta(days=2)
    finally:
        set_deadlines(page, calendar="", then="", to="", hours="", at_once=False)
        page.goto(f"/queues/calendars/of/{SHUT}")
        page.locator("summary", has_text="Remove").click()
        page.locator("form[action$=removals] [name=justification]").fill("They are back.")
        page.click("button:has-text('Remove the calendar')")
        time.sleep(FRESH_SECONDS + 1)  # what they ask next is another story's


@contextmanager
def reminded_here(page: Page) -> Iterator[None]:
    """Whoever has this page is told of reminders by their browser, while a page is open."""

    def tell(wanted: bool) -> None:
        page.goto("/notifications")
        page.set_checked("[name='reminder.browser']", wanted)
        page.click("#settings-form button.main")
        expect(page.locator(".messages")).to_contain_text("From now on you are told like that.")

    tell(True)
    page.click("#browser-on")
    expect(page.locator("#browser-off")).to_be_visible()
    try:
        yield
    finally:
        tell(False)


def reminders(site: Site, case: str) -> list[str]:
    """What became of those about a case that went out."""
    told = site.api("/notifications/deliveries?by=browser&limit=1000")["results"]
    return [row["state"] for row in told if row["kind"] == "reminder" and row["approval_id"] == case]


def test_nobody_answered_is_no_rejection(person: Person, site: Site, complaints: Complaints) -> None:
    finance, olga = person("approver_finance"), person("operator")
    refused, no = asked(site, "a quote", seconds=600)
    finance.goto(f"/inbox/{no}")
    finance.fill("#justification", "They called already.")
    read_all(finance)
    finance.click("[data-verdict=reject]")
    expect(finance.locator(".messages")).to_contain_text("Rejected.")
    # whoever has the case open when its time is up is told there, and keeps what they were writing
    left, case = asked(site, "an invoice", seconds=40)
    finance.goto(f"/inbox/{case}")
    finance.fill("#justification", "Let me see,")
    expect(finance.locator("#time")).to_contain_text("Nobody deciding by then denies it.")
    expect(finance.locator("[data-closed]")).to_contain_text("Nobody answered.", timeout=120_000)
    expect(finance.locator("[data-closed]")).to_contain_text("That is no rejection")
    kept(finance, "expiry-case-while-writing")
    expect(finance.locator("#justification")).to_have_value("Let me see,")
    expect(finance.locator("[data-verdict=approve]")).to_be_disabled()
    finance.goto(f"/inbox/{case}")
    expect(finance.locator("#decide")).to_have_count(0)
    kept(finance, "expiry-case")
    holds_up(finance)
    finance.goto("/inbox?show=decided")
    expect(finance.locator(f"#item-{case}")).to_contain_text("nobody answered")
    expect(finance.locator(f"#item-{no}")).to_contain_text("rejected")
    holds_up(finance)
    # the agent was told two things, and so is whoever looks at its runs
    for run_id, heard, told in (
        (left, "nobody answered, expired, by system:sweeper", "nobody answered: No decision"),
        (refused, "no, rejected, by user:finance: They called already.", "rejected: They called already."),
    ):
        site.reaches(run_id, "completed")
        olga.goto(f"/runs/{run_id}")
        kept(olga, f"expiry-run-{told[:6]}")
        holds_up(olga)
        assert site.run(run_id)["output"] == {"heard": heard}
        expect(olga.locator(".tl")).to_contain_text(told)
        expect(olga.locator(".e")).to_have_count(0)
    states = {a["run_id"]: a["state"] for a in site.api("/approvals?limit=1000")["results"]}
    assert (states[left], states[refused]) == ("expired", "rejected")
    assert complaints == []


def test_one_that_waits_for_ever_reminds_and_one_by_a_calendar_has_until_people_work(
    admin: Page, person: Person, site: Site, complaints: Complaints
) -> None:
    finance = person("approver_finance", permissions=["notifications"])
    with reminded_here(finance), shut_for_days(admin) as shut_until:
        ever, for_ever = asked(site, "a guarantee", seconds=3, then="remind")
        soon = site.start("zz-caller", {"about": "a leak", "seconds": 5})
        working, by_calendar = asked(site, "a visit", by_calendar=True)
        finance.goto(f"/inbox/{for_ever}")
        expect(finance.locator("#time")).to_contain_text("There is no deadline: it waits until somebody decides")
        expect(finance.locator("#time")).to_contain_text(REMINDED)
        expect(finance.locator("#case header").first).to_contain_text("no deadline")
        eventually(lambda: set(reminders(site, for_ever)) == {"sent"}, "finance was reminded by their browser")
        finance.goto("/inbox")
        expect(finance.locator(f"#item-{for_ever}")).to_contain_text(re.compile(r"reminded \d+×"))
        finance.goto(f"/inbox/{for_ever}")
        kept(finance, "expiry-for-ever")
        holds_up(finance)
        # of two that had a minute and less, the one that counts by the calendar is there after the other
        assert site.reaches(soon, "completed")["output"]["heard"].startswith("nobody answered")
        finance.goto(f"/inbox/{by_calendar}")
        expect(finance.locator("#time")).to_contain_text(f"1 working minute, calendar {SHUT} (version ")
        assert datetime.fromisoformat(site.question(working)["deadline"]).date() > shut_until
        kept(finance, "expiry-calendar")
        holds_up(finance)
    finance.goto("/inbox")
    expect(finance.locator(f"#item-{for_ever}")).to_contain_text("reminded ")
    kept(finance, "expiry-inbox")
    assert reminders(site, by_calendar) == []
    for run_id, case in ((ever, for_ever), (working, by_calendar)):
        assert site.run(run_id)["state"] == "waiting_human"
        finance.goto(f"/inbox/{case}")
        finance.fill("#justification", "We call back.")
        read_all(finance)
        finance.click("[data-verdict=approve]")
        expect(finance.locator(".messages")).to_contain_text("Approved.")
        assert site.reaches(run_id, "completed")["output"] == {"heard": "yes"}
    assert complaints == []
