"""Two operators settle an unknown outcome, by hand in a browser: the other side is asked, one says what became of the
call, a second one agrees, and the run goes on."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Site
from tests.system.browser.looks import kept
from tests.system.browser.test_four_eyes import holds_up
from tests.system.browser.test_set_up import bare, first_administrator, invited, setup_link, somebody

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(480)]
__all__ = ["bare", "somebody"]  # fixtures
RUN = re.compile(r"/runs/[0-9a-f-]{36}$")


def has_an_unknown_outcome(page: Page) -> str:
    page.goto("/runs/new?agent=zz-clerk@1.0.0&sample=none")
    page.fill("#f-ending", "unknown")
    page.click("button:has-text('Start the run')")
    page.wait_for_url(RUN)
    expect(page.locator("#reconcile")).to_be_visible()
    return page.url


def one_is_enough(page: Page) -> None:
    """Before anybody asks for two."""
    has_an_unknown_outcome(page)
    page.fill("#why-reconcile", "It never left.")
    page.locator("[name=verdict][value=fail]").check()
    page.click("#reconcile-form >> text=Settle it")
    expect(page.locator("h1 ~ .chip")).to_have_text("failed")


def asks_for_two(page: Page) -> None:
    """An administrator."""
    page.goto("/changes")
    for family in ("outcomes", "roles"):
        page.check(f"#g-{family}")
    page.fill("#g-why", "Paid twice once.")
    page.click("button:has-text('Say so')")
    expect(page.locator(".messages")).to_contain_text("Two people change these")


def test_an_unknown_outcome_is_settled_by_two(bare: Site, somebody: Callable[[], Page]) -> None:
    root, link = somebody(), setup_link(bare)
    first_administrator(root, link)
    ann = invited(root, somebody(), "ann", "Operator", is_admin=True)
    ben = invited(root, somebody(), "ben", "Operator")
    one_is_enough(ann)
    asks_for_two(root)
    # the other side is asked, and a worker tells what it says; both have the page open meanwhile
    address = has_an_unknown_outcome(ann)
    ben.goto(address)
    expect(ann.locator("#for-two")).to_contain_text("Two people settle this.")
    expect(ann.locator("#look-up a").first).to_have_attribute("href", re.compile("^https://post.example/letters"))
    ann.click("#ask-upstream summary")
    ann.fill("#why-ask", "They may know by now.")
    ann.click("#ask-form button")
    expect(ann.locator(".messages")).to_contain_text("It is asked as soon as a worker has the run")
    expect(ben.locator("#upstream-title")).to_have_text("The other side gave no answer that can be used")
    # the first word: on record, and nothing has changed
    ann.locator("[name=verdict][value=happened]").check()
    ann.fill("#receipt", '{"ref": "R-7 <b>"}')
    ann.fill("#why-reconcile", "It stands in the outbox.")
    ann.click("#reconcile-form >> text=Say so")
    expect(ann.locator(".messages")).to_contain_text("A second operator has to say the same")
    expect(ann.locator("#said-first")).to_contain_text("You said this")
    holds_up(ann)
    kept(ann, "settling-first")
    # the second one sees it live, agrees, and needs a reason
    expect(ben.locator("#said-title")).to_contain_text("user:ann says: it happened")
    expect(ben.locator("#said-first")).to_contain_text("R-7 <b>")
    holds_up(ben)
    kept(ben, "settling-second")
    ben.fill("#why-agree", " ")
    ben.evaluate("document.querySelector('#agree-form').noValidate = true")
    ben.click("#agree-form button")
    expect(ben.locator("[data-alert]")).to_contain_text("needs a justification")
    ben.fill("#why-agree", "I see it there too.")
    ben.click("#agree-form button")
    expect(ben.locator(".messages")).to_contain_text("Settled. It is on the record.")
    expect(ben.locator("h1 ~ .chip")).to_have_text("completed")
    # what people said of others like it, with why
    has_an_unknown_outcome(ben)
    ben.click("#look-up >> text=What became of others like it")
    ben.wait_for_url(re.compile(r"/reconciliations/similar"))
    expect(ben.locator("main")).to_contain_text("I see it there too.")
    expect(ben.locator("main")).to_contain_text("It never left.")
    holds_up(ben)
    kept(ben, "settling-similar")
