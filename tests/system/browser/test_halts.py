"""A halt of the whole installation, lifted in stages: nothing begins early, is lost, or happens twice."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.looks import holds_up
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME, EFFECTS, approve, read_all
from tests.waiting import eventually

WHY = "Wrong prices went out."


class Yard:
    """Receives `zz-carrier`'s parcels; holds some back until the test releases them."""

    def __init__(self) -> None:
        self.url = ""
        self.came: list[tuple[str, str]] = []
        self.lets = {"first": threading.Event(), "second, packed": threading.Event()}

    def take(self, name: str, key: str) -> None:
        self.came.append((name, key))
        if name in self.lets:
            self.lets[name].wait(270)

    @property
    def parcels(self) -> list[str]:
        return sorted(name for name, key in self.came if key)


@contextmanager
def open_yard() -> Iterator[Yard]:
    yard = Yard()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            data = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            yard.take(data["name"], data.get("key", ""))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    yard.url = f"http://127.0.0.1:{server.server_port}/"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield yard
    finally:
        for each in yard.lets.values():
            each.set()
        server.shutdown()
        server.server_close()
        thread.join()


def carries(site: Site, yard: Yard, name: str, *tags: str, is_packed: bool = True) -> str:
    given = {"yard": yard.url, "name": name, "is_packed": is_packed}
    return str(site.api("/runs", "integrator", {"agent": "zz-carrier", "input": given, "tags": [*tags]})["id"])


def halts_all(page: Page) -> Locator:
    """Halt everything, after a first try without the confirmation; return the page's section about it."""
    page.goto("/halts")
    page.select_option("#n-scope", "all")
    page.fill("#n-why", WHY)
    page.click("#halt-form button")
    expect(page.locator("#n-confirm_error")).to_be_visible()
    # the page keeps updating, and no input is lost
    expect(page.locator("#live-state")).to_contain_text("live")
    expect(page.locator("#n-why")).to_have_value(WHY)
    is_above = "document.querySelector('#refused').offsetTop < document.querySelector('#halt-form').offsetTop"
    assert page.evaluate(is_above)
    holds_up(page)
    page.fill("#n-confirm", "halt everything")
    page.click("#halt-form button")
    expect(page.locator(".messages")).to_contain_text("Halted.")
    return page.locator("section[id^=halt-]", has_text="the whole installation")


def goes_on(page: Page, *, agents: str = "", tags: str = "", why: str) -> None:
    page.goto("/halts")
    page.click("summary:has-text('Resume')")
    stage = page.locator("form[id^=stage-]")
    if agents:
        stage.locator("[name=agents]").fill(agents)
    if tags:
        stage.locator("[name=tags]").fill(tags)
    stage.locator("[name=justification]").fill(why)
    stage.locator("button").click()
    expect(page.locator(".messages")).to_contain_text("Halt changed.")


def test_everything_is_halted_and_goes_on_in_stages(person: Person, site: Site, complaints: Complaints) -> None:
    with open_yard() as yard:
        first = carries(site, yard, "first")
        second = carries(site, yard, "second", is_packed=False)
        case = site.waiting("vendor-onboard", ACME | {"legal_name": "Halted Pallets Ltd"})
        eventually(lambda: {name for name, _ in yard.came} >= {"first", "second, packed"}, "a call is in flight")
        operator, finance = person("operator"), person("approver_finance")
        try:
            comes_to_a_stand(operator, halts_all(operator), site, yard, first)
            third, fourth = carries(site, yard, "third", "beta"), carries(site, yard, "fourth")
            decided_meanwhile(finance, operator, site, case, third)
            assert yard.parcels == ["first"], "nothing left while all was halted"
            in_stages(operator, site, yard, case, {"first": first, "second": second, "third": third, "fourth": fourth})
        finally:
            site.lift_halts()
    assert complaints.besides("422", "409") == []


def test_a_slip_of_the_pen_halts_nothing_and_says_so(person: Person, site: Site, complaints: Complaints) -> None:
    page = person("operator")
    page.goto("/halts")
    expect(page.locator("#halt-names option[value=hand_over]")).to_have_count(1)
    page.fill("#n-key", "hand_ovr")
    page.fill("#n-why", WHY)
    try:
        page.click("#halt-form button")
        note = page.locator("section[id^=halt-] .note.wait", has_text="There is no tool hand_ovr.")
        expect(note).to_contain_text("Did you mean hand_over?")
        holds_up(page)
        page.fill("#n-key", "hand_over")
        page.fill("#n-why", WHY)
        page.click("#halt-form button")
        expect(page.locator("section[id^=halt-]")).to_have_count(2)
        expect(page.locator("section[id^=halt-] .note.wait", has_text="There is no")).to_have_count(1)
    finally:
        site.lift_halts()
    assert complaints == []


