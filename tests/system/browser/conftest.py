"""A whole installation, and people in front of a real Chromium."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.system.infra.installation import Installation, eventually

# As root, offline, and without the browser's own chatter to the outside.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = {
    "integrator": "Integrator",
    "operator": "Operator",
    "approver_finance": "Finance approver",
    "approver_legal": "Legal approver",
    "auditor": "Auditor",
}
expect.set_options(timeout=20_000)


class Site(Installation):
    """The running installation as its users reach it."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def api(self, path: str, role: str = "operator", body: Any = None) -> Any:
        """One request to the API; with a body a POST."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.demo()['api_keys'][role]}", "Content-Type": "application/json"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/api/v1{path}", data, headers), timeout=20
        ) as answer:
            return json.load(answer)

    def start(self, agent: str, given: dict[str, Any]) -> str:
        return str(self.api("/runs", "integrator", {"agent": agent, "input": given})["id"])

    def run(self, run_id: str) -> Any:
        return self.api(f"/runs/{run_id}")

    def reaches(self, run_id: str, *states: str) -> Any:
        """The run once it is in one of these states."""

        def there() -> Any:
            run = self.run(run_id)
            return run if run["state"] in states else None

        return eventually(there, f"run {run_id} {' or '.join(states)}")

    def question(self, run_id: str) -> Any:
        """What a run asks people now."""
        return next(a for a in self.api("/approvals?state=open&limit=1000")["results"] if a["run_id"] == run_id)

    def approve(self, run_id: str) -> None:
        """As finance, through the API."""
        self.reaches(run_id, "waiting_human")
        asked = self.question(run_id)
        body = {"verdict": "approve", "plan_hash": asked["plan_hash"], "justification": "Fine."}
        self.api(f"/approvals/{asked['id']}/decision", "approver_finance", body)

    def effects(self, run_id: str) -> list[str]:
        """What the outside world says it did for a run."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.sandbox_port}/effects", timeout=20) as answer:
            return [
                f"{row['system']}.{row['operation']}"
                for row in json.load(answer)
                if row["run_id"] == run_id and row["executed"]
            ]


@contextmanager
def running(site: Site, **environment: str) -> Iterator[Site]:
    """`manage.py up` with these settings; it has to end well, and leaves nothing."""
    try:
        site.up(**environment)
        eventually(site.is_ready, "ready", 300.0)
        site.remember()
        yield site
        site.stop()
    finally:
        site.clean()


@contextmanager
def profiles(browser: Browser, site: Site) -> Iterator[Callable[[], Page]]:
    """Gives a page to whoever comes: nobody has signed in, each in a browser profile of their own."""
    opened: list[BrowserContext] = []

    def of() -> Page:
        opened.append(browser.new_context(base_url=site.url, viewport={"width": 1280, "height": 900}))
        return opened[-1].new_page()

    yield of
    for context in opened:
        context.close()


# Both to the end of these files, and no longer: an installation that nobody looks at any more still beats.
@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`manage.py up` on data and ports of its own, with the hostile agent beside the demo."""
    site = Site(tmp_path_factory.mktemp("site") / "data")
    with running(site, DURABLEAGENTS_AGENTS="tests.system.browser.agents"):
        yield site


# While Playwright runs, its event loop runs in this thread, where other packages' tests may not find one.
@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


def read_all(page: Page) -> None:
    """Look at every argument of a case to its end, as Approve waits for; a picture is there when it was drawn."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if page.locator("#seen").is_hidden():
            return
        # By event: a real click scrolls first, and what comes into view by that may be the last, which hides the
        # button.
        page.locator("#seen [data-next]").dispatch_event("click")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    raise AssertionError(page.locator("#seen").inner_text())


class Complaints(list[str]):
    """What the browser complained of: script errors, refused resources, requests to other hosts."""


Person = Callable[..., Page]


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def person(browser: Browser, site: Site, complaints: Complaints) -> Iterator[Person]:
    """Somebody who has signed in with one click, in a browser profile of their own."""
    opened: list[BrowserContext] = []

    def of(role: str, **options: Any) -> Page:
        context = browser.new_context(
            base_url=site.url, viewport=options.pop("viewport", {"width": 1280, "height": 900}), **options
        )
        opened.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on(
            "request",
            lambda request: None if request.url.startswith((site.url, "data:")) else complaints.append(request.url),
        )
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto("/login")
        page.locator(".roles button", has_text=NAMES[role]).click()
        page.wait_for_url("**/")
        return page

    yield of
    for context in opened:
        context.close()
