"""Pausing many runs at once: a preview, the start, progress run by run, and the reason on each run's page."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.waiting import eventually

WHY = "The bank is closed today."
MANY, TAG = 128, "quarter-end"


def asking(site: Site) -> list[str]:
    given = [
        {"agent": "zz-clerk", "input": {"ending": "asks", "legal_name": f"Pallet Yard {n}"}, "tags": [TAG]}
        for n in range(MANY)
    ]
    answer = site.api("/runs/bulk", "integrator", {"runs": given}, **{"Idempotency-Key": "all-of-the-quarter"})
    return [each["run"]["id"] for each in answer["results"]]


def rows(site: Site, path: str) -> list[Any]:
    answer = site.api(f"{path}&limit=100", "auditor")
    found = answer["results"]
    while answer["next"]:
        answer = site.api(answer["next"].partition("/api/v1")[2], "auditor")
        found += answer["results"]
    return list(found)


def are(site: Site, state: str) -> int:
    return len(rows(site, f"/runs?state={state}&q={TAG}"))


def act_on_all(page: Page, state: str, act: str, label: str) -> None:
    page.goto(f"/runs?state={state}&agent=zz-clerk&q={TAG}")
    page.locator("#to-new_batch").click()
    expect(page.locator("h1")).to_contain_text(f"Bulk actions: {MANY} runs")
    holds_up(page)
    page.locator(f"#b-{act}").check()
    page.locator("#b-why").fill(WHY)
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("h1")).to_have_text(f"{label} {MANY} runs")
    expect(page.locator("#how-far")).to_contain_text("Not started")
    expect(page.locator("#live dl.pairs")).to_contain_text(TAG)
    expect(page.locator("#how-far")).to_contain_text(f"{MANY} of {MANY} runs")


def start_it(page: Page) -> None:
    page.locator("#act-begin summary").click()
    page.get_by_role("button", name="Start job").click()
    expect(page.locator(".messages")).to_contain_text("Bulk job started.")
    expect(page.locator("#progress progress")).to_be_visible()
    expect(page.locator("#how-far")).to_contain_text("Done at", timeout=120_000)
    expect(page.locator("#how-far")).to_contain_text(f"{MANY} done, 0 refused")
    expect(page.locator("#progress progress")).to_have_attribute("value", "100")


def test_an_operator_pauses_all_that_fit_and_a_run_says_why_it_stands_still(
    person: Person, site: Site, complaints: Complaints
) -> None:
    runs = asking(site)
    try:
        eventually(lambda: are(site, "waiting_human") == MANY, "all of them ask")
        page = person("operator")
        act_on_all(page, "waiting_human", "pause", "Pause")
        assert {each["id"] for each in rows(site, f"/runs?state=waiting_human&q={TAG}")} == set(runs)
        holds_up(page)
        start_it(page)
        holds_up(page)
        expect(page.locator("tr[id^=item-] .chip.ok")).to_have_count(100)
        page.get_by_role("link", name="More").click()
        expect(page.locator("tr[id^=item-] .chip.ok")).to_have_count(MANY - 100)
        assert {each["id"] for each in rows(site, f"/runs?state=paused&q={TAG}")} == set(runs)
        stands_still(page, runs[0])
        act_on_all(page, "paused", "resume", "Resume")
        start_it(page)
        assert are(site, "waiting_human") == MANY, "each asks again"
    finally:
        cancelled(site)
    items = {each["run_id"] for each in rows(site, "/approvals?state=open")}
    assert not items & {*runs}, "the inbox is as it was"
    assert complaints == []


def stands_still(page: Page, run_id: str) -> None:
    page.goto(f"/runs/{run_id}")
    expect(page.locator("#why")).to_contain_text("until someone resumes it")
    expect(page.locator("#act-resume")).to_be_visible()
    assert page.locator("#act-pause").count() == 0 and page.locator("#act-retry").count() == 0
    page.locator("#not-now summary").click()
    expect(page.locator("#not-now")).to_contain_text("The run is already paused.")


def cancelled(site: Site) -> None:
    """Cancel them all, even after a failure: other tests follow."""
    body = {"action": "cancel", "filter": {"q": TAG, "agent": "zz-clerk"}, "justification": "The story is over."}
    batch = site.api("/bulk", body=body)["id"]
    eventually(lambda: site.api(f"/bulk/{batch}")["state"] == "done", "all are cancelled")
