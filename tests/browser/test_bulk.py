"""Many runs at once, in a browser: what fits is looked at, started, and told run by run as workers do it; and the run's
page says why it doesn't move."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Complaints, Person, Site
from tests.browser.test_story import ACME

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(480)]
WHY = "The bank is closed today."


def test_an_operator_pauses_all_that_fit_and_a_run_says_why_it_stands_still(
    person: Person, site: Site, complaints: Complaints
) -> None:
    runs = [site.start("vendor-onboard", ACME) for _ in range(4)]
    for run_id in runs:
        site.reaches(run_id, "waiting_human")
    page = person("operator")
    page.goto("/runs?state=waiting_human&agent=vendor-onboard")
    page.locator("#act-on-all").click()
    expect(page.locator("h1")).to_contain_text("Act on")
    page.locator("#b-pause").check()
    page.locator("#b-why").fill(WHY)
    page.get_by_role("button", name="Look what would become of it").click()
    expect(page.locator("#how-far")).to_contain_text("Nothing is done yet")
    assert {site.run(run_id)["state"] for run_id in runs} == {"waiting_human"}
    page.locator("#act-begin summary").click()
    page.get_by_role("button", name="Start it").click()
    expect(page.locator("#how-far")).to_contain_text("Done at", timeout=60_000)
    assert {site.run(run_id)["state"] for run_id in runs} == {"paused"}
    page.goto(f"/runs/{runs[0]}")
    expect(page.locator("#why")).to_contain_text("stands still until someone resumes it")
    expect(page.locator("#act-resume")).to_be_visible()
    assert page.locator("#act-pause").count() == 0 and page.locator("#act-retry").count() == 0
    page.locator("#not-now summary").click()
    expect(page.locator("#not-now")).to_contain_text("Somebody has paused it already.")
    found = site.api(f"/runs/{runs[0]}/why", "auditor")
    assert found["cause"] == "paused" and not any(act["allowed"] for act in found["acts"])
    assert complaints == []
