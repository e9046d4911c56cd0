"""Pages on phones, in both themes, with accessible names for all controls."""

from __future__ import annotations

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import LONG_NAME, checked
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME


def test_every_page_holds_up(person: Person, site: Site, complaints: Complaints) -> None:
    question = site.asked("vendor-onboard", {**ACME, "legal_name": LONG_NAME})
    run_id = question["run_id"]
    site.waiting("zz-clerk", {"ending": "unknown", "legal_name": LONG_NAME})
    problems: list[str] = []
    pages = [
        "/",
        "/inbox",
        f"/inbox/{question['id']}",
        "/inbox?show=decided",
        "/runs",
        "/runs/new",
        "/reconcile",
        "/audit",
        "/agents",
        "/fleet",
    ]
    pages += ["/agents/vendor-onboard@1.0.0", f"/runs/{run_id}/verification", "/runs?q=nothing-like-it"]
    pages += [f"/runs/{run_id}?tab={tab}" for tab in ("timeline", "transcript", "checkpoints", "decisions", "journal")]
    of_auditors = ["/audit?action=accounts", f"/runs/{run_id}/verification", "/audit/verification"]
    of_finance = ["/inbox", f"/inbox/{question['id']}"]
    for role, paths in (("operator", pages), ("auditor", of_auditors), ("approver_finance", of_finance)):
        page = person(role)
        for path in paths:
            page.goto(path)
            problems += checked(page)
    assert problems == [] and complaints == []


def test_the_open_case_is_in_view_in_its_list(person: Person, site: Site) -> None:
    runs = [site.start("vendor-onboard", ACME) for _ in range(14)]
    for run_id in runs:
        site.reaches(run_id, "waiting_human")
    page = person("approver_finance", viewport={"width": 1280, "height": 500})
    page.goto(f"{site.url}/inbox/{site.question(runs[-1])['id']}")
    seen = """() => { const l = document.querySelector('.split > .list').getBoundingClientRect(),
      o = document.querySelector('a.item[aria-current]').getBoundingClientRect(); return l.top <= o.top &&
      o.bottom <= l.bottom }"""
    assert page.evaluate(seen) is True and page.evaluate("scrollY") == 0
