"""Pictures of the pages for approvers, operators and administrators, with refunds to decide."""

from __future__ import annotations

from playwright.sync_api import Browser, expect

from durableagents.demo.customer_refund import agent
from tests.system.browser.looks import PHONE, WIDE, picture, signed_in
from tests.system.browser.site import Site
from tests.system.browser.steps import read_all, sign_in_as_admin

HOTEL, CAFE, MUSEUM, BISTRO = (sample.input for sample in agent.samples)


def take_people(site: Site, browser: Browser) -> None:
    runs = [site.start(agent.name, given) for given in (HOTEL, CAFE, MUSEUM, BISTRO)]
    for run_id in runs:
        site.reaches(run_id, "waiting_human")
    cases = [site.question(run_id)["id"] for run_id in runs]
    take_approvers(site, browser, cases)
    take_operators(site, browser)
    take_admins(site, browser, runs)


def take_approvers(site: Site, browser: Browser, cases: list[str]) -> None:
    hotel, cafe, _, bistro = cases
    site.api(
        f"/approvals/{hotel}/inquiries",
        "approver_finance",
        {"to": "legal", "question": "Is the carrier liable for this?"},
    )
    site.api(f"/approvals/{cafe}/claim", "treasurer", {})
    finance = signed_in(site, browser, "approver_finance")
    finance.goto(f"/inbox/{hotel}")
    read_all(finance)
    finance.evaluate("scrollTo(0, 0)")
    picture(finance, "approver-case")

    finance.goto(f"/inbox/{cafe}")
    read_all(finance)
    finance.click("#change-it")
    finance.get_by_label("Amount in US dollars").fill("2400.00")
    finance.click("button:has-text('Preview changes')")
    expect(finance.locator("#diff")).to_contain_text("2400.00")
    finance.fill("#justification", "The machine is worth that much less.")
    picture(finance, "approver-changes", is_live=False)

    phone = signed_in(site, browser, "approver_finance", PHONE)
    phone.goto(f"/inbox/{bistro}")
    read_all(phone)
    phone.evaluate("scrollTo(0, 0)")
    picture(phone, "approver-phone")


def take_operators(site: Site, browser: Browser) -> None:
    operator = signed_in(site, browser, "operator")
    operator.goto("/")
    picture(operator, "operator-overview")
    operator.goto(f"/runs?state=waiting_human&agent={agent.name}")
    operator.locator("#to-new_batch").click()
    operator.locator("#b-pause").check()
    operator.locator("#b-why").fill("The bank is closed today.")
    operator.get_by_role("button", name="Preview").click()
    expect(operator.locator("#how-far")).to_contain_text("Not started")
    picture(operator, "operator-many", is_live=False)


def take_admins(site: Site, browser: Browser, runs: list[str]) -> None:
    site.decide(site.question(runs[0]), "approve", "The goods were damaged on our side.")
    site.reaches(runs[0], "completed")
    admin = sign_in_as_admin(browser.new_context(base_url=site.url, viewport=WIDE).new_page(), site)
    admin.goto("/setup")
    picture(admin, "admin-setup", is_live=False)
    admin.goto("/queues/of/customer_refunds")
    picture(admin, "admin-queue", is_live=False)
    admin.goto("/policies/of/large_customer_refunds")
    picture(admin, "admin-policy", is_live=False)
