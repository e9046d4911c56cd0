"""One administrator proposes a rule, nothing changes, and a second one puts it in force."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID, uuid4

import psycopg
from playwright.sync_api import Page, expect
from psycopg.conninfo import make_conninfo

from durableagents.databases import CONNECTION_FILE
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import ask_for_two, first_administrator, invited


def propose(page: Page) -> None:
    page.goto("/policies")
    page.fill("#p-name", "no_orders")
    page.select_option("#p-agent", "zz-clerk")
    page.select_option("#p-effect", "deny")
    page.fill("#p-rule", "Nothing is ordered in December.")
    page.fill("#p-why", "Agreed with the board.")
    page.click("#policy-form button.main")


def forged(site: Site) -> UUID:
    """Insert a forged proposal in a shape that no process writes."""
    known, number = json.loads((site.data / CONNECTION_FILE).read_text()), uuid4()
    address = make_conninfo(host=known["host"], port=known["port"], dbname=known["dbname"], **known["owner"])
    with psycopg.connect(address) as link:
        link.execute(
            "INSERT INTO ledger_rulechange (id, family, act, given, told, why, by, person, role, auth, address,"
            " made_at, state, ended_by, ended_why) VALUES (%s, 'roles', 'x', '5', '5', 'trust me', 'user:root', 1, '',"
            " '', '', 'infinity', 'open', '', '')",
            [number],
        )
    return number


def look_at_a_forged_one(site: Site, page: Page) -> None:
    """Check that a forged proposal breaks no page and shows none of its content."""
    number = forged(site)
    page.goto("/changes")
    expect(page.locator("main tbody")).to_contain_text("A row that is not authentic")
    holds_up(page)
    page.click("main a:has-text('not authentic')")
    page.wait_for_url(f"**/changes/{number}")
    expect(page.locator("main")).to_contain_text("content is not shown")
    expect(page.locator("main")).not_to_contain_text("trust me")
    assert page.locator("main button").count() == 0
    holds_up(page)


def test_a_rule_is_changed_by_two(bare: Site, somebody: Callable[[], Page]) -> None:
    root = somebody()
    first_administrator(root, bare)
    # with one administrator there is no second person, and the page says so
    ask_for_two(root, "policies", "roles")
    expect(root.locator("[data-alert]")).to_contain_text("fewer than two people")
    for family, is_ticked in (("policies", True), ("roles", True), ("queues", False)):
        expect(root.locator(f"#g-{family}")).to_be_checked(checked=is_ticked)
    bert = invited(root, somebody(), "bert", "Operator", is_admin=True)
    ask_for_two(root, "policies", "roles")
    expect(root.locator(".messages")).to_contain_text("now need two people")
    # a proposal waits, and only its author may withdraw it
    propose(root)
    expect(root.locator(".messages")).to_contain_text("A second person must approve it")
    expect(root.locator("main")).to_contain_text("Nothing is ordered in December.")
    assert root.locator("button:has-text('Approve change')").count() == 0
    expect(root.locator("button:has-text('Withdraw change')")).to_be_visible()
    address = root.url
    root.goto("/policies")
    expect(root.locator("main")).not_to_contain_text("Nothing is ordered in December.")
    # the second person finds it in the navigation, reads its effect, and needs a reason
    bert.goto("/")
    entry = bert.get_by_role("link", name="Rule changes 1 waiting for a second person")
    entry.click()
    bert.wait_for_url("**/changes")
    holds_up(bert)
    bert.click("main a:has-text('no_orders')")
    bert.wait_for_url(address)
    holds_up(bert)
    expect(bert.locator("ins", has_text="Nothing is ordered in December.")).to_be_visible()
    bert.click("button.main")
    expect(bert.locator("[data-alert]")).to_contain_text("needs a reason")
    bert.fill("#c-why", "I read it.")
    bert.click("button.main")
    expect(bert.locator(".messages")).to_contain_text("Change applied.")
    expect(bert.locator(".title .chip")).to_have_text("in force")
    root.goto("/policies")
    expect(root.locator("#row-no_orders")).to_contain_text("Nothing is ordered in December.")
    # nobody can get into the other's account, and two people assign roles
    root.goto("/people")
    root.click("a:has-text('bert')")
    root.wait_for_url("**/people/*")
    holds_up(root)
    bert.goto("/audit?action=rule_change_apply")
    expect(bert.locator("main")).to_contain_text("bert")
    look_at_a_forged_one(bare, bert)
