"""Injecting values into a resumed run, and actions on the fleet, in a browser."""

from __future__ import annotations

import json

from playwright.sync_api import expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME

WHY = "The supplier wrote that the address has changed."


def test_an_operator_looks_and_resumes_a_run_with_another_state(
    person: Person, site: Site, complaints: Complaints
) -> None:
    run_id = site.waiting("vendor-onboard", ACME)
    page = person("operator")
    page.goto(f"/runs/{run_id}")
    page.locator("#act-pause summary").click()
    page.locator("#why-pause").fill(WHY)
    page.get_by_role("button", name="Pause the run").click()
    expect(page.locator("#act-resume")).to_be_visible()
    page.goto(f"/runs/{run_id}/context")
    expect(page.locator("#state-title")).to_have_text("Current state")
    field = page.locator("#c-patch-help").inner_text().split('"')[1]
    page.locator("#c-patch").fill("{")
    page.get_by_role("button", name="Preview changes").click()
    expect(page.locator("[role=alert]")).to_contain_text("not JSON")
    page.locator("#c-patch").fill(json.dumps({field: "\u202enonsense"}))
    page.get_by_role("button", name="Preview changes").click()
    expect(page.locator("#changes")).to_contain_text("U+202E")
    holds_up(page)
    page.locator("#c-why").fill(WHY)
    page.get_by_role("button", name="Resume run").click()
    expect(page.locator("h1")).not_to_contain_text("Change context")
    site.reaches(run_id, "waiting_human")
    assert [x["kind"] for x in site.api(f"/runs/{run_id}/events?limit=200", "operator")["results"]][-2:] == [
        "ContextInjected",
        "RunResumed",
    ]
    page.goto("/fleet/acts")
    expect(page.locator("#d-process option").first).to_be_attached()
    holds_up(page)
    assert complaints.besides("422") == []
