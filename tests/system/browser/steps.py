"""Steps of people on the pages: sign in, read, decide, invite, set up queues."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from typing import Any

from playwright.sync_api import Page, expect

from tests.conftest import CHECKOUT
from tests.system.browser.site import ALONE, NAMES, Site

A_RUN = re.compile(r"/runs/[0-9a-f-]{36}$")
PASSWORD = "a staple nobody knows"
EFFECTS = [
    "portal.request_w9",
    "erp.create_vendor",
    "erp.file_purchase_order",
    "credentials.provision",
    "email.send_welcome",
]
ACME = {
    "legal_name": "Acme Pallets Ltd",
    "country": "GB",
    "tax_id": "GB-123456",
    "contact_email": "a@acme.example",
    "category": "Pallets",
    "first_order": {"description": "Pallets", "amount_usd": 12_400},
    "requested_by": "ops",
}


# --- signing in ---


def sign_in(page: Page, role: str) -> Page:
    page.goto("/login")
    page.locator(".roles button", has_text=NAMES[role]).click()
    page.wait_for_url("**/")
    return page


def sign_in_by_password(page: Page, username: str, password: str, lands_on: Any = "**/") -> Page:
    page.goto("/login")
    page.fill("#username", username)
    page.fill("#password", password)
    page.press("#password", "Enter")
    page.wait_for_url(lands_on)
    return page


def sign_in_as_admin(page: Page, site: Site) -> Page:
    return sign_in_by_password(page, "admin", user(site, "admin")["password"], re.compile(r"/(setup)?$"))


def sign_in_as_finance(page: Page, site: Site) -> Page:
    return sign_in_by_password(page, "finance", user(site, "finance")["password"])


def user(site: Site, username: str) -> dict[str, Any]:
    (found,) = [each for each in site.demo()["users"] if each["username"] == username]
    return dict(found)


# --- deciding ---


def read_all(page: Page) -> None:
    """Scroll every argument of a case into view, as Approve requires; a picture counts once it is rendered."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if page.locator("#seen").is_hidden():
            return
        # By event: a real click scrolls first, which may show the last argument and hide the button.
        page.locator("#seen [data-next]").dispatch_event("click")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    raise AssertionError(page.locator("#seen").inner_text())


def approve(page: Page, why: str = "Matches the quote.") -> None:
    page.fill("#justification", why)
    read_all(page)
    page.click("[data-verdict=approve]")
    expect(page.locator(".messages")).to_contain_text("Approved.")


def reject(page: Page, why: str) -> None:
    page.fill("#justification", why)
    page.click("[data-verdict=reject]")
    expect(page.locator(".messages")).to_contain_text("Rejected.")


def start_clerk(page: Page, ending: str, **more: str) -> str:
    page.goto("/runs/new?agent=zz-clerk@1.0.0&sample=none")
    for name, value in {"ending": ending, **more}.items():
        page.fill(f"#f-{name}", value)
    page.click("button:has-text('Start the run')")
    page.wait_for_url(A_RUN)
    return page.url


# --- administrators ---


def setup_link(site: Site) -> str:
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


def choose_password(page: Page) -> None:
    page.fill("[name=new_password1]", PASSWORD)
    page.fill("[name=new_password2]", PASSWORD)
    page.click("button:has-text('Create account')")


def first_administrator(page: Page, site: Site) -> str:
    page.goto(link := setup_link(site))
    page.fill("[name=username]", "root")
    page.fill("[name=email]", "root@example.org")
    choose_password(page)
    page.wait_for_url("**/setup")
    return link


def invited(root: Page, page: Page, name: str, *roles: str, is_admin: bool = False, mail: str = "") -> Page:
    root.goto("/people")
    form = root.locator("#invite-title >> xpath=ancestor::section")
    form.locator("[name=username]").fill(name)
    form.locator("[name=email]").fill(mail or f"{name}@example.org")
    form.locator("[name=is_admin]").set_checked(is_admin)
    for role in roles:
        form.get_by_label(role, exact=True).check()
    form.locator("[name=justification]").fill("They join us.")
    root.click("button:has-text('Invite')")
    page.goto(root.inner_text("#secret"))
    for role in roles:
        expect(page.locator("dl.pairs")).to_contain_text(role)
    choose_password(page)
    page.wait_for_url("**/")
    return page


def ask_for_two(page: Page, *families: str) -> None:
    page.goto("/changes")
    for family in families:
        page.check(f"#g-{family}")
    page.fill("#g-why", "The auditors ask for it.")
    page.locator("form", has=page.locator("#g-why")).get_by_role("button").click()


def set_deadlines(page: Page, *, calendar: str, then: str = "", to: str = "", hours: str = "") -> None:
    """Set the deadlines of finance's queue; `to` gets its cases after these hours, or at once if all are away."""
    page.goto("/queues/of/finance_po")
    page.locator("summary", has_text="Set deadlines").click()
    page.select_option("#t-calendar", calendar)
    page.select_option("#t-then", then)
    page.select_option("#t-to1", to)
    page.fill("#t-hours1", hours)
    page.locator("#timing-form [name=at_once_if_away]").set_checked(bool(to))
    page.fill("#t-remind", "50, 80" if then else "")
    page.fill("#t-why", "As agreed with the works council.")
    page.click("button:has-text('Save deadlines')")
    expect(page.locator(".messages")).to_contain_text("Deadlines saved")


def set_proof(page: Page, *, minutes: str, above: str, types_amount: bool = False) -> None:
    page.goto("/queues/of/finance_po")
    page.locator("summary", has_text="Extra verification").click()
    page.fill("#p-above", above)
    page.fill("#p-minutes", minutes)
    page.locator("#proof-form [name=type_amount]").set_checked(types_amount)
    page.fill("#p-why", "The auditors ask for it.")
    page.locator("#proof-form button").click()
    expect(page.locator("#proof-asked" if minutes else "#who-title")).to_be_visible()
