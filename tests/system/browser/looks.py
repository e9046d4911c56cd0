"""Checks of a page's look, and pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, expect

from tests.system.browser.site import Site
from tests.system.browser.steps import sign_in

# Every control has a name; text has enough contrast with its background (WCAG 1.4.3), as drawn.
_NAMELESS = """
() => [...document.querySelectorAll('a, button, summary, input:not([type=hidden]), select, textarea')].filter(e =>
e.offsetParent)
  .filter(e => !(e.innerText?.trim() || e.getAttribute('aria-label') || e.labels?.length ||
  e.textContent.trim())).map(e => e.outerHTML.slice(0, 120))
"""
FAINT = """
() => {
  const canvas = document.createElement('canvas').getContext('2d', {willReadFrequently: true});
  const rgba = (css) => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = css; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data]; };
  const light = ([r, g, b]) => { const [x, y, z] = [r, g, b].map(v => { v /= 255;
  return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4; }); return .2126 * x + .7152 * y + .0722 * z; };
  const ground = (e) => { for (; e; e = e.parentElement) { const c = rgba(getComputedStyle(e).backgroundColor);
  if (c[3] > 250) return c; } return rgba('white'); };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const own = [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim());
    const style = getComputedStyle(e);
    if (!own || !e.getClientRects().length || style.visibility === 'hidden' ||
      e.closest('svg, .sr, .skip, [disabled]')) continue;
    const [a, b] = [light(rgba(style.color)), light(ground(e))];
    const ratio = (Math.max(a, b) + .05) / (Math.min(a, b) + .05);
    const size = parseFloat(style.fontSize), is_large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (is_large ? 3 : 4.5)) found.push(
      `${ratio.toFixed(2)} ${e.className || e.tagName}: ${e.textContent.trim().slice(0, 40)}`);
  }
  return [...new Set(found)];
}
"""


# The minimum height of one-line fields of any kind.
_LOW = """
() => [...document.querySelectorAll('input:not([type=hidden], [type=checkbox], [type=radio]), select')].filter(e =>
e.offsetParent && e.offsetHeight < 36)
  .map(e => `${e.id || e.name}: ${e.offsetHeight} px`)
"""


# A text squeezed into a narrow column; a label without a value, or repeated by its value.
_CLUMSY = """
() => {
  const found = [];
  for (const e of document.querySelectorAll('main *')) {
    const own = [...e.childNodes].filter(n => n.nodeType === 3).map(n => n.textContent.trim()).join(' ').trim();
    if (own.length < 12 || !e.checkVisibility() || !e.getClientRects().length || e.closest('svg, .sr, pre')) continue;
    const rects = [...e.getClientRects()], wide = Math.max(...rects.map(r => r.width));
    const lines = e.getBoundingClientRect().height / (parseFloat(getComputedStyle(e).fontSize) * 1.6);
    if (wide < 72 && lines > 4) found.push(`squeezed: ${own.slice(0, 40)}`);
  }
  for (const e of document.querySelectorAll('[data-label]')) {
    if (!e.checkVisibility() || getComputedStyle(e, '::before').content === 'none') continue;
    const label = e.dataset.label, text = e.innerText.trim();
    if (label && (!text || text.startsWith(`${label} `))) found.push(`label: ${label} ${text}`);
  }
  return [...new Set(found)];
}
"""

PICTURES = Path(__file__).resolve().parents[3] / "docs" / "pictures"
# The height of the page's content, which may be less than the window's.
_HEIGHT = "Math.ceil(document.querySelector('#live').getBoundingClientRect().bottom + scrollY) + 24"
LONG_NAME = "Gesellschaft für Donaudampfschifffahrt und Lagertechnik mbH"
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


def signed_in(site: Site, browser: Browser, role: str, window: Any = WIDE, **options: Any) -> Page:
    return sign_in(browser.new_context(base_url=site.url, viewport=window, **options).new_page(), role)


def picture(page: Page, name: str, of: str = "", *, is_live: bool = True) -> None:
    """Take a picture of the page, or of what `of` selects. A live page must say that it is live."""
    if is_live:
        expect(page.locator("#live-state")).to_contain_text("live")
    page.evaluate("document.activeElement.blur()")
    # As high as the page, so that sticky elements are at its end.
    width = page.viewport_size["width"] if page.viewport_size else WIDE["width"]
    page.set_viewport_size({"width": width, "height": page.evaluate(_HEIGHT)})
    (page.locator(of) if of else page).screenshot(path=PICTURES / f"{name}.png")


def check(page: Page, where: str) -> list[str]:
    page.wait_for_load_state()
    wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    problems = [f"{where}: {wide} px too wide"] if wide > 0 else []
    problems += [f"{where}: no name: {found}" for found in page.evaluate(_NAMELESS)]
    problems += [f"{where}: too low: {found}" for found in page.evaluate(_LOW)]
    problems += [f"{where}: {found}" for found in page.evaluate(_CLUMSY)]
    problems += [f"{where}: too faint: {found}" for found in page.evaluate(FAINT)]
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(e => e.id)")
    problems += [f"{where}: id twice: {one}" for one in {one for one in ids if ids.count(one) > 1}]
    landmarks = page.locator("main, nav, header.top").count()
    return problems if landmarks >= 2 else [*problems, f"{where}: no landmarks"]


def checked(page: Page) -> list[str]:
    before: Any = page.viewport_size
    problems = []
    for scheme in ("light", "dark"):
        for width in (1280, 390):
            page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
            page.set_viewport_size({"width": width, "height": 900})
            problems += check(page, f"{page.url} {scheme} {width}")
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(before)
    return problems


def holds_up(page: Page) -> None:
    assert checked(page) == []
