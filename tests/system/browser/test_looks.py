"""How pages hold up: a phone's width, both themes, names for everything that can be operated."""

from __future__ import annotations

import itertools

import pytest
from playwright.sync_api import Page

from tests.system.browser.conftest import Complaints, Person, Site
from tests.system.browser.test_story import ACME
from tests.tiers import mostly_long

pytestmark = [pytest.mark.browser, pytest.mark.processes, pytest.mark.timeout(480)]

# Every control has a name; text has enough contrast with the ground it stands on (WCAG 1.4.3), as drawn.
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


# One line of text is entered at least this high, whatever kind of field it is.
_LOW = """
() => [...document.querySelectorAll('input:not([type=hidden], [type=checkbox], [type=radio]), select')].filter(e =>
e.offsetParent && e.offsetHeight < 36)
  .map(e => `${e.id || e.name}: ${e.offsetHeight} px`)
"""


# A text squeezed into a column of a few letters; a label without a value, or that its value says again.
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


LONG_NAME = "Gesellschaft für Donaudampfschifffahrt und Lagertechnik mbH"


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


@pytest.mark.parametrize(
    ("theme", "width"),
    mostly_long(itertools.product(["light", "dark"], [1280, 390]), [("light", 1280), ("dark", 390)]),
)
def test_every_page_holds_up(person: Person, site: Site, complaints: Complaints, width: int, theme: str) -> None:
    run_id = site.start("vendor-onboard", {**ACME, "legal_name": LONG_NAME})
    site.reaches(run_id, "waiting_human")
    asked = site.question(run_id)
    unknown = site.start("zz-clerk", {"ending": "unknown", "legal_name": LONG_NAME})
    site.reaches(unknown, "waiting_human")
    problems: list[str] = []
    options = {"viewport": {"width": width, "height": 844}, "color_scheme": theme}
    pages = [
        "/",
        "/inbox",
        f"/inbox/{asked['id']}",
        "/inbox?show=decided",
        "/runs",
        "/runs/new",
        "/reconcile",
        "/audit",
        "/agents",
        "/fleet",
    ]
    pages += ["/agents/vendor-onboard@1.0.0", f"/runs/{run_id}/verification", "/runs?q=nothing-like-it"]
    pages += [f"/runs/{run_id}?tab={tab}" for tab in ("timeline", "transcript", "checkpoints", "decisions", "journal")]
    operator = person("operator", **options)
    for path in pages:
        operator.goto(path)
        problems += check(operator, path)
    auditor = person("auditor", **options)
    for path in ("/audit?action=accounts", f"/runs/{run_id}/verification", "/audit/verification"):
        auditor.goto(path)
        problems += check(auditor, path)
    finance = person("approver_finance", **options)
    for path in ("/inbox", f"/inbox/{asked['id']}"):
        finance.goto(path)
        problems += check(finance, path)
    assert problems == [] and complaints == []


def test_the_open_case_is_in_view_in_its_list(person: Person, site: Site) -> None:
    runs = [site.start("vendor-onboard", ACME) for _ in range(14)]
    for run_id in runs:
        site.reaches(run_id, "waiting_human")
    page = person("approver_finance", viewport={"width": 1280, "height": 500})
    page.goto(f"{site.url}/inbox/{site.question(runs[-1])['id']}")
    seen = """() => { const l = document.querySelector('.split > .list').getBoundingClientRect(),
      o = document.querySelector('a.item[aria-current]').getBoundingClientRect(); return l.top <= o.top &&
      o.bottom <= l.bottom }"""
    assert page.evaluate(seen) is True and page.evaluate("scrollY") == 0
