"""An administrator creates a webhook, tests it, reads the log, and sends a message again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from standardwebhooks.webhooks import Webhook as Verifier

from tests.conftest import free_ports
from tests.system.browser.looks import holds_up
from tests.system.browser.site import ALONE, Site, running
from tests.system.browser.steps import first_administrator
from tests.waiting import eventually

WHY = "the billing system asked for it"


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`DURABLEAGENTS_DEMO=0 manage.py up` with webhooks to this machine."""
    with running(tmp_path_factory, **ALONE, DURABLEAGENTS_WEBHOOK_NETWORKS="127.0.0.0/8") as site:
        yield site


def test_a_webhook_is_created_tested_and_its_message_sent_again(bare: Site, somebody: Callable[[], Page]) -> None:
    (port,) = free_ports(1)
    got: list[tuple[str, bytes, dict[str, str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["webhook-id"], body, dict(self.headers)))
            self.send_response(500 if len(got) == 1 else 200)
            self.end_headers()
            self.wfile.write(b"<b>not now</b>" if len(got) == 1 else b"taken")

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = somebody()
    first_administrator(page, bare)
    page.goto("/webhooks")
    page.get_by_label("Name").fill("Billing")
    page.get_by_label("Address").fill(f"http://127.0.0.1:{port}/hooks")
    page.get_by_label("A run completed").check()
    page.get_by_role("button", name="Create webhook").click()
    expect(page.get_by_role("alert")).to_contain_text("Not saved")
    expect(page.get_by_label("A run completed")).to_be_checked()
    holds_up(page)
    page.locator("#w-why").fill(WHY)
    page.get_by_role("button", name="Create webhook").click()
    secret = page.locator("#secret").inner_text()
    page.get_by_role("link", name="Done").click()
    holds_up(page)
    page.get_by_role("link", name="Billing").click()
    page.get_by_role("button", name="Send test message").click()
    eventually(lambda: len(got) >= 2, "the second attempt", 60)  # the first one fails; the next follows in 5 s
    row = page.locator("tr[id^=message-]")

    def is_sent() -> bool:
        page.reload()
        return row.filter(has_text="sent").count() == 1

    eventually(is_sent, "the log", 60)
    row.locator("summary", has_text="2").click()
    expect(row.locator("ol li").first).to_contain_text("<b>not now</b>")
    holds_up(page)
    row.locator("summary", has_text="Send again").click()
    row.get_by_label("Why").fill(WHY)
    row.get_by_role("button", name="Send again").click()
    eventually(lambda: len(got) == 3, "the replay", 60)
    assert len({name for name, _, _ in got}) == 1
    for _, body, headers in got:
        assert Verifier(secret).verify(body, headers)["type"] == "webhook.test"
    server.shutdown()
    server.server_close()
