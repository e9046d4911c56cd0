"""A phone: the page is installed, keeps nothing offline, and a fingerprint signs in and approves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, CDPSession, Page, expect

from tests.contrib.notifications.push_service import Browser as Subscription
from tests.system.browser.conftest import Complaints
from tests.system.browser.looks import PHONE, holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME, read_all, set_proof, sign_in_as_finance
from tests.waiting import eventually

# The browser's console messages for a request without a network.
WITHOUT_NETWORK = ("ERR_INTERNET_DISCONNECTED", "htmx:sendError", "htmx:afterRequest")


def home(site: Site) -> str:
    """Return an address by name: passkeys need one."""
    return f"http://localhost:{site.port}"


@pytest.fixture
def phone(browser: Browser, site: Site, complaints: Complaints) -> Iterator[BrowserContext]:
    context = browser.new_context(base_url=home(site), viewport=PHONE)
    context.on("weberror", lambda error: complaints.append(str(error.error)))
    context.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    yield context
    context.close()


def with_finger(page: Page) -> tuple[CDPSession, str]:
    session = page.context.new_cdp_session(page)
    session.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2",
        "transport": "internal",
        "hasResidentKey": True,
        "hasUserVerification": True,
        "isUserVerified": True,
        "automaticPresenceSimulation": True,
    }
    made = session.send("WebAuthn.addVirtualAuthenticator", {"options": options})
    return session, made["authenticatorId"]


def out_and_in(page: Page, site: Site) -> None:
    page.locator("details.who summary").click()
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login**")
    page.goto("/login")  # a live page would return to where it was
    page.get_by_role("button", name="Sign in with a passkey").click()
    page.wait_for_url(f"{home(site)}/")


def test_a_passkey_is_made_signs_in_and_says_yes(
    phone: BrowserContext, admin: Page, site: Site, complaints: Complaints
) -> None:
    page = phone.new_page()
    session, authenticator = with_finger(page)
    sign_in_as_finance(page, site)
    set_proof(admin, minutes="5", above="50000", types_amount=False)
    try:
        page.goto("/account/second-factor")
        holds_up(page)
        page.fill("#passkey-name", "my phone")
        page.get_by_role("button", name="Add a passkey").click()
        expect(page.locator("h1")).to_have_text("Add a passkey")
        holds_up(page)
        page.get_by_role("button", name="Create passkey").click()
        expect(page.locator("ul.codes li")).to_have_count(10)
        expect(page.locator("#passkeys-title")).to_be_visible()
        holds_up(page)
        assert len(session.send("WebAuthn.getCredentials", {"authenticatorId": authenticator})["credentials"]) == 1
        out_and_in(page, site)
        order = {"description": "Cranes", "amount_usd": 94_000}
        case = site.asked("vendor-onboard", ACME | {"legal_name": "Signed Cranes Ltd", "first_order": order})
        run_id = case["run_id"]
        page.goto(f"/inbox/{case['id']}")
        read_all(page)
        page.fill("#justification", "Matches the quote.")
        page.click("[data-verdict=approve]")
        expect(page.locator("h1")).to_have_text("Confirm it's you")
        holds_up(page)
        # an unknown finger signs nothing
        session.send("WebAuthn.setUserVerified", {"authenticatorId": authenticator, "isUserVerified": False})
        page.get_by_role("button", name="Use your passkey").click()
        expect(page.locator("[data-passkey-told]")).to_contain_text("No passkey was used")
        assert site.api(f"/approvals/{case['id']}")["state"] == "open"
        session.send("WebAuthn.setUserVerified", {"authenticatorId": authenticator, "isUserVerified": True})
        page.get_by_role("button", name="Use your passkey").click()
        expect(page.locator(".messages")).to_contain_text("Approved.")
        decision = site.api(f"/approvals/{case['id']}")["decision"]
        assert decision["proof"]["by"] == "passkey" and len(decision["proof"]["assertion"]) == 64
        site.reaches(run_id, "completed")
        # renamed and removed
        page.goto("/account/second-factor")
        page.get_by_label("Name of my phone").fill("old phone")
        page.get_by_role("button", name="Rename").click()
        page.locator("[data-item] button", has_text="Remove").click()
        expect(page.locator(".messages")).to_contain_text("Passkey removed")
    finally:
        set_proof(admin, minutes="", above="", types_amount=False)
    assert complaints.besides("403") == []


def test_the_page_can_be_installed_and_keeps_nothing_but_that_there_is_no_connection(
    phone: BrowserContext, site: Site, complaints: Complaints
) -> None:
    page = phone.new_page()
    page.goto("/login")
    session = phone.new_cdp_session(page)
    manifest = session.send("Page.getAppManifest")
    assert manifest["errors"] == [] and manifest["url"].endswith("manifest.webmanifest")
    data = json.loads(manifest["data"])
    assert data["start_url"] == "/inbox" and {icon["purpose"] for icon in data["icons"]} == {"any", "maskable"}
    for icon in data["icons"]:
        size = page.evaluate(
            "async (src) => { const i = new Image(); i.src = src; await i.decode(); return [i.width, i.height]; }",
            icon["src"],
        )
        assert f"{size[0]}x{size[1]}" == icon["sizes"], icon
    assert [each["errorId"] for each in session.send("Page.getInstallabilityErrors")["installabilityErrors"]] in (
        [],
        ["in-incognito"],
    )
    assert page.evaluate("navigator.serviceWorker.ready.then((r) => r.scope)") == f"{home(site)}/"
    sign_in_as_finance(page, site)
    page.wait_for_function("navigator.serviceWorker.controller !== null")
    for path in ("/inbox", "/runs", "/account", "/notifications"):
        page.goto(path)
    run_id = site.waiting("vendor-onboard", ACME | {"legal_name": "Kept Nowhere Ltd"})
    page.goto(f"/inbox/{site.question(run_id)['id']}")
    kept = page.evaluate(
        """async () => { const all = []; for (const name of await caches.keys())
           for (const one of await (await caches.open(name)).keys()) all.push(new URL(one.url).pathname);
           return all.sort(); }"""
    )
    shell = ["css/base.css", "css/forms.css", "css/tokens.css", "img/mark.svg", "offline.html"]
    assert kept == [f"/static/{name}" for name in shell]
    phone.set_offline(True)
    page.goto(f"/inbox/{site.question(run_id)['id']}")
    expect(page.locator("h1")).to_have_text("No connection")
    assert "Kept Nowhere" not in page.content()
    holds_up(page)
    phone.set_offline(False)
    page.get_by_role("link", name="Try again").click()
    expect(page.locator("body")).to_contain_text("Kept Nowhere Ltd")
    site.approve(run_id)
    assert [each for each in complaints if not any(words in each for words in WITHOUT_NETWORK)] == []


def test_a_page_that_loses_its_network_says_so_and_goes_on_when_it_is_back(
    phone: BrowserContext, site: Site, complaints: Complaints
) -> None:
    page = phone.new_page()
    sign_in_as_finance(page, site)
    page.goto("/inbox")
    panel = page.locator("#live-state")
    expect(panel).to_have_attribute("data-state", "live")
    page.click("#live-pause")
    run_id = site.start("vendor-onboard", ACME | {"legal_name": "Out Of Reach Ltd"})
    expect(panel).to_have_attribute("title", "paused · updates available", timeout=60_000)
    phone.set_offline(True)
    page.click("#live-pause")
    expect(panel).to_have_attribute("title", "no connection · retrying")
    holds_up(page)
    phone.set_offline(False)
    expect(panel).to_have_attribute("data-state", "live", timeout=60_000)
    site.reaches(run_id, "waiting_human")
    expect(page.locator("#live")).to_contain_text("Out Of Reach Ltd", timeout=60_000)
    site.approve(run_id)
    assert [each for each in complaints if not any(words in each for words in WITHOUT_NETWORK)] == []


def test_a_push_is_shown_as_it_is_told_and_as_something_where_it_can_t_be_read(
    phone: BrowserContext, site: Site
) -> None:
    phone.grant_permissions(["notifications"], origin=home(site))
    page = phone.new_page()
    sign_in_as_finance(page, site)
    page.goto("/account")
    holds_up(page)
    expect(page.locator("#device-state")).to_contain_text("doesn’t receive")
    expect(page.get_by_role("button", name="Notify this device")).to_be_visible()
    session = phone.new_cdp_session(page)
    versions: list[Any] = []
    session.on("ServiceWorker.workerRegistrationUpdated", lambda said: versions.extend(said["registrations"]))
    session.send("ServiceWorker.enable")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    eventually(lambda: page.evaluate("true") and versions, "a service worker")
    registration = versions[-1]["registrationId"]
    text = (
        "navigator.serviceWorker.ready.then((r) => r.getNotifications())"
        ".then((all) => all.map((n) => [n.title, n.body, n.data.path]))"
    )
    fields = {"title": "To decide: Pay <b>x</b>", "body": "Queue: finance_po", "url": "/inbox/1", "tag": "a"}
    wanted = {
        json.dumps(fields): ["To decide: Pay <b>x</b>", "Queue: finance_po", "/inbox/1"],
        "rubbish": ["A case is waiting for you", "", "/inbox"],
        json.dumps({"url": "//evil.example", "title": "x", "tag": "b"}): ["x", "", "/inbox"],
    }

    def is_shown(data: str) -> bool:
        """Deliver again each time: the browser drops a push while its service worker is starting."""
        session.send(
            "ServiceWorker.deliverPushMessage", {"origin": home(site), "registrationId": registration, "data": data}
        )
        return wanted[data] in page.evaluate(text)

    for data in wanted:
        eventually(lambda data=data: is_shown(data), f"shown: {wanted[data]}")
    assert all(each in wanted.values() for each in page.evaluate(text))


def test_a_device_is_put_on_record_tried_and_taken_away(phone: BrowserContext, site: Site) -> None:
    """By a whole installation, whose application has only its own database rights."""
    page = phone.new_page()
    sign_in_as_finance(page, site)
    page.goto("/account")
    made = Subscription("https://127.0.0.1/push/of-nobody").body
    page.evaluate(
        "(made) => { const form = document.getElementById('device-form');"
        " for (const name in made) form.elements[name].value = made[name]; form.requestSubmit(); }",
        made,
    )
    expect(page.locator(".messages")).to_contain_text("This device now receives notifications")
    expect(page.locator("#devices .chip")).to_have_text("this device")
    holds_up(page)
    page.goto("/notifications")
    page.get_by_role("button", name="Send test").click()
    for _ in range(40):
        if page.locator("td", has_text="not on the public internet").count():
            break
        page.wait_for_timeout(500)
        page.reload()
    expect(page.locator("td", has_text="not on the public internet").first).to_be_visible()
    page.goto("/account")
    page.locator("#devices button", has_text="Remove").click()
    expect(page.locator(".messages")).to_contain_text("Device removed")
