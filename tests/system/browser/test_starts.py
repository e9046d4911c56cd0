"""Starts by key and by schedule in a running installation: its own workers and scheduler, seen in a browser."""

from __future__ import annotations

from typing import Any

from playwright.sync_api import expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import LONG_NAME, checked
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME
from tests.waiting import eventually

WHY = {"justification": "to see who is next"}


def keyed(site: Site, **more: Any) -> Any:
    body = {"agent": "vendor-onboard", "input": {**ACME, "legal_name": LONG_NAME}, "business_key": "invoice 2026-0815"}
    return site.api("/runs", "integrator", body | more)


def test_a_queued_run_says_so_and_begins_when_the_one_before_has_ended(person: Person, site: Site) -> None:
    first = keyed(site, on_conflict="replace")
    site.reaches(first["id"], "waiting_human")
    second = keyed(site, on_conflict="queue")
    page = person("operator")
    page.goto(f"/runs/{second['id']}")
    expect(page.locator("#why")).to_contain_text("Queued behind the other runs of invoice 2026-0815")
    page.locator("#why a").click()
    page.wait_for_url(f"**/runs/{first['id']}")
    page.goto(f"/runs/{second['id']}")
    site.api(f"/runs/{first['id']}/cancel", body=WHY)
    site.reaches(second["id"], "waiting_human")
    expect(page.locator("#why")).not_to_contain_text("Queued behind")


def test_a_schedule_starts_its_runs_and_its_page_holds_up(person: Person, site: Site, complaints: Complaints) -> None:
    body = {"name": LONG_NAME, "agent": "vendor-onboard", "input": ACME, "cron": "* * * * *"}
    one = site.api("/schedules", "integrator", body | {"zone": "America/Argentina/ComodRivadavia"})

    site.make_due(one["id"])

    def came() -> Any:
        return site.api(f"/schedules/{one['id']}")["last"] or None

    *_, fired = eventually(came, "its first planned time", seconds=120)  # newest first; the next minute may have begun
    assert fired["outcome"] == "started" and site.run(fired["run_id"])["created_by"] == "user:integrator"
    page = person("operator")
    problems = []
    for path in ("/schedules", "/runs/new", "/runs"):
        page.goto(path)
        problems += checked(page)
    page.goto("/schedules")
    row = page.locator(f"#row-{one['id']}")
    row.locator("summary", has_text="Pause").click()
    row.locator("textarea").first.fill("It has done enough.")
    row.locator("button", has_text="Pause the schedule").click()
    expect(page.locator(f"#row-{one['id']} .chip")).to_have_text("paused")
    problems += checked(page)
    assert problems == [] and complaints == []
