"""Who looks at the console, in which window, and the picture of what they see."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.system.browser.conftest import NAMES, Site

PICTURES = Path(__file__).resolve().parents[3] / "docs" / "pictures"
# Of what is on the page, which the window may be higher than.
_HEIGHT = "Math.ceil(document.querySelector('#live').getBoundingClientRect().bottom + scrollY) + 24"
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def signed_in(site: Site, browser: Browser, role: str, window: Any = WIDE, **options: Any) -> Page:
    """A page of somebody with this role, who has just signed in by one click."""
    page = browser.new_context(base_url=site.url, viewport=window, **options).new_page()
    page.goto("/login")
    page.locator(".roles button", has_text=NAMES[role]).click()
    page.wait_for_url("**/")
    return page


def picture(page: Page, name: str, of: str = "", *, is_live: bool = True) -> None:
    """Of the whole page, or of what `of` selects. `is_live`: a page that says that it is brought up to date."""
    if is_live:
        expect(page.locator("#live-state")).to_contain_text("live")
    page.evaluate("document.activeElement.blur()")
    # As high as the page: what sticks to the window's edge then stands where it ends.
    width = page.viewport_size["width"] if page.viewport_size else WIDE["width"]
    page.set_viewport_size({"width": width, "height": page.evaluate(_HEIGHT)})
    (page.locator(of) if of else page).screenshot(path=PICTURES / f"{name}.png")


def kept(page: Page, name: str) -> None:
    """What a story comes by, to be looked at: where `PICTURES` names a folder, its picture is put there."""
    if folder := os.environ.get("PICTURES"):
        page.screenshot(path=f"{folder}/{name}.png", full_page=True)
