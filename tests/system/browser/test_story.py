"""The main workflow, end to end in a browser, on real processes."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.site import Site
from tests.system.browser.steps import A_RUN, ACME, EFFECTS, read_all, reject
from tests.waiting import eventually


def never_reloaded(page: Page) -> None:
    page.evaluate("window.sameLife = true")


def watched_at_its_gate(person: Person, site: Site) -> tuple[str, Page]:
    run_id = site.waiting("vendor-onboard", ACME)
    watcher = person("auditor")
    watcher.goto(f"/runs/{run_id}")
    expect(watcher.locator("#live-state")).to_contain_text("live")
    never_reloaded(watcher)
    return run_id, watcher


def test_a_vendor_is_onboarded_once_and_everybody_watches(person: Person, site: Site, complaints: Complaints) -> None:
    # given an integrator who starts the sample and keeps looking
    watcher = person("integrator")
    watcher.click("text=Start a run")
    watcher.goto("/runs/new?agent=vendor-onboard")
    expect(watcher.locator("#f-legal_name")).to_have_value("Nordlicht Antriebe GmbH")
    watcher.click("text=Start the run")
    watcher.wait_for_url(A_RUN)
    run_id = watcher.url.rsplit("/", 1)[1]
    never_reloaded(watcher)
    # then the page follows the run by itself, up to the gate
    expect(watcher.locator(".tl")).to_contain_text("Collect W-9")
    expect(watcher.locator("#why")).to_contain_text("Waiting for finance_po to decide on")
    expect(watcher.locator("#why")).to_contain_text("($84,000.00)")
    expect(watcher.locator("#live-state")).to_have_text(re.compile(r"live · seq \d+"))
    # when finance releases the order
    finance = person("approver_finance")
    expect(finance.locator("#count-inbox-wide")).to_contain_text("waiting for you")
    finance.click("text=Inbox >> visible=true")
    finance.fill("#q", run_id)
    finance.press("#q", "Enter")
    finance.click(f"#item-{site.question(run_id)['id']}")
    expect(finance.locator(".amount")).to_have_text("$84,000.00")
    finance.fill("#justification", "Matches the quote.")
    finance.click("text=Approve $84,000.00")
    expect(finance.locator(".messages")).to_contain_text("Approved.")
    # then the watcher sees the end, in the same page, and the outside world saw each effect once
    expect(watcher.locator("h1 ~ .chip")).to_have_text("completed")
    expect(watcher.locator(".facts")).to_contain_text("5 effects")
    expect(watcher.locator(".tl")).to_contain_text("approved: Matches the quote.")
    assert watcher.evaluate("window.sameLife") is True
    assert sorted(site.effects(run_id)) == sorted(EFFECTS)
    assert complaints == []


def test_what_somebody_types_survives_what_happens_meanwhile(person: Person, site: Site) -> None:
    run_id = site.waiting("vendor-onboard", ACME)
    operator = person("operator")
    operator.goto(f"/runs/{run_id}")
    expect(operator.locator("#live-state")).to_contain_text("live")
    operator.click("#act-cancel summary")
    expect(operator.locator("#why-cancel")).to_be_focused()
    operator.keyboard.type("Half a sen")
    site.approve(run_id)
    expect(operator.locator("#why")).to_contain_text("Completed")
    operator.keyboard.type("tence")
    expect(operator.locator("#why-cancel")).to_have_value("Half a sentence")
    # and sending it now is refused in words, with the words kept
    operator.click("text=Cancel the run")
    expect(operator.locator("#refused")).to_contain_text("Half a sentence")


def test_the_keyboard_is_enough_to_decide_one_after_another(person: Person, site: Site) -> None:
    four = [site.start("vendor-onboard", ACME | {"legal_name": "Keyboard AG"}) for _ in range(4)]
    for each in four:
        site.reaches(each, "waiting_human")
    finance = person("approver_finance")
    # Open approvals of earlier tests fill more than a page.
    finance.goto("/inbox")
    finance.keyboard.press("/")
    finance.keyboard.type("Keyboard AG")
    finance.keyboard.press("Enter")
    finance.wait_for_url("**q=Keyboard*")
    listed = finance.locator("a.item")
    expect(listed).to_have_count(4)
    ids = [str(item.get_attribute("id")).removeprefix("item-") for item in listed.all()]
    for _ in range(2):
        finance.keyboard.press("j")
    item = finance.locator(f"#item-{ids[1]}")
    if not item.evaluate("e => e === document.activeElement"):
        finance.keyboard.press("k")
    expect(item).to_be_focused()
    finance.keyboard.press("Enter")
    for n in (1, 2):
        finance.wait_for_url(f"**/inbox/{ids[n]}?q=Keyboard*")
        expect(finance.locator("[data-why]")).to_have_text("Why?")
        finance.wait_for_load_state()  # its keys are bound last
        finance.keyboard.press("a")
        finance.keyboard.type("By keyboard.")
        read_all(finance)
        finance.locator("#justification").press("Control+Enter")
        expect(finance.locator(".messages")).to_contain_text("Approved.")
        expect(finance.locator("#next-case")).to_be_in_viewport()
        finance.keyboard.press("j")
    # in the list's order, and not from its top
    finance.wait_for_url(f"**/inbox/{ids[3]}?q=Keyboard*")
    states = {id: site.api(f"/approvals/{id}")["state"] for id in ids}
    assert list(states.values()) == ["open", "approved", "approved", "open"]


@pytest.mark.parametrize("scripts", [True, False])
def test_back_and_send_starts_no_run_that_nobody_meant(person: Person, scripts: bool) -> None:
    page = person("integrator", java_script_enabled=scripts)
    page.goto("/runs/new?agent=vendor-onboard")
    page.fill("[name=legal_name]", "Back and Sons")
    page.click("text=Start the run")
    page.wait_for_url(A_RUN)
    first = page.url
    page.go_back()
    expect(page.locator("main")).to_contain_text("This form has already started a run.")
    expect(page.locator("main")).to_contain_text("Back and Sons")
    expect(page.locator("form[action='/runs/new']")).to_have_count(0)
    expect(page.get_by_role("link", name="Open the run")).to_have_attribute("href", first[first.index("/runs/") :])
    page.click("text=Start a similar run")
    expect(page.locator("[name=legal_name]")).to_have_value("Back and Sons")
    page.click("text=Start the run")
    page.wait_for_url(A_RUN)
    assert page.url != first
    second = page.url
    page.go_back()
    expect(page.get_by_role("link", name="Open the run")).to_have_attribute("href", second[second.index("/runs/") :])


def test_everything_works_without_script(person: Person, site: Site) -> None:
    integrator = person("integrator", java_script_enabled=False)
    integrator.goto("/runs/new?agent=vendor-onboard")
    integrator.click("text=Start the run")
    integrator.wait_for_url(A_RUN)
    run_id = integrator.url.rsplit("/", 1)[1]
    site.reaches(run_id, "waiting_human")
    integrator.reload()
    expect(integrator.locator("#why")).to_contain_text("Waiting for finance_po")
    operator = person("operator", java_script_enabled=False)
    operator.goto(f"/runs/{run_id}")
    operator.click("#act-pause summary")
    operator.fill("#why-pause", "Month end.")
    operator.click("text=Pause the run")
    expect(operator.locator("h1 ~ .chip")).to_have_text("paused")
    finance = person("approver_finance", java_script_enabled=False)
    finance.goto(f"/inbox/{site.question(run_id)['id']}")
    reject(finance, "No script needed.")


def test_a_killed_web_process_is_noticed_and_caught_up_with(person: Person, site: Site) -> None:
    run_id, watcher = watched_at_its_gate(person, site)
    web = site.part("web")
    assert web is not None
    web.kill()
    # By its state, which may be either: the socket is gone, or a read at that moment failed.
    expect(watcher.locator("#live-state")).to_have_attribute("data-state", "reconnecting")
    expect(watcher.locator("#live-state")).to_contain_text("live")
    site.approve(run_id)
    expect(watcher.locator("#why")).to_contain_text("Completed")
    assert watcher.evaluate("window.sameLife") is True


def test_a_killed_database_costs_the_page_nothing(person: Person, site: Site) -> None:
    run_id, watcher = watched_at_its_gate(person, site)
    server = site.part("postgres")
    assert server is not None
    server.kill()
    eventually(
        lambda: (now := site.part("postgres")) is not None and now.pid != server.pid and site.is_ready(),
        "the database is back",
    )
    site.approve(run_id)
    expect(watcher.locator("#why")).to_contain_text("Completed")
    expect(watcher.locator("#live-state")).to_contain_text("live")
    assert watcher.evaluate("window.sameLife") is True


def test_a_killed_worker_is_a_seam_on_the_timeline(person: Person, site: Site) -> None:
    run_id = site.start("vendor-onboard", ACME)
    site.reaches(run_id, "waiting_tool")
    worker = next(row for row in site.api("/fleet")["results"] if row["kind"] == "worker")
    operator = person("operator")
    operator.goto("/fleet")
    expect(operator.locator(f"#p-worker-{worker['pid']}")).to_be_visible()
    site.remember()
    assert worker["pid"] in site.family
    site.family[worker["pid"]].kill()
    expect(operator.locator(f"#p-worker-{worker['pid']}")).to_have_count(0)
    site.approve(run_id)
    assert site.reaches(run_id, "completed")
    assert sorted(site.effects(run_id)) == sorted(EFFECTS)


def test_what_was_written_outlasts_a_session_that_ended(person: Person, site: Site) -> None:
    run_id = site.start("vendor-onboard", ACME)
    assert site.reaches(run_id, "waiting_human")
    finance = person("approver_finance")
    case = f"/inbox/{site.question(run_id)['id']}"
    finance.goto(case)
    read_all(finance)
    finance.fill("#justification", "Asked the vendor:\n- carrier is ours")
    other = finance.context.new_page()
    other.goto("/runs")
    other.click(".who summary")
    other.click("text=Sign out")
    other.wait_for_url("**/login**")
    expect(finance.locator("#live-state")).to_contain_text("signed out")
    finance.locator("[data-verdict=reject]").click()
    expect(finance.locator("[data-left-note]")).to_be_focused()
    expect(finance.locator("#justification")).to_have_value("Asked the vendor:\n- carrier is ours")
    assert finance.url.endswith(case)
    assert site.run(run_id)["state"] == "waiting_human"
    finance.click("text=Sign in again")
    finance.locator(".roles button", has_text="Finance approver").click()
    finance.wait_for_url(f"**{case}")
    expect(finance.locator("#justification")).to_have_value("Asked the vendor:\n- carrier is ours")
    # also on a page that gets no events while open
    bought = site.start("zz-buyer", {})
    assert site.reaches(bought, "waiting_human")
    form = f"/approvals/{site.question(bought)['id']}/changes"
    finance.goto(form)
    finance.fill("#changes [name$=amount_usd]", "1200")
    finance.context.clear_cookies(name=f"durableagents_session_{site.port}")
    finance.click("text=Preview changes")
    finance.wait_for_url("**/login?next=**")
    finance.locator(".roles button", has_text="Finance approver").click()
    finance.wait_for_url(f"**{form}")
    expect(finance.locator("#changes [name$=amount_usd]")).to_have_value("1200")
    expect(finance.locator("[data-draft-note]")).to_contain_text("was restored")
    # what was sent is not kept, and nobody else sees it
    finance.click("text=Preview changes")
    expect(finance.locator("#diff")).to_be_visible()
    assert finance.evaluate("Object.keys(sessionStorage).some((key) => key.includes('/changes'))") is False