def comes_to_a_stand(page: Page, told: Locator, site: Site, yard: Yard, first: str) -> None:
    """Check that the halt is requested until a run reaches its next step, then confirmed."""
    expect(told.locator("header .chip")).to_have_text("requested")
    expect(told).to_contain_text("is stopping; 1 run still in a step.")
    holds_up(page)
    yard.lets["second, packed"].set()
    expect(told.locator("header .chip")).to_have_text("confirmed")
    expect(told).to_contain_text("The worker has confirmed. Nothing that it covers starts.")
    call = told.locator("tr", has_text="tool:hand_over")
    expect(call).to_contain_text(first[:8])
    expect(call).to_contain_text("300 s")
    holds_up(page)
    # a call in flight returns and is kept, and the run goes no further
    yard.lets["first"].set()
    expect(told).to_contain_text("No calls in progress.")
    holds_up(page)
    page.goto(f"/runs/{first}")
    expect(page.locator("#why")).to_contain_text("Halted")
    expect(page.locator(".tl")).to_contain_text("halted")
    expect(page.locator(".tl")).not_to_contain_text("drained")
    holds_up(page)
    page.goto(f"/runs/{first}?tab=journal")
    expect(page.locator(".event").first).to_contain_text("RunReleased")
    expect(page.locator(".event", has_text="ToolReturned")).to_contain_text("hand_over")
    assert site.run(first)["halted"]["scope"] == "all"


def decided_meanwhile(finance: Page, operator: Page, site: Site, case: str, third: str) -> None:
    """Check that a decision and a start are accepted under the halt, wait, and say why."""
    effects = site.effects(case)
    finance.goto("/inbox")
    expect(finance.locator(".item", has_text="Halted Pallets")).to_contain_text("deadline paused")
    holds_up(finance)
    finance.goto(f"/inbox/{site.question(case)['id']}")
    expect(finance.locator(".note.halted")).to_contain_text("Halted: the whole installation. By user:operator, since")
    expect(finance.locator(".note.halted")).to_contain_text(WHY)
    holds_up(finance)
    read_all(finance)
    approve(finance)
    for run_id in (case, third):
        operator.goto(f"/runs/{run_id}")
        expect(operator.locator("#why")).to_contain_text("Halted: the whole installation, by user:operator")
        expect(operator.locator("h1 ~ .chip")).to_have_text("halted")
        assert site.api(f"/runs/{run_id}/why")["status"]["reason"] == "halted"
        holds_up(operator)
    assert site.effects(case) == effects


def in_stages(page: Page, site: Site, yard: Yard, case: str, runs: dict[str, str]) -> None:
    goes_on(page, agents="vendor-onboard", why="Its prices are mended.")
    panel = page.locator("section[id^=halt-]", has_text="the whole installation")
    expect(panel.locator("header")).to_contain_text("partly lifted")
    expect(panel).to_contain_text("agent vendor-onboard")
    holds_up(page)
    site.reaches(case, "completed")
    assert yard.parcels == ["first"] and {site.run(each)["halted"]["scope"] for each in runs.values()} == {"all"}
    # input survives a colleague's change, and does not overwrite it
    page.goto("/halts")
    page.click("summary:has-text('Resume')")
    lift = page.locator("form[id^=lift-]")
    lift.locator("[name=justification]").fill("All of it is mended.")
    halt = next(each for each in site.api("/halts")["results"] if each["state"] != "lifted")
    body = {"agents": ["vendor-onboard", "zz-buyer"], "justification": "These too."}
    site.api(f"/halts/{halt['id']}/stage", body=body)
    expect(panel).to_contain_text("zz-buyer")
    lift.locator("button").click()
    expect(page.locator("#refused")).to_contain_text("Failed.")
    expect(panel).to_contain_text("zz-buyer")
    expect(page.locator("form[id^=stage-] [name=agents]")).to_have_value("vendor-onboard, zz-buyer")
    expect(lift.locator("[name=justification]")).to_have_value("All of it is mended.")
    holds_up(page)
    goes_on(page, tags="beta", why="And the pilots.")
    site.reaches(runs["third"], "completed")
    assert yard.parcels == ["first", "third", "third, papers"]
    page.goto(f"/runs/{runs['fourth']}")
    expect(page.locator("h1 ~ .chip")).to_have_text("halted")
    page.goto("/halts")
    page.click("summary:has-text('Resume')")
    lift.locator("[name=justification]").fill("All of it is mended.")
    lift.locator("button").click()
    expect(page.locator(".messages")).to_contain_text("Halt lifted.")
    expect(page.locator("section", has_text="No halts")).to_be_visible()
    expect(page.locator("section", has=page.locator("#past-title"))).to_contain_text("All of it is mended.")
    holds_up(page)
    for run_id in runs.values():
        site.reaches(run_id, "completed")
    each = [name for run in runs for name in (run, f"{run}, papers")]
    assert yard.parcels == sorted(each), "each once"
    assert sorted(site.effects(case)) == sorted(EFFECTS)
