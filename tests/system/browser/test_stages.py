"""Several people decide one call: two of finance, one abstaining, then a deputy for legal."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Page, expect

from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import A_RUN, first_administrator, invited, read_all

FINANCE, LEGAL = "Finance approver", "Legal approver"


def started(page: Page) -> str:
    page.goto("/runs/new?agent=zz-tenant@1.0.0&sample=none")
    page.click("button:has-text('Start the run')")
    page.wait_for_url(A_RUN)
    expect(page.locator("#why")).to_contain_text("Waiting for finance_po to decide")
    return page.url


def says(page: Page, words: str, verdict: str = "approve") -> None:
    page.fill("#justification", words)
    read_all(page)
    page.click(f"button[name=verdict][value={verdict}]")
    expect(page.locator(".messages")).to_be_visible()


def signed(site: Site) -> list[str]:
    kept = site.data / "leases.txt"
    return kept.read_text().splitlines() if kept.exists() else []


def test_two_of_finance_and_then_legal_decide_about_a_lease(bare: Site, somebody: Callable[[], Page]) -> None:
    root = somebody()
    first_administrator(root, bare)
    olaf = invited(root, somebody(), "olaf", "Operator")
    fiona, gina = (invited(root, somebody(), name, FINANCE) for name in ("fiona", "gina"))
    bo = invited(root, somebody(), "bo", FINANCE, LEGAL)
    lena, dora = invited(root, somebody(), "lena", LEGAL), invited(root, somebody(), "dora", "Operator")
    run = started(olaf)
    case = two_of_finance(fiona, gina, bo, lena)
    assert signed(bare) == []
    for_lena(lena, dora)
    legal(olaf, lena, bo, dora, case)
    # the run's page shows all of it, and the notary was told once
    expect(olaf.locator("h1 ~ .chip")).to_have_text("completed")
    assert signed(bare) == ["Kanalstraße 7"]
    assert olaf.url == run
    expect(olaf.locator(".e")).to_have_count(1)
    holds_up(olaf)
    bo.goto(case)
    expect(bo.locator("#stages li").last).to_contain_text("on behalf of lena")


def two_of_finance(fiona: Page, gina: Page, bo: Page, lena: Page) -> str:
    """One abstains, one approves, one more is needed; return the case's address."""
    gina.goto("/inbox")
    gina.click("[data-item]")
    case = re.sub(r"\?.*", "", gina.url)
    expect(gina.locator("#stages li").first).to_contain_text("0 of 2 approved")
    expect(gina.locator("#stages li").last).to_contain_text("Starts when the previous stage is approved.")
    holds_up(gina)
    lena.goto("/inbox")
    expect(lena.locator("main")).to_contain_text("No open cases")
    fiona.goto(case)
    bo.goto(case)
    says(gina, "The house is my brother's.", "abstain")
    expect(gina.locator("#decide")).to_have_count(0)
    expect(gina.locator("#stages")).to_contain_text("0 of 2 approved")
    holds_up(gina)
    # the others have the case open, and see it without a reload
    expect(fiona.locator("#stages")).to_contain_text("The house is my brother's.")
    says(bo, "The rent is right.")
    expect(fiona.locator("#stages")).to_contain_text("1 of 2 approved")
    expect(fiona.locator("#stages")).to_contain_text("“The rent is right.”")
    holds_up(fiona)
    says(fiona, "It is what we need.")
    return case


def for_lena(lena: Page, dora: Page) -> None:
    lena.goto("/queues")
    lena.fill("#o-until", f"{datetime.now(UTC) + timedelta(days=2):%Y-%m-%dT%H:%M}")
    lena.fill("#o-deputy", "dora")
    lena.fill("#o-why", "The sea.")
    lena.click("#absence-form button")
    expect(lena.locator("#gone-title")).to_be_visible()
    holds_up(lena)
    dora.goto("/queues")
    expect(dora.locator("#mine-title")).to_be_visible()
    holds_up(dora)


def legal(olaf: Page, lena: Page, bo: Page, dora: Page, case: str) -> None:
    """Check that finance's deciders may not decide for legal, and that the deputy may."""
    expect(olaf.locator("#why")).to_contain_text("Waiting for legal to decide")
    bo.goto("/inbox")
    expect(bo.locator("[data-item]")).to_contain_text("stage 2 of 2: 0 of 1 approved; you voted")
    bo.click("[data-item]")
    expect(bo.locator("#case footer")).to_contain_text("Each person has one vote per case.")
    expect(bo.locator("#decide")).to_have_count(0)
    holds_up(bo)
    # the first stage's case shows what followed
    bo.goto(case)
    expect(bo.locator("#stages li").last).to_contain_text("Follows as a separate case.")
    holds_up(bo)
    dora.goto("/inbox")
    expect(dora.locator("[data-item]").first).to_contain_text("for lena")
    dora.click("[data-item]")
    expect(dora.locator("#in-place-of")).to_contain_text("lena")
    expect(dora.locator("#stages")).to_contain_text("2 of 2 approved")
    holds_up(dora)
    says(dora, "The contract is as agreed.")
