"""Above an amount an approval is typed, and its person authenticates again."""

from __future__ import annotations

import time

from playwright.sync_api import Page, expect

from runs.journal.asked.queues import FRESH_SECONDS
from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME, read_all, set_proof


def test_above_an_amount_a_yes_is_typed_and_its_person_shows_who_they_are(
    admin: Page, person: Person, site: Site, complaints: Complaints
) -> None:
    set_proof(admin, minutes="5", above="50000", types_amount=True)
    try:
        order = {"description": "Pallets", "amount_usd": 84_000}
        case = site.asked("vendor-onboard", ACME | {"legal_name": "Dear Pallets Ltd", "first_order": order})
        run_id = case["run_id"]
        # the worker that asked may not have known yet: this is the proof now
        assert case["wanted"] == {"within": 300, "typed": {"amount": "84000.00 USD"}}
        # one click on a demo button authenticates nobody
        page = person("approver_finance", viewport={"width": 390, "height": 844})
        page.goto(f"/inbox/{case['id']}")
        expect(page.locator("#proof-note")).to_contain_text("within the last 5 minutes")
        read_all(page)
        page.fill("#justification", "Matches the quote.")
        page.fill("#typed_amount", "48000.00 USD")
        page.click("[data-verdict=approve]")
        expect(page.locator("#typed_amount_error")).to_contain_text("type: 84000.00 USD")
        expect(page.locator("#justification")).to_have_value("Matches the quote.")
        # whatever is required, the bar leaves the case in view, and what was read stays read
        for width, height in ((390, 844), (1280, 800)):
            page.set_viewport_size({"width": width, "height": height})
            expect(page.locator("#decide-bar")).to_have_css("position", "sticky")
            bar = page.locator("#decide-bar").bounding_box()
            assert bar is not None and bar["height"] <= height / 5
        expect(page.locator("[data-verdict=approve]")).not_to_have_attribute("aria-disabled", "true")
        page.fill("#typed_amount", "84,000.00 usd")
        page.click("[data-verdict=approve]")
        expect(page.locator("h1")).to_have_text("Confirm it's you")
        (finance,) = [user for user in site.demo()["users"] if user["username"] == "finance"]
        page.fill("#proof", "not it")
        page.click("button:has-text('Continue')")
        expect(page.locator("#again-told")).to_contain_text("Wrong password")
        assert site.api(f"/approvals/{case['id']}")["state"] == "open"
        page.fill("#proof", finance["password"])
        page.click("button:has-text('Continue')")
        expect(page.locator(".messages")).to_contain_text("Approved.")
        decision = site.api(f"/approvals/{case['id']}")["decision"]
        assert decision["proof"]["by"] == "password" and decision["proof"]["typed"] == {"amount": "84,000.00 usd"}
        assert finance["password"] not in str(site.run(run_id))
        site.reaches(run_id, "completed")
    finally:
        set_proof(admin, minutes="", above="", types_amount=False)
        time.sleep(FRESH_SECONDS + 1)  # until the workers know it too: their next questions are not tested here
    assert complaints.besides("403", "422") == []
