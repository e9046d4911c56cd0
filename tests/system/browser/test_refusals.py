"""What was refused stays: its reason, every typed word, and the reader's place, whatever the live page does
meanwhile."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.system.browser.conftest import Person, Site
from tests.system.browser.test_story import ACME

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(480)]
DELIVERY = {"order_number": "PO-000052", "supplier": "Tamsalu Metall", "pallets": 4}
TOO_LONG = "Because. " * 500


def stays(page: Page, alert: str, fields: dict[str, str]) -> None:
    """With the socket open, after three seconds and two more reads of the page: alert, title, place and every value."""
    note = page.locator(alert)
    expect(note).to_be_visible()
    expect(note).to_be_focused()
    expect(page).to_have_title(re.compile(r"^Not (done|taken|started): "))
    is_live = page.locator("#live[data-socket]").count() > 0
    if is_live:
        expect(page.locator("#live-state")).to_contain_text("live")
    page.wait_for_timeout(3000)
    for _ in range(2 if is_live else 0):
        page.evaluate(
            "htmx.ajax('GET', (document.getElementById('live').dataset.here || location.pathname) + "
            "'?fragment=live', {target: '#live', swap: 'live', source: '#live'})"
        )
    words = note.inner_text()
    assert words and note.is_visible()
    for name, value in fields.items():
        expect(page.locator(name)).to_have_value(value)
    expect(note).to_be_focused()


def refuse(page: Page, form: str, button: str) -> None:
    with page.expect_navigation():
        page.locator(form).locator(button).click()


@pytest.fixture
def gate(site: Site) -> tuple[str, Any]:
    run_id = site.start("vendor-onboard", ACME)
    site.reaches(run_id, "waiting_human")
    return run_id, site.question(run_id)


@pytest.mark.parametrize("verdict", ["approve", "reject"])
def test_a_refused_decision_keeps_its_words(person: Person, gate: tuple[str, Any], verdict: str) -> None:
    page = person("approver_finance")
    page.goto(f"/inbox/{gate[1]['id']}")
    page.fill("#justification", "My careful reasons.")
    page.evaluate("document.querySelector('[name=plan_hash]').value = 'sha256:0'")
    refuse(page, "#decide", f"[data-verdict={verdict}]")
    expect(page.locator("#decide-error")).to_contain_text("another plan")
    stays(page, "#decide-error", {"#justification": "My careful reasons."})


def test_a_refused_answer_keeps_its_words(person: Person, site: Site) -> None:
    run_id = site.start("warehouse-delivery", DELIVERY)
    site.reaches(run_id, "waiting_human")
    page = person("operator")
    page.goto(f"/runs/{run_id}")
    labels = page.locator("form[data-case] .grid-2 label").all_inner_texts()
    assert [label.split(" optional")[0] for label in labels[:3]] == ["Pallets counted", "Damaged among them", "Note"]
    pallets, damaged, note = (f"form[data-case] [name$='.{name}']" for name in ("pallets", "damaged", "note"))
    page.fill(pallets, "900")
    page.fill(damaged, "2")
    page.fill(note, "One is wet.")
    refuse(page, "form[data-case]", "button")
    expect(page.locator("[data-alert]")).to_contain_text("Not taken.")
    expect(page.locator("[data-alert] a")).to_have_text("Pallets counted")
    stays(page, "[data-alert]", {pallets: "900", damaged: "2", note: "One is wet."})


def test_a_refused_verdict_keeps_its_words(person: Person, site: Site) -> None:
    run_id = site.start("zz-clerk", {"ending": "unknown"})
    site.reaches(run_id, "waiting_human")
    page = person("operator")
    page.goto(f"/runs/{run_id}")
    page.check("[value=happened]")
    page.fill("#receipt", '{"ref": ')
    page.fill("#why-reconcile", "Looked it up.")
    refuse(page, "#reconcile-form", "text=Settle it")
    expect(page.locator("#refused")).to_contain_text("not valid JSON")
    stays(page, "#refused", {"#receipt": '{"ref": ', "#why-reconcile": "Looked it up."})
    expect(page.locator("[value=happened]")).to_be_checked()
    # and leaving the page is the end of it
    page.click("nav.tabs >> text=Journal")
    page.wait_for_url(f"**/runs/{run_id}?tab=journal")
    page.reload()
    expect(page.locator("#refused")).to_have_count(0)


@pytest.mark.parametrize("act", ["pause", "cancel", "resume", "retry"])
def test_a_refused_act_keeps_its_words(person: Person, site: Site, act: str) -> None:
    run_id = site.start("zz-hostile", {"fails": True}) if act == "retry" else site.start("vendor-onboard", ACME)
    site.reaches(run_id, "failed" if act == "retry" else "waiting_human")
    if act == "resume":
        site.api(f"/runs/{run_id}/pause", body={"justification": "for now"})
    page = person("operator")
    page.goto(f"/runs/{run_id}")
    page.click(f"#act-{act} summary")
    page.locator(f"#why-{act}").evaluate("e => e.removeAttribute('maxlength')")
    page.fill(f"#why-{act}", TOO_LONG)
    refuse(page, f"#act-{act}", "button")
    expect(page.locator("#refused")).to_contain_text("too long")
    stays(page, "#refused", {f"#why-{act}": TOO_LONG.strip()})


def test_a_refused_start_keeps_its_words(person: Person) -> None:
    page = person("integrator")
    page.goto("/runs/new?agent=warehouse-delivery@1.0.0&sample=none")
    page.fill("#f-supplier", "Tamsalu Metall")
    page.fill("#f-pallets", "9000")
    page.fill("#tags", "spring")
    refuse(page, "#start-form", "text=Start the run")
    expect(page.locator("[data-alert]")).to_contain_text("Not started.")
    stays(page, "[data-alert]", {"#f-supplier": "Tamsalu Metall", "#f-pallets": "9000", "#tags": "spring"})


# --- closed by somebody else ----------------------------------------------------------------------


@pytest.mark.parametrize("where", ["its own page", "the inbox"])
def test_a_case_decided_elsewhere_disarms_at_once(
    person: Person, site: Site, gate: tuple[str, Any], where: str
) -> None:
    asked = gate[1]
    page = person("approver_finance")
    page.goto("/inbox" if where == "the inbox" else f"/inbox/{asked['id']}")
    if where == "the inbox":
        chosen = page.locator("#decide").get_attribute("data-here")
        assert chosen is not None
        asked = site.api(f"/approvals/{chosen.rsplit('/', 1)[1]}")
    expect(page.locator("#live-state")).to_contain_text("live")
    page.fill("#justification", "My careful reasons.")
    site.api(
        f"/approvals/{asked['id']}/decision",
        "approver_finance",
        {"verdict": "reject", "plan_hash": asked["plan_hash"], "justification": "Too dear."},
    )
    expect(page.locator("#decide [role=alert]")).to_contain_text(re.compile(r"Rejected by key:.*Your text is kept\."))
    for verdict in ("approve", "reject"):
        expect(page.locator(f"[data-verdict={verdict}]")).to_be_disabled()
    expect(page.locator("#justification")).to_have_value("My careful reasons.")
    expect(page.locator("#verb")).to_be_visible()
    assert page.locator("#case").inner_text().count(asked["arguments"].get("vendor_id", "")) >= 1


def test_a_question_answered_elsewhere_disarms_at_once(person: Person, site: Site) -> None:
    run_id = site.start("warehouse-delivery", DELIVERY)
    site.reaches(run_id, "waiting_human")
    page = person("operator")
    page.goto(f"/runs/{run_id}")
    expect(page.locator("#live-state")).to_contain_text("live")
    page.fill("form[data-case] [name$='.note']", "One is wet.")
    wait = next(wait for wait in site.run(run_id)["waiting_for"] if wait["kind"] == "input")
    site.api(
        f"/runs/{run_id}/answers/{wait['id']}",
        body={"answer": {"pallets": 4, "damaged": 0}, "justification": "Counted."},
    )
    expect(page.locator("form[data-case] [role=alert]")).to_contain_text(
        re.compile(r"Answered by key:.*Your text is kept\.")
    )
    expect(page.locator("form[data-case] button")).to_be_disabled()
    expect(page.locator("form[data-case] [name$='.note']")).to_have_value("One is wet.")


def test_an_outcome_settled_elsewhere_disarms_at_once(person: Person, site: Site) -> None:
    run_id = site.start("zz-clerk", {"ending": "unknown"})
    site.reaches(run_id, "waiting_human")
    page = person("operator")
    page.goto(f"/runs/{run_id}")
    expect(page.locator("#live-state")).to_contain_text("live")
    page.fill("#why-reconcile", "Looked it up.")
    site.api(f"/runs/{run_id}/reconcile", body={"verdict": "fail", "justification": "It is lost."})
    expect(page.locator("#reconcile-form [role=alert]")).to_contain_text(
        re.compile(r"Settled by key:.*Your text is kept\.")
    )
    expect(page.locator("#reconcile-form button")).to_be_disabled()
    expect(page.locator("#why-reconcile")).to_have_value("Looked it up.")
