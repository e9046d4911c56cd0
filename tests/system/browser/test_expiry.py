"""A question that nobody answers expires, or reminds people forever."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import approve, reject
from tests.waiting import eventually

# The next one comes a minute after the first: on a busy machine the page is checked after that.
REMINDED = re.compile(r"Reminded \d+ times?\.")


def asked(site: Site, about: str, **more: Any) -> tuple[str, str]:
    run_id = site.waiting("zz-caller", {"about": about, **more})
    return run_id, str(site.question(run_id)["id"])


@contextmanager
def reminded_here(page: Page) -> Iterator[None]:
    def tell(wanted: bool) -> None:
        page.goto("/notifications")
        page.set_checked("[name='reminder.browser']", wanted)
        page.click("#settings-form button.main")
        expect(page.locator(".messages")).to_contain_text("Notification settings saved.")

    tell(True)
    page.click("#browser-on")
    expect(page.locator("#browser-off")).to_be_visible()
    try:
        yield
    finally:
        tell(False)


def reminders(site: Site, case: str) -> list[str]:
    results = site.api("/notifications/deliveries?by=browser&limit=1000")["results"]
    return [row["state"] for row in results if row["kind"] == "reminder" and row["approval_id"] == case]


def test_nobody_answered_is_no_rejection(person: Person, site: Site, complaints: Complaints) -> None:
    finance, olga = person("approver_finance"), person("operator")
    refused, no = asked(site, "a quote", seconds=600)
    finance.goto(f"/inbox/{no}")
    reject(finance, "They called already.")
    # an open case shows that it expired, and keeps the text
    left, case = asked(site, "an invoice", seconds=40)
    finance.goto(f"/inbox/{case}")
    finance.fill("#justification", "Let me see,")
    expect(finance.locator("#time")).to_contain_text("If nobody decides by then, it is rejected.")
    expect(finance.locator("[data-closed]")).to_contain_text("Deadline missed.", timeout=120_000)
    expect(finance.locator("[data-closed]")).to_contain_text("The agent is told that nobody answered")
    expect(finance.locator("#justification")).to_have_value("Let me see,")
    expect(finance.locator("[data-verdict=approve]")).to_be_disabled()
    finance.goto(f"/inbox/{case}")
    expect(finance.locator("#decide")).to_have_count(0)
    holds_up(finance)
    finance.goto("/inbox?show=decided")
    expect(finance.locator(f"#item-{case}")).to_contain_text("nobody answered")
    expect(finance.locator(f"#item-{no}")).to_contain_text("rejected")
    holds_up(finance)
    # the agent got two results, and its runs show them
    for run_id, heard, found in (
        (left, "nobody answered, expired, by system:sweeper", "nobody answered: No decision"),
        (refused, "no, rejected, by user:finance: They called already.", "rejected: They called already."),
    ):
        site.reaches(run_id, "completed")
        olga.goto(f"/runs/{run_id}")
        holds_up(olga)
        assert site.run(run_id)["output"] == {"heard": heard}
        expect(olga.locator(".tl")).to_contain_text(found)
        expect(olga.locator(".e")).to_have_count(0)
    states = {a["run_id"]: a["state"] for a in site.api("/approvals?limit=1000")["results"]}
    assert (states[left], states[refused]) == ("expired", "rejected")
    assert complaints == []


def test_one_that_waits_forever_reminds(person: Person, site: Site, complaints: Complaints) -> None:
    finance = person("approver_finance", permissions=["notifications"])
    with reminded_here(finance):
        ever, case = asked(site, "a guarantee", seconds=3, then="remind")
        finance.goto(f"/inbox/{case}")
        expect(finance.locator("#time")).to_contain_text("There is no deadline. Approvers are reminded")
        expect(finance.locator("#time")).to_contain_text(REMINDED)
        expect(finance.locator("#case header").first).to_contain_text("no deadline")
        eventually(lambda: set(reminders(site, case)) == {"sent"}, "finance was reminded by their browser")
        finance.goto("/inbox")
        expect(finance.locator(f"#item-{case}")).to_contain_text(re.compile(r"reminded \d+×"))
        finance.goto(f"/inbox/{case}")
        holds_up(finance)
    finance.goto(f"/inbox/{case}")
    approve(finance, "We call back.")
    assert site.reaches(ever, "completed")["output"] == {"heard": "yes"}
    assert complaints == []
