"""Two people and one case: claims are seen live and taken over; a queue's reason fills the field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME, read_all

REASON = "Checked against the framework contract of the year."
LONG = "The supplier’s particulars agree with the register, its account with the one that we have: " + "x" * 90


def set_reasons(page: Page) -> None:
    page.goto("/queues/of/finance_po")
    page.locator("summary", has_text="Edit reasons").click()
    page.fill("#r-reasons", f"{REASON}\nhidden \u200b in it")
    page.fill("#r-why", "So that nobody types it renewed.")
    page.click("#reasons-form button")
    expect(page.locator("#r-reasons_error")).to_contain_text("invisible characters")
    expect(page.locator("#r-reasons")).to_have_value(f"{REASON}\nhidden \u200b in it")
    holds_up(page)
    page.fill("#r-reasons", f"{REASON}\n{LONG}")
    page.click("#reasons-form button")
    expect(page.locator(".messages")).to_contain_text("Reasons saved.")
    expect(page.locator("#reasons li")).to_have_count(2)
    holds_up(page)


def test_two_people_and_one_case(admin: Page, person: Person, site: Site, complaints: Complaints) -> None:
    set_reasons(admin)
    finance, other = person("approver_finance"), person("auditor")
    until = (datetime.now(UTC) + timedelta(days=1)).isoformat()
    fields = {"deputy": "legal", "queue": "finance_po", "ends_at": until, "justification": "For this case."}
    deputy = site.api("/deputies", "approver_finance", fields)["id"]
    try:
        one_case(finance, other, person("approver_legal"), site)
        decided_by_who_is_on_it(finance, site)
    finally:
        site.api(f"/deputies/{deputy}/revoke", "approver_finance", {"justification": "It is over."})
    assert complaints.besides("422") == []


def one_case(finance: Page, other: Page, legal: Page, site: Site) -> None:
    run_id = site.waiting("vendor-onboard", ACME | {"legal_name": "Claimed Pallets Ltd"})
    case = f"/inbox/{site.question(run_id)['id']}"
    other.goto(case)
    expect(other.locator("#claims")).to_have_count(0)
    finance.goto(case)
    holds_up(finance)
    finance.locator("#claims button", has_text="Assign to me").click()
    expect(finance.locator("#mine")).to_contain_text("Assigned to you until")
    holds_up(finance)
    # seen by everybody else, without a reload
    expect(other.locator("#claims")).to_contain_text("Assigned to finance until")
    expect(other.locator(".item", has_text="Assigned to finance")).to_be_visible()
    holds_up(other)
    finance.goto("/inbox?on=me")
    expect(finance.locator(".item")).to_have_count(1)
    holds_up(finance)
    finance.goto("/inbox?on=nobody")
    expect(finance.locator(".item", has_text="Claimed Pallets")).to_have_count(0)
    # someone else takes it over while the first one writes: they are told next to their text, which stays
    finance.goto(case)
    finance.fill("#justification", "As I was saying,")
    legal.goto(case)
    holds_up(legal)
    legal.locator("#claims button", has_text="Take over from finance").click()
    expect(legal.locator("#mine")).to_be_visible()
    expect(finance.locator("#taken-over")).to_contain_text("took over from you")
    expect(finance.locator("#decide #on-it")).to_contain_text("Assigned to")
    expect(finance.locator("#justification")).to_have_value("As I was saying,")
    holds_up(finance)
    legal.locator("#claims button", has_text="Release").click()
    expect(finance.locator("#decide #on-it")).to_be_hidden()
    # it lapses by itself, and open pages show that
    site.api(f"{case.replace('inbox', 'approvals')}/claim", "approver_legal", {"minutes": 1})
    expect(other.locator("#claims")).to_contain_text("Assigned to legal until")
    expect(other.locator("#claims")).to_have_count(0, timeout=90_000)
    # an offered reason is added to the text, and sent as edited
    finance.locator("#reasons summary").click()
    holds_up(finance)
    finance.locator("#reasons a", has_text="framework contract").click()
    expect(finance.locator("#justification")).to_have_value(f"As I was saying, {REASON}")
    finance.fill("#justification", f"{REASON} Twice.")
    # offers precede the field: from the text the next key leads to the buttons
    finance.keyboard.press("Tab")
    expect(finance.locator("[data-verdict=approve]")).to_be_focused()
    read_all(finance)
    finance.locator("[data-verdict=reject]").click()
    expect(finance.locator("#case [data-closed]")).to_contain_text(f"{REASON} Twice.")
    holds_up(finance)


def decided_by_who_is_on_it(finance: Page, site: Site) -> None:
    """Check that a decided case no longer shows who claims it."""
    question = site.asked("vendor-onboard", ACME | {"legal_name": "Decided Pallets Ltd"})
    finance.goto(f"/inbox/{question['id']}")
    finance.fill("#justification", "My careful reasons.")
    site.api(f"/approvals/{question['id']}/claim", "approver_legal", {"minutes": 5})
    expect(finance.locator("#decide #on-it")).to_be_visible()
    site.decide(question, "reject", role="approver_legal")
    expect(finance.locator("#decide [role=alert]")).to_contain_text("Your text is kept.")
    expect(finance.locator("#decide #on-it")).to_be_hidden()
