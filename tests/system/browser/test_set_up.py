"""An installation without the demo, from no account to a decision."""

from __future__ import annotations

import re
from collections.abc import Callable

from playwright.sync_api import Page, expect

from tests.system.browser.site import Site
from tests.system.browser.steps import first_administrator, invited


def test_from_nobody_to_a_decision(bare: Site, somebody: Callable[[], Page]) -> None:
    # a stranger who comes first gets nowhere
    stranger = somebody()
    stranger.goto("/")
    stranger.click("text=Set up this installation")
    expect(stranger.locator("main")).to_contain_text("manage.py setup_link")
    assert stranger.locator("input[type=password]").count() == 0
    # someone with access to the machine does
    root = somebody()
    link = first_administrator(root, bare)
    expect(root.locator("main")).to_contain_text("Nobody may decide here")
    stranger.goto(link)
    expect(stranger.locator("main")).to_contain_text("has been used")
    # people are invited, and see what they may
    operator = invited(root, somebody(), "olaf", "Operator")
    finance = invited(root, somebody(), "fiona", "Finance approver")
    root.goto("/setup")
    expect(root.locator("main")).to_contain_text("1 person decides, as Finance approver")
    # a run asks, and is decided
    operator.goto("/runs/new?agent=zz-clerk@1.0.0")
    operator.click("button:has-text('Start the run')")
    operator.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}$"))
    expect(operator.locator("#why")).to_contain_text("Waiting for finance_po to decide")
    finance.goto("/inbox")
    finance.click("[data-item]")
    finance.fill("#justification", "Matches the quote.")
    finance.click("button:has-text('Approve')")
    expect(finance.locator(".messages")).to_contain_text("Approved.")
    expect(operator.locator("h1 ~ .chip")).to_have_text("completed")
    # a session that an administrator ends is over
    root.goto("/people")
    root.click("a:has-text('fiona')")
    root.fill("#why-s", "She has left.")
    root.click("button:has-text('End all sessions')")
    expect(root.locator(".messages")).to_contain_text("1 session ended")
    # its page leaves by itself, without a click or reload
    finance.wait_for_url(re.compile(r"/login\?next=/inbox"))
    # and no link is in any log
    logs = "".join(path.read_text() for path in (bare.data / "logs").glob("*.log"))
    assert link.rpartition("/")[2] not in logs and set(re.findall("/invited/[^ ]*", logs)) == {"/invited/…"}
