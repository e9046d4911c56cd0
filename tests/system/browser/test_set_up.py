"""A real installation without the demo, from nobody at all to a decision, by hand in a browser: link, first
administrator, people by invitation, a run that asks, and somebody who decides."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import CHECKOUT
from tests.system.browser.conftest import Site, profiles, running

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(480)]
PASSWORD = "a staple nobody knows"
ALONE = {
    "DURABLEAGENTS_DEMO": "0",
    "DURABLEAGENTS_QUEUES": "finance_po=approver_finance,legal=approver_legal",
    "DURABLEAGENTS_AGENTS": "tests.system.browser.agents",
}


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`DURABLEAGENTS_DEMO=0 manage.py up`: nobody has an account."""
    site = Site(tmp_path_factory.mktemp("bare") / "data")
    with running(site, **ALONE):
        yield site


@pytest.fixture
def somebody(browser: Browser, bare: Site) -> Iterator[Callable[[], Page]]:
    with profiles(browser, bare) as of:
        yield of


def setup_link(site: Site) -> str:
    """What whoever has the machine types."""
    answer = subprocess.run(
        [sys.executable, "manage.py", "setup_link"],
        cwd=CHECKOUT,
        env=site.environment(**ALONE),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return answer.stdout.strip()


def choose_password(page: Page, button: str = "Make the account") -> None:
    page.fill("[name=new_password1]", PASSWORD)
    page.fill("[name=new_password2]", PASSWORD)
    page.click(f"button:has-text('{button}')")


def first_administrator(page: Page, link: str) -> None:
    """Who opens the link, from then on."""
    page.goto(link)
    page.fill("[name=username]", "root")
    page.fill("[name=email]", "root@example.org")
    choose_password(page)
    page.wait_for_url("**/setup")


def invited(root: Page, page: Page, name: str, *roles: str, is_admin: bool = False, mail: str = "") -> Page:
    """Invited by the administrator, and signed in by the link."""
    root.goto("/people")
    form = root.locator("#invite-title >> xpath=ancestor::section")
    form.locator("[name=username]").fill(name)
    form.locator("[name=email]").fill(mail or f"{name}@example.org")
    form.locator("[name=is_admin]").set_checked(is_admin)
    for role in roles:
        form.get_by_label(role, exact=True).check()
    form.locator("[name=justification]").fill("They join us.")
    root.click("button:has-text('Invite')")
    link = root.inner_text("#secret")
    page.goto(link)
    for role in roles:
        expect(page.locator("dl.pairs")).to_contain_text(role)
    choose_password(page)
    page.wait_for_url("**/")
    return page


def test_from_nobody_to_a_decision(bare: Site, somebody: Callable[[], Page]) -> None:
    # a stranger who comes first gets nowhere
    stranger = somebody()
    stranger.goto("/")
    stranger.click("text=Set this installation up")
    expect(stranger.locator("main")).to_contain_text("manage.py setup_link")
    assert stranger.locator("input[type=password]").count() == 0
    # whoever has the machine does
    root, link = somebody(), setup_link(bare)
    first_administrator(root, link)
    expect(root.locator("main")).to_contain_text("Nobody decides")
    stranger.goto(link)
    expect(stranger.locator("main")).to_contain_text("has been used")
    # people come by invitation, and see what is theirs
    operator = invited(root, somebody(), "olaf", "Operator")
    finance = invited(root, somebody(), "fiona", "Finance approver")
    root.goto("/setup")
    expect(root.locator("main")).to_contain_text("1 person decides, as Finance approver")
    # a run asks, and is decided
    operator.goto("/runs/new?agent=zz-clerk@1.0.0")
    operator.click("button:has-text('Start the run')")
    operator.wait_for_url(re.compile(r"/runs/[0-9a-f-]{36}$"))
    expect(operator.locator("#why")).to_contain_text("Waits for finance_po to decide")
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
    # its page leaves by itself: nobody clicks or reloads it
    finance.wait_for_url(re.compile(r"/login\?next=/inbox"))
    # and no link is in any log
    logs = "".join(path.read_text() for path in (bare.data / "logs").glob("*.log"))
    assert link.rpartition("/")[2] not in logs and "/invited/" not in logs
