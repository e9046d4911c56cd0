"""Two operators settle an unknown outcome, after the system was asked."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import ask_for_two, first_administrator, invited, start_clerk


def has_an_unknown_outcome(page: Page) -> str:
    address = start_clerk(page, "unknown")
    expect(page.locator("#reconcile")).to_be_visible()
    return address


def one_is_enough(page: Page) -> None:
    has_an_unknown_outcome(page)
    page.fill("#why-reconcile", "It never left.")
    page.locator("[name=verdict][value=fail]").check()
    page.click("#reconcile-form button")
    expect(page.locator("h1 ~ .chip")).to_have_text("failed")


def test_an_unknown_outcome_is_settled_by_two(bare: Site, somebody: Callable[[], Page]) -> None:
    root = somebody()
    first_administrator(root, bare)
    ann = invited(root, somebody(), "ann", "Operator", is_admin=True)
    ben = invited(root, somebody(), "ben", "Operator")
    one_is_enough(ann)
    ask_for_two(root, "outcomes", "roles")
    expect(root.locator(".messages")).to_contain_text("now need two people")
    # the system is asked, and a worker reports the answer; both have the page open
    address = has_an_unknown_outcome(ann)
    ben.goto(address)
    expect(ann.locator("#for-two")).to_contain_text("Two operators must agree.")
    expect(ann.locator("#look-up a").first).to_have_attribute("href", re.compile("^https://post.example/letters"))
    ann.click("#ask-upstream summary")
    ann.fill("#why-ask", "They may know by now.")
    ann.click("#ask-form button")
    expect(ann.locator(".messages")).to_contain_text("Check requested")
    expect(ben.locator("#upstream-title")).to_have_text("Upstream gave no usable answer")
    # the first verdict: recorded, without effect
    ann.locator("[name=verdict][value=happened]").check()
    ann.fill("#receipt", '{"ref": "R-7 <b>"}')
    ann.fill("#why-reconcile", "It stands in the outbox.")
    ann.click("#reconcile-form button")
    expect(ann.locator(".messages")).to_contain_text("A second operator must confirm it")
    expect(ann.locator("#said-first")).to_contain_text("You proposed this")
    holds_up(ann)
    # the second one sees it live, agrees, and needs a reason
    expect(ben.locator("#said-title")).to_contain_text("user:ann says: it happened")
    expect(ben.locator("#said-first")).to_contain_text("R-7 <b>")
    holds_up(ben)
    ben.fill("#why-agree", " ")
    ben.evaluate("document.querySelector('#agree-form').noValidate = true")
    ben.click("#agree-form button")
    expect(ben.locator("[data-alert]")).to_contain_text("needs a reason")
    ben.fill("#why-agree", "I see it there too.")
    ben.click("#agree-form button")
    expect(ben.locator(".messages")).to_contain_text("Outcome recorded.")
    expect(ben.locator("h1 ~ .chip")).to_have_text("completed")
    # earlier verdicts on similar calls, with reasons
    has_an_unknown_outcome(ben)
    ben.click("#look-up >> text=Similar past cases")
    ben.wait_for_url(re.compile(r"/reconciliations/similar"))
    expect(ben.locator("main")).to_contain_text("I see it there too.")
    expect(ben.locator("main")).to_contain_text("It never left.")
    holds_up(ben)
