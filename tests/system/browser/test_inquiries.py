"""Asking someone about a case and delegating it: finance asks legal, then delegates to them."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import approve, read_all


@pytest.fixture
def site(quiet: Site) -> Site:
    return quiet


def test_somebody_is_asked_and_answers_and_somebody_else_decides(
    person: Person, site: Site, complaints: Complaints
) -> None:
    case = site.asked("zz-buyer", {"item": "chairs for the new floor", "amount_usd": 84_000})
    run_id = case["run_id"]
    finance = person("approver_finance")
    finance.goto(f"/inbox/{case['id']}")
    finance.click("#ask-somebody summary")
    finance.fill("#ask-to", "nobody at all")
    finance.fill("#ask-what", "Is it the price that you agreed?")
    finance.click("#ask-form button")
    expect(finance.locator("#ask-form [data-alert]")).to_be_visible()
    expect(finance.locator("#ask-what")).to_have_value("Is it the price that you agreed?")
    expect(finance.locator("#live-state")).to_contain_text("live")
    site.start("zz-buyer", {"item": "news, by which the page is drawn again", "amount_usd": 1})
    expect(finance.locator(".split > .list")).to_contain_text("$1.00")
    note, field = finance.locator("#ask-form .note.bad").bounding_box(), finance.locator("#ask-to").bounding_box()
    assert note is not None and field is not None and note["y"] < field["y"], "what is wrong stands above its field"
    finance.fill("#ask-to", "legal")
    finance.click("#ask-form button")
    expect(finance.locator(".messages")).to_contain_text("Question sent")
    holds_up(finance)
    legal = person("approver_legal")
    legal.goto("/inbox")
    legal.click(f"#item-{case['id']}")
    expect(legal.locator("#talk")).to_contain_text("Is it the price that you agreed?")
    expect(legal.locator("#payloads-hidden")).to_be_visible()
    inner_text = legal.locator("#case").inner_text()
    assert "84,000" not in inner_text and "84000" not in inner_text, "who is asked reads no arguments by that"
    holds_up(legal)
    legal.locator("#talk textarea").fill("It is, until June.")
    legal.click("button:has-text('Answer')")
    expect(legal.locator("#talk")).to_contain_text("It is, until June.")
    finance.goto(f"/inbox/{case['id']}")
    expect(finance.locator("#talk")).to_contain_text("It is, until June.")
    finance.click("#hand-over summary")
    finance.fill("#hand-to", "legal")
    finance.fill("#hand-why", "They made the contract.")
    finance.click("#hand-form button")
    expect(finance.locator("#talk")).to_contain_text("delegated it to")
    holds_up(finance)
    legal.goto(f"/inbox/{case['id']}")
    expect(legal.locator("#in-place-of")).to_contain_text("finance")
    read_all(legal)
    holds_up(legal)
    approve(legal, "As we agreed with them.")
    site.reaches(run_id, "completed")


def test_someone_who_is_asked_hears_of_it_on_the_page_that_is_open_and_of_its_end(
    person: Person, site: Site, complaints: Complaints
) -> None:
    """An integrator who may not see the run is told nothing else of it."""
    run_id = str(
        site.api("/runs", "operator", {"agent": "zz-buyer", "input": {"item": "lamps", "amount_usd": 84_000}})["id"]
    )
    site.reaches(run_id, "waiting_human")
    case = site.question(run_id)
    question = person("integrator")
    assert question.goto(f"/runs/{run_id}").status == 404
    complaints.clear()  # the browser's own message about that answer
    question.goto("/inbox")
    expect(question.locator(f"#item-{case['id']}")).to_have_count(0)
    assert not question.title().startswith("(")
    body = {"to": "integrator", "question": "Do you know them?"}
    site.api(f"/approvals/{case['id']}/inquiries", "approver_finance", body)
    expect(question.locator(f"#item-{case['id']}")).to_contain_text("asked you")
    expect(question).to_have_title("(1) Inbox · Durable Agents")
    expect(question.locator("#count-inbox-wide .count")).to_contain_text("1")
    holds_up(question)
    why = {"justification": "We know by now."}
    site.api(f"/approvals/{case['id']}/inquiries/0/withdraw", "approver_finance", why)
    expect(question.locator(f"#item-{case['id']}")).to_have_count(0)
    expect(question.locator("#count-inbox-wide .count")).to_have_count(0)
    handed = {"to": "integrator", **why}
    site.api(f"/approvals/{case['id']}/delegations", "approver_finance", handed)
    expect(question.locator(f"#item-{case['id']}")).to_contain_text("delegated to you")
    question.click(f"#item-{case['id']}")
    expect(question.locator("#in-place-of")).to_contain_text("finance")
    question.goto("/inbox")
    site.approve(run_id)
    expect(question.locator(f"#item-{case['id']}")).to_have_count(0)
    assert complaints == []
