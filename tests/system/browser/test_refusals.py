"""A refused form in a browser keeps its reason, all input and the reader's place on a live page."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Person
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME

DELIVERY = {"order_number": "PO-000052", "supplier": "Tamsalu Metall", "pallets": 4}
TOO_LONG = "Because. " * 500 + "So."
# Reload the page's content, as after an event on its socket.
READ_AGAIN = (
    "htmx.ajax('GET', (document.getElementById('live').dataset.here || location.pathname) + "
    "'?fragment=live', {target: '#live', swap: 'live', source: '#live'})"
)


def refuse(page: Page, button: str, alert: str, words: str, just_before: str = "", **fields: str) -> None:
    """Send the form; check that the refusal and all input stay through two reloads of the page."""
    for name, value in fields.items():
        page.fill(f'[id="{name}"]', value)
    page.evaluate(just_before)
    with page.expect_navigation():
        page.click(button)
    note = page.locator(alert)
    expect(note).to_contain_text(words)
    expect(note).to_be_focused()
    expect(page).to_have_title(re.compile("^Error: "))
    if page.locator("#live[data-socket]").count():
        expect(page.locator("#live-state")).to_contain_text("live")
        for _ in range(2):
            page.evaluate(READ_AGAIN)
    expect(note).to_contain_text(words)
    for name, value in fields.items():
        expect(page.locator(f'[id="{name}"]')).to_have_value(value)
    expect(note).to_be_focused()


def test_a_refused_decision_keeps_its_words(person: Person, site: Site) -> None:
    page = person("approver_finance")
    page.goto(f"/inbox/{site.asked('vendor-onboard', ACME)['id']}")
    another_plan = "document.querySelector('[name=plan_hash]').value = 'sha256:0'"
    button, reasons = "#decide [data-verdict=approve]", "My careful reasons."
    refuse(page, button, "#decide-error", "a plan that isn't the current one", another_plan, justification=reasons)


def test_a_refused_answer_keeps_its_words(person: Person, site: Site) -> None:
    page = person("operator")
    page.goto(f"/runs/{site.waiting('warehouse-delivery', DELIVERY)}")
    labels = page.locator("form[data-case] .grid-2 label").all_inner_texts()
    assert [label.split(" optional")[0] for label in labels[:3]] == ["Pallets counted", "Damaged among them", "Note"]
    ids = [page.locator(f"form[data-case] [name$='.{name}']").get_attribute("id") for name in ("pallets", "note")]
    typed = dict(zip(map(str, ids), ("900", "One is wet."), strict=True))
    refuse(page, "form[data-case] button", "[data-alert]", "Not saved.", **typed)
    expect(page.locator("[data-alert] a")).to_have_text("Pallets counted")


def test_a_refused_verdict_keeps_its_words(person: Person, site: Site) -> None:
    run_id = site.waiting("zz-clerk", {"ending": "unknown"})
    page = person("operator")
    page.goto(f"/runs/{run_id}")
    page.check("[value=happened]")
    typed = {"receipt": '{"ref": ', "why-reconcile": "Looked it up."}
    refuse(page, "#reconcile-form button", "#refused", "not valid JSON", **typed)
    expect(page.locator("[value=happened]")).to_be_checked()
    # and leaving the page is the end of it
    page.click("nav.tabs >> text=Journal")
    page.wait_for_url(f"**/runs/{run_id}?tab=journal")
    page.reload()
    expect(page.locator("#refused")).to_have_count(0)


def test_a_refused_act_keeps_its_words(person: Person, site: Site) -> None:
    page = person("operator")
    page.goto(f"/runs/{site.waiting('vendor-onboard', ACME)}")
    page.click("#act-pause summary")
    page.locator("#why-pause").evaluate("e => e.removeAttribute('maxlength')")
    refuse(page, "#act-pause button", "#refused", "has 4503 characters", **{"why-pause": TOO_LONG})


def test_a_refused_start_keeps_its_words(person: Person) -> None:
    page = person("integrator")
    page.goto("/runs/new?agent=warehouse-delivery@1.0.0&sample=none")
    typed = {"f-supplier": "Tamsalu Metall", "f-pallets": "9000", "tags": "spring"}
    refuse(page, "#start-form >> text=Start the run", "[data-alert]", "Not started.", **typed)


# --- closed by somebody else ----------------------------------------------------------------------


def expect_disarmed(page: Page, form: str, words: str, field: str, buttons: str = "button") -> None:
    """Check that the form names who closed it, can't be sent, and keeps the input."""
    expect(page.locator(f"{form} [role=alert]")).to_contain_text(re.compile(rf"{words} by key:.*Your text is kept\."))
    for button in page.locator(f"{form} {buttons}").all():
        expect(button).to_be_disabled()
    expect(page.locator(field)).to_have_value("Looked it up.")


@pytest.mark.parametrize("where", ["its own page", "the inbox"])
def test_a_case_decided_elsewhere_disarms_at_once(person: Person, site: Site, where: str) -> None:
    case: Any = site.asked("vendor-onboard", ACME)
    page = person("approver_finance")
    page.goto("/inbox" if where == "the inbox" else f"/inbox/{case['id']}")
    if where == "the inbox":
        case = site.api(f"/approvals/{str(page.locator('#decide').get_attribute('data-here')).rsplit('/', 1)[1]}")
    expect(page.locator("#live-state")).to_contain_text("live")
    page.fill("#justification", "Looked it up.")
    site.decide(case, "reject")
    expect_disarmed(page, "#decide", "Rejected", "#justification", "[data-verdict]")
    expect(page.locator("#verb")).to_be_visible()
    assert page.locator("#case").inner_text().count(case["arguments"].get("vendor_id", "")) >= 1


def test_a_question_answered_elsewhere_disarms_at_once(person: Person, site: Site) -> None:
    run_id = site.waiting("warehouse-delivery", DELIVERY)
    page = person("operator")
    page.goto(f"/runs/{run_id}")
    expect(page.locator("#live-state")).to_contain_text("live")
    page.fill("form[data-case] [name$='.note']", "Looked it up.")
    wait = next(wait for wait in site.run(run_id)["waiting_for"] if wait["kind"] == "input")
    body = {"answer": {"pallets": 4, "damaged": 0}, "justification": "Counted."}
    site.api(f"/runs/{run_id}/answers/{wait['id']}", body=body)
    expect_disarmed(page, "form[data-case]", "Answered", "form[data-case] [name$='.note']")


def test_an_outcome_settled_elsewhere_disarms_at_once(person: Person, site: Site) -> None:
    run_id = site.waiting("zz-clerk", {"ending": "unknown"})
    page = person("operator")
    page.goto(f"/runs/{run_id}")
    expect(page.locator("#live-state")).to_contain_text("live")
    page.fill("#why-reconcile", "Looked it up.")
    site.api(f"/runs/{run_id}/reconcile", body={"verdict": "fail", "justification": "It is lost."})
    expect_disarmed(page, "#reconcile-form", "Settled", "#why-reconcile")
