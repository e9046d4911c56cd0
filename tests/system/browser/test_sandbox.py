"""The demo sandbox's pages withstand any vendor name: nothing runs and nothing is hidden."""

from __future__ import annotations

import smtplib
from collections.abc import Iterator
from typing import Literal
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.conftest import free_ports
from tests.system.browser.looks import FAINT
from tests.system.sandbox.harness import VENDOR, Sandbox
from tests.waiting import eventually

WORD = "Wörtermaß" * 33 + "end"
MARKUP = "\"'><script>pwned = 1</script><img src=x onerror=pwned=2>\u202egnp.exe\u200b" + "\u0301" * 20
ADDRESS = "a" * 60 + "@" + "b" * 60 + ".example"
RUN = "run-" + "R" * 190
PAGES = (
    "/",
    "/erp",
    "/portal",
    "/credentials",
    "/mail",
    "/mail/1",
    "/mail/2",
    "/effects.html",
    f"/effects.html?run_id={RUN}",
    f"/effects.html?run_id={quote(WORD + MARKUP)}",
    "/faults.html",
)
# What needs sideways scrolling or overlaps its neighbour. The skip link and a phone's table heads are hidden on
# purpose.
_OUT = """() => [...document.querySelectorAll('*')].filter(e => !e.closest('head, .skip, thead') && (
    e.getBoundingClientRect().right > innerWidth + 1
    || e.matches('html, body, main, nav, section, table, td, td > *, dd, p, div')
       && getComputedStyle(e).display !== 'inline' && e.scrollWidth > e.clientWidth + 1
)).map(e => `${e.tagName}.${e.className} of ${e.closest('td')?.dataset.label}: ${e.outerHTML.slice(0, 60)}`)"""
# On a phone a cell's label and its parts are two columns: no part may be among the labels.
_AMONG_LABELS = """() => [...document.querySelectorAll('td')].filter(td => getComputedStyle(td).display === 'grid'
    && [...td.children].some(e => e.getBoundingClientRect().left < td.getBoundingClientRect().left + 60)
).map(td => td.dataset.label)"""


@pytest.fixture(scope="module")
def crowded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    own = Sandbox(tmp_path_factory.mktemp("crowded") / "data", *free_ports(2))
    own.start()
    try:
        own.fault(system="portal", w9_delay_seconds=3600)
        for n, name in enumerate((WORD, MARKUP, "Nordlicht Antriebe GmbH")):
            _deal(own, n, name)
        with smtplib.SMTP("127.0.0.1", own.smtp_port) as smtp:
            for run in (RUN, "<b>run"):
                text = (
                    f"Subject: {'S' * 300}<script>\r\nX-Run-Id: {run}\r\n\r\n{'B' * 500}\r\n<script>pwned = 3</script>"
                )
                smtp.sendmail(ADDRESS, [ADDRESS, "c" + ADDRESS], text)
        own.client.post("/portal/w9-requests/1/send")
        eventually(lambda: "ConnectError" in own.client.get("/portal").text, "a callback that nobody took")
        own.fault(system="sanctions", operation="screen", latency_ms=0.123456789012345)
        yield own
    finally:
        own.close()


def _deal(sandbox: Sandbox, n: int, name: str) -> None:
    key = f"{n}" + "K" * 190
    long = WORD if n == 0 else MARKUP
    vendor = {"legal_name": name, "category": long, "contact_email": ADDRESS}
    vendor_id = sandbox.post("/api/erp/vendors", VENDOR | vendor, key, RUN).raise_for_status().json()["vendor_id"]
    order = {"vendor_id": vendor_id, "description": long, "amount_usd": "999999999.99"}
    sandbox.post("/api/erp/purchase-orders", order, key, RUN).raise_for_status()
    sandbox.post("/api/credentials", {"vendor_id": vendor_id, "scope": long[:200]}, key, "<b>run").raise_for_status()
    for host in ("127.0.0.1:1", "h" * 60 + "." + "g" * 60 + ".example:12345"):
        w9 = {"legal_name": name, "tax_id": "T" * 20, "contact_email": ADDRESS, "callback_url": f"http://{host}/"}
        sandbox.post("/api/portal/w9-requests", w9, f"{n}-{host}", RUN).raise_for_status()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_shows_the_longest_words_within_its_width(
    browser: Browser, crowded: Sandbox, scheme: Literal["light", "dark"]
) -> None:
    with browser.new_context(base_url=crowded.url, color_scheme=scheme) as context:
        page = context.new_page()
        for path in PAGES:
            page.goto(path)
            holds(page, path[:40])
        page.locator("[name=error_rate]").fill("2")
        page.get_by_role("button", name="Replace").click()
        expect(page.get_by_role("alert")).to_contain_text("error_rate")
        holds(page, "the refused form")


def holds(page: Page, where: str) -> None:
    page.wait_for_load_state("load")
    for width in (1280, 1241, 1131, 1130, 390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate(_OUT) == [], (where, width)
        assert page.evaluate(_AMONG_LABELS) == [], (where, width)
    assert page.evaluate("typeof pwned") == "undefined", where
    assert page.locator("script, img").count() == 0, where
    assert page.evaluate(FAINT) == [], where
