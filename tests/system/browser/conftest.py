"""A whole installation, and people in front of a real Chromium."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.system.browser.site import AGENTS, ALONE, Site, running
from tests.system.browser.steps import sign_in, sign_in_as_admin

# As root, offline, and without the browser's own requests.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
WIDE = {"width": 1280, "height": 900}
Person = Profile = Callable[..., Page]
expect.set_options(timeout=20_000)


# Both end with these files: an unused installation still runs.
@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`manage.py up` with this folder's agents next to the demo's."""
    with running(tmp_path_factory, **AGENTS) as site:
        yield site


@pytest.fixture(scope="package")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """For tests that halt or change rules. test_policies.py must come last: then two people change rules."""
    with running(tmp_path_factory, **AGENTS) as site:
        yield site


# While Playwright runs, its event loop is in this thread, where other packages' tests may not find one.
@pytest.fixture(scope="package")
def browser(chromium: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


class Complaints(list[str]):
    """The browser's complaints: script errors, refused resources, requests to other hosts."""

    def besides(self, *statuses: str) -> list[str]:
        return [each for each in self if not any(status in each for status in statuses)]


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def profiles(browser: Browser) -> Iterator[Profile]:
    opened: list[BrowserContext] = []

    def profile(site: Site, **options: Any) -> Page:
        opened.append(browser.new_context(**{"base_url": site.url, "viewport": WIDE} | options))
        return opened[-1].new_page()

    yield profile
    for context in opened:
        context.close()


@pytest.fixture
def person(profiles: Profile, site: Site, complaints: Complaints) -> Person:
    def person(role: str, **options: Any) -> Page:
        page = profiles(site, **options)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        page.on(
            "request",
            lambda request: None if request.url.startswith((site.url, "data:")) else complaints.append(request.url),
        )
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        return sign_in(page, role)

    return person


@pytest.fixture
def admin(profiles: Profile, site: Site) -> Page:
    return sign_in_as_admin(profiles(site), site)


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """`DURABLEAGENTS_DEMO=0 manage.py up`: nobody has an account."""
    with running(tmp_path_factory, **ALONE) as site:
        yield site


@pytest.fixture
def somebody(profiles: Profile, bare: Site) -> Callable[[], Page]:
    return lambda: profiles(bare)
