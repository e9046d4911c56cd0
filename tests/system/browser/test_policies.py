"""A policy made stricter under four eyes stops a run that was approved before, also on another worker."""

from __future__ import annotations

import os
import signal

import pytest
from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person, Profile
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import approve, ask_for_two, invited
from tests.waiting import eventually

POLICY = "large_customer_refunds"  # the demo's: above $5,000 legal is asked as well
RULE = "A refund above $500 is for legal as well"
PAID = "shop.refund"


@pytest.fixture
def site(quiet: Site) -> Site:
    return quiet


def asked(site: Site, order: str, usd: str) -> str:
    return site.waiting("customer-refund", {"order_number": order, "complaint": "It came dented.", "wanted_usd": usd})


def paid(site: Site, order: str, usd: str) -> str:
    run_id = asked(site, order, usd)
    site.approve(run_id)
    site.reaches(run_id, "completed")
    assert site.effects(run_id) == [PAID]
    return run_id


def kill_worker(site: Site) -> None:
    def workers() -> set[int]:
        return {row["pid"] for row in site.api("/fleet")["results"] if row["kind"] == "worker"}

    (killed,) = workers()
    os.kill(killed, signal.SIGKILL)
    eventually(lambda: workers() - {killed} and killed not in workers(), "another worker")


def proposed(page: Page) -> str:
    page.goto(f"/policies/of/{POLICY}")
    page.fill("#p-condition", "args.amount_usd > ten")
    page.fill("#p-rule", RULE)
    page.click("button:has-text('Try it on history')")
    expect(page.locator("[data-alert]")).to_contain_text("isn't a number")
    expect(page.locator("#p-rule")).to_have_value(RULE)
    held_up = page.locator("tr", has_text="held for approval")
    page.fill("#p-condition", "args.amount_usd > 100")
    page.click("button:has-text('Try again')")
    expect(held_up.locator(".num")).to_have_text("2")
    page.fill("#p-condition", "args.amount_usd > 500")
    page.click("button:has-text('Try again')")
    expect(held_up.locator(".num")).to_have_text("1")
    expect(held_up.locator("a")).to_have_count(0)  # a policy administrator who may see no runs is shown none
    expect(page.locator("tr", has=page.get_by_text("legal", exact=True))).to_contain_text("no decisions yet")
    holds_up(page)
    page.fill("#p-why", "Agreed with the board.")
    page.click("button:has-text('Publish version 2')")
    expect(page.locator(".messages")).to_contain_text("A second person must approve it")
    return page.url


def agreed(page: Page, address: str, dear: str) -> None:
    page.goto("/changes")
    page.click(f"main a:has-text('{POLICY}')")
    page.wait_for_url(address)
    expect(page.locator("ins", has_text="args.amount_usd > 500")).to_be_visible()
    expect(page.locator("del", has_text="args.amount_usd > 5000")).to_be_visible()
    page.click("button:has-text('Try it on history')")
    expect(page.locator("tr", has_text="held for approval").locator("a")).to_have_attribute("href", f"/runs/{dear}")
    holds_up(page)
    page.goto(address)
    page.fill("#c-why", "It holds up one in three, and legal can read.")
    page.click("button.main")
    expect(page.locator(".messages")).to_contain_text("Change applied.")


def pause(page: Page, run_id: str) -> None:
    page.goto(f"/runs/{run_id}")
    page.click("#act-pause summary")
    page.fill("#why-pause", "The host is restarted.")
    page.click("text=Pause the run")
    expect(page.locator("h1 ~ .chip")).to_have_text("paused")


def resume(page: Page) -> None:
    page.click("#act-resume summary")
    page.fill("#why-resume", "It is back.")
    page.click("text=Resume the run")


def test_a_policy_that_gets_stricter_stops_what_was_approved_before(
    admin: Page, profiles: Profile, person: Person, site: Site, complaints: Complaints
) -> None:
    second = invited(admin, profiles(site), "bert", "Operator", is_admin=True)
    dear = paid(site, "SO-004802", "600.00")
    paid(site, "SO-004711", "200.00")
    paid(site, "SO-005003", "95.00")
    ask_for_two(admin, "policies", "roles")
    expect(admin.locator(".messages")).to_contain_text("now need two people")
    # finance approves a paused run; then its worker is killed
    run_id = asked(site, "SO-004950", "640.00")
    olga, legal = person("operator"), person("approver_legal")
    pause(olga, run_id)
    finance = person("approver_finance")
    finance.goto(f"/inbox/{site.question(run_id)['id']}")
    approve(finance, "They are dented indeed.")
    kill_worker(site)
    address = proposed(admin)
    assert site.api("/policies", "auditor")["results"][0]["version"] == 1, "what one proposes changes nothing"
    agreed(second, address, dear)
    admin.goto(f"/policies/of/{POLICY}")
    expect(admin.locator("main")).to_contain_text("version 2, set by")
    holds_up(admin)
    # it continues under the stricter rule, and nothing is sent by the earlier approval
    resume(olga)
    expect(olga.locator("#why")).to_contain_text("Waiting for legal to decide")
    assert site.effects(run_id) == []
    expect(olga.locator(".e")).to_have_count(1)
    expect(olga.locator(".e")).to_contain_text("Waiting for approval. Not sent.")
    holds_up(olga)
    case = site.question(run_id)["id"]
    legal.goto(f"/inbox/{case}")
    expect(legal.locator("#case")).to_contain_text(RULE)
    legal.locator(".evidence summary", has_text="This call was asked for before").click()
    expect(legal.get_by_text(f"the policy {POLICY} (version 2) asks legal as well")).to_be_visible()
    holds_up(legal)
    approve(legal, "Read, and fine.")
    expect(olga.locator("h1 ~ .chip")).to_have_text("completed")
    assert site.effects(run_id) == [PAID]
    assert complaints.besides("422") == []
