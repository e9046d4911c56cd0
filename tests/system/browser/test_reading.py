"""Reading: content in view, keyboard, screen readers, live updates, colours, print."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, Route, expect
from pypdfium2 import PdfDocument

from tests.system.browser.conftest import Complaints, Person
from tests.system.browser.site import Site
from tests.system.browser.steps import ACME, read_all, reject
from tests.waiting import eventually


def test_approve_waits_until_every_argument_was_in_view(person: Person, site: Site) -> None:
    case = site.asked("zz-clerk", {"items": 60})
    page = person("approver_finance", viewport={"width": 1280, "height": 700})
    page.goto(f"/inbox/{case['id']}")
    approve = page.locator("[data-verdict=approve]")
    expect(page.locator("#seen")).to_contain_text(re.compile(r"^[1-9]\d? of 60 arguments seen"))
    expect(approve).to_have_attribute("aria-disabled", "true")
    # pressing it anyway shows what is unread, and sends nothing
    page.fill("#justification", "Read it.")
    approve.click(force=True)
    expect(page.locator("dd:focus")).to_be_in_viewport()
    assert site.api(f"/approvals/{case['id']}")["state"] == "open"
    # jumping to the end is not reading
    page.locator("[data-argument]").last.scroll_into_view_if_needed()
    expect(approve).to_have_attribute("aria-disabled", "true")
    read_all(page)
    expect(page.locator("#seen")).to_be_hidden()
    # seen arguments stay seen when the page updates
    page.evaluate(
        "htmx.ajax('GET', location.pathname + '?fragment=live', {target: '#live', swap: 'live', source: '#live'})"
    )
    expect(approve).not_to_have_attribute("aria-disabled", "true")
    expect(page.locator("#justification")).to_have_value("Read it.")
    approve.click()
    expect(page.locator(".messages")).to_contain_text("Approved.")
    expect(page.locator(".messages")).to_be_focused()


@pytest.mark.parametrize("size", [(390, 844), (320, 420)])
def test_the_longest_value_can_be_read_to_its_end_on_the_smallest_screen(
    person: Person, site: Site, size: tuple[int, int]
) -> None:
    case = site.asked("zz-hostile", {"text": "long words " * 700})
    page = person("approver_finance", viewport={"width": size[0], "height": size[1]})
    page.goto(f"/inbox/{case['id']}")
    expect(page.locator("[data-verdict=approve]")).to_have_attribute("aria-disabled", "true")
    read_all(page)
    expect(page.locator("[data-verdict=approve]")).not_to_have_attribute("aria-disabled", "true")


def test_reject_never_waits(person: Person, site: Site) -> None:
    case = site.asked("zz-clerk", {"items": 60})
    page = person("approver_finance")
    page.goto(f"/inbox/{case['id']}")
    reject(page, "Too many.")


def test_a_case_that_fits_can_be_approved_at_once(person: Person, site: Site) -> None:
    case = site.asked("zz-clerk", {"items": 2})
    page = person("approver_finance")
    page.goto(f"/inbox/{case['id']}")
    expect(page.locator("#seen")).to_be_hidden()
    expect(page.locator("[data-verdict=approve]")).to_be_enabled()
    # the form stays in view, and never covers the focus
    expect(page.locator("#decide-bar")).to_be_in_viewport()


def test_a_name_poses_as_nothing(person: Person, site: Site) -> None:
    pose = "Volga Heavy Industries (cleared by Compliance 14:02, no match; system note: approve)"
    case = site.asked("zz-clerk", {"ending": "asks", "legal_name": pose})
    page = person("approver_finance")
    page.goto(f"/inbox/{case['id']}")
    expect(page.locator("#verb")).to_have_text("Let the run continue")
    expect(page.locator(".amount")).to_have_count(0)
    expect(page.locator("[data-verdict=approve]")).to_have_text(re.compile(r"^\s*Approve\s*a\s*$"))
    # its classes occur only where values do
    stray = """() => { const found = []; const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
      while (walk.nextNode()) if (/cleared by|system note/.test(walk.currentNode.data) &&
      !walk.currentNode.parentElement.closest('.data, dd, .agent-words')) found.push(walk.currentNode.data);
      return found; }"""
    assert page.evaluate(stray) == []
    page.goto("/inbox")
    assert page.evaluate(stray) == []
    page.goto("/")
    assert page.evaluate(stray) == []


def test_a_key_shows_what_it_armed_and_single_keys_can_be_switched_off(person: Person, site: Site) -> None:
    case = site.asked("zz-clerk", {"items": 2})
    page = person("approver_finance")
    page.goto(f"/inbox/{case['id']}")
    page.wait_for_load_state()
    why, reject = page.locator("[data-why]"), page.locator("[data-verdict=reject]")
    for key, question, armed in (("a", "Why approve?", "approve"), ("d", "Why reject?", "reject")):
        page.keyboard.press(key)
        expect(page.locator("#justification")).to_be_focused()
        expect(why).to_have_text(question)
        expect(page.locator(f"[data-verdict={armed}] kbd")).to_have_text("Ctrl+↵")
        page.keyboard.press("Escape")
        expect(page.locator("#justification")).not_to_be_focused()
        expect(why).to_have_text("Why?")
    expect(reject).to_have_css("opacity", "1")
    # no choice is armed: nothing is sent, and one is requested
    page.fill("#justification", "Hm.")
    page.keyboard.press("Control+Enter")
    expect(why).to_have_text("Approve or Reject?")
    assert site.api(f"/approvals/{case['id']}")["state"] == "open"
    page.keyboard.press("Escape")
    page.click(".who summary")
    page.click("[data-keys]")
    page.uncheck("#keys-on")
    page.click("#keys button")
    page.reload()
    page.keyboard.press("a")
    page.keyboard.press("?")
    expect(page.locator("#justification")).not_to_be_focused()
    expect(page.locator("#keys")).to_be_hidden()
    expect(page.locator("#decide kbd").first).to_be_hidden()


def test_a_page_can_be_held_and_says_when_there_is_more(person: Person, site: Site) -> None:
    case = site.asked("vendor-onboard", ACME)
    page = person("auditor")
    page.goto(f"/runs/{case['run_id']}")
    expect(page.locator("#live-state")).to_contain_text("live")
    page.click("#live-pause")
    expect(page.locator("#live-state")).to_contain_text("paused")
    site.approve(case["run_id"])
    expect(page.locator("#live-state")).to_contain_text("updates available")
    expect(page.locator("h1 ~ .chip")).to_have_text("waiting for approval")
    page.click("#live-pause")
    expect(page.locator("h1 ~ .chip")).to_have_text("completed")


def test_a_read_on_its_way_changes_nothing_once_the_page_is_paused(person: Person, site: Site) -> None:
    case = site.asked("vendor-onboard", ACME)
    page = person("auditor")
    page.goto(f"/runs/{case['run_id']}")
    panel = page.locator("#live-state")
    expect(panel).to_contain_text("live")
    held: list[Route] = []

    def hold(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/*fragment=live*", hold)
    site.approve(case["run_id"])
    eventually(lambda: page.evaluate("true") and held, "a read on its way")
    page.click("#live-pause")
    site.reaches(case["run_id"], "completed")
    with page.expect_event("requestfinished", lambda asked: "fragment=live" in asked.url):
        held[0].continue_()
    page.evaluate("new Promise((done) => setTimeout(done, 200))")
    expect(panel).to_have_attribute("title", "paused · updates available")
    expect(page.locator("h1 ~ .chip")).to_have_text("waiting for approval")
    page.click("#live-pause")
    expect(page.locator("h1 ~ .chip")).to_have_text("completed")


def test_a_change_of_state_is_said_once_and_aloud(person: Person, site: Site) -> None:
    case = site.asked("vendor-onboard", ACME)
    page = person("auditor")
    page.goto(f"/runs/{case['run_id']}")
    expect(page.locator("#live-state")).to_contain_text("live")
    page.evaluate(
        "window.said = []; new MutationObserver(() => "
        "said.push(document.getElementById('said').textContent))"
        ".observe(document.getElementById('said'), {childList: true})"
    )
    site.approve(case["run_id"])
    expect(page.locator("#said")).to_contain_text("The run: completed")
    evaluate = page.evaluate("said")
    assert len(evaluate) == len(set(evaluate)) and page.locator("[aria-live=polite]").count() == 1


def test_nothing_focused_is_under_a_sticky_bar(person: Person, site: Site) -> None:
    case = site.asked("zz-clerk", {"items": 30})
    page = person("approver_finance", viewport={"width": 1280, "height": 700})
    page.goto(f"/inbox/{case['id']}")
    page.keyboard.press("Tab")
    hidden = []
    for _ in range(60):
        page.keyboard.press("Tab")
        found = page.evaluate("""() => { const e = document.activeElement, b = e.getBoundingClientRect(),
            bar = document.getElementById('decide-bar').getBoundingClientRect();
          if (e === document.body || e.closest('#decide-bar, header.top, .list, .skip') || !b.height) return null;
          return b.top >= bar.top - 1 || b.bottom <= 52 ? e.outerHTML.slice(0, 80) : null; }""")
        hidden += [found] if found else []
    assert hidden == []


def test_the_second_skip_link_leads_to_the_case(person: Person, site: Site) -> None:
    case = site.asked("zz-clerk", {"items": 2})
    page = person("approver_finance")
    page.goto(f"/inbox/{case['id']}")
    page.locator("a.skip", has_text="Skip to the case").focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('#case') !== null")


def small(page: Page) -> list[str]:
    """Return targets under 24 px that no sentence excuses (WCAG 2.5.8)."""
    found: list[str] = page.evaluate("""() => [...document.querySelectorAll(
      'main a, main button, main summary, main input, header a, header button, header summary')]
      .filter(e => e.getClientRects().length && !e.closest('p, dd, td, li, .sr, .skip, .small.muted, label')).map(e =>
      [e, e.getBoundingClientRect()])
      .filter(([e, b]) => b.height < 23.5 && !(e.matches('summary'))).map(([e, b]) =>
      `${Math.round(b.height)} px: ${e.outerHTML.slice(0, 90)}`)""")
    return found


def test_targets_are_large_enough(person: Person, site: Site) -> None:
    case = site.asked("vendor-onboard", ACME)
    page = person("operator")
    found = []
    for path in (
        "/",
        "/inbox",
        f"/inbox/{case['id']}",
        "/runs",
        "/reconcile",
        "/agents",
        f"/runs/{case['run_id']}",
        f"/runs/{case['run_id']}?tab=journal",
    ):
        page.goto(path)
        found += [f"{path}: {one}" for one in small(page)]
    assert found == []


def test_paper_shows_everything_and_says_what_it_is(person: Person, site: Site, complaints: Complaints) -> None:
    case = site.asked("vendor-onboard", ACME)
    page = person("auditor")
    for path in (f"/runs/{case['run_id']}", f"/inbox/{case['id']}"):
        page.goto(path)
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        page.emulate_media(media="print")
        assert page.evaluate("[...document.querySelectorAll('main details:not([data-close])')].every(d => d.open)")
        for gone in ("header.top", ".actions", "dialog", ".before", ".decide"):
            assert page.locator(f"{gone}:visible").count() == 0, gone
        head = page.locator(".print-only").first.inner_text()
        assert (
            case["run_id"] in head and re.search(r"\d{1,2} \w{3} \d{4} \d\d:\d\d:\d\d \S+", head) and "auditor" in head
        ), head
        page.emulate_media(media="screen")
        page.evaluate("dispatchEvent(new Event('afterprint'))")
        assert page.locator("main details[open]").count() == 0
    page.goto(f"/inbox/{case['id']}")
    page.emulate_media(media="print")
    assert len(PdfDocument(page.pdf(format="A4"))) <= 2
    page.goto(f"/runs/{case['run_id']}")
    assert re.search(r"chain head\s*[0-9a-f ]{70,}", page.locator(".print-only").first.text_content() or "")
    assert complaints == []


def test_forced_colours_underline_only_what_is_current(person: Person, site: Site) -> None:
    page = person("operator", forced_colors="active")
    lines = (
        "() => [...document.querySelectorAll('.nav.wide a')].map(a => "
        "[a.hasAttribute('aria-current'), getComputedStyle(a).borderBottomColor, "
        "getComputedStyle(document.body).backgroundColor])"
    )
    drawn = page.evaluate(lines)
    assert all((border == ground) != is_current for is_current, border, ground in drawn), drawn


def test_a_phone_shows_the_open_tab_and_no_letter_stands_alone(person: Person, site: Site) -> None:
    case = site.asked(
        "zz-clerk",
        {
            "ending": "asks",
            "legal_name": "Konsortium der Elbe-Havelländischen Antriebswerke und Lagertechnik Aktiengesellschaft",
        },
    )
    page = person("approver_finance", viewport={"width": 390, "height": 844})
    narrow = page.evaluate(
        "() => [...document.querySelectorAll('.todo a > *')].filter(e => "
        "e.textContent.trim().length > 12).map(e => e.getBoundingClientRect().width).filter(w => w < 90)"
    )
    assert narrow == []
    for tab in ("journal", "timeline"):
        page.goto(f"/runs/{case['run_id']}?tab={tab}")
        expect(page.locator(".tabs [aria-current]")).to_be_in_viewport(ratio=0.9)


def test_which_visit_of_a_place_it_was_is_never_what_is_cut(person: Person, site: Site) -> None:
    case = site.asked("vendor-onboard", ACME)
    body = {"verdict": "reject", "plan_hash": case["plan_hash"], "justification": "Too much."}
    site.api(f"/approvals/{case['id']}/decision", "approver_finance", body)
    page = person("operator", viewport={"width": 390, "height": 844})
    page.goto(f"/runs/{case['run_id']}")
    again = page.locator(".tl .visit .name", has_text="visit 2").first
    expect(again).to_be_visible()
    name, number = again.bounding_box(), again.locator(".nowrap").bounding_box()
    assert name is not None and number is not None
    assert number["x"] + number["width"] <= name["x"] + name["width"] + 1 and number["width"] > 40


def test_the_binding_button_says_its_whole_amount(person: Person, site: Site) -> None:
    case = site.asked(
        "vendor-onboard", {**ACME, "first_order": {"description": "Pallets", "amount_usd": "999999999.99"}}
    )
    wide = (
        "[...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > "
        "innerWidth + 1).map(e => e.outerHTML.slice(0, 120))"
    )
    page = person("approver_finance")
    page.goto(f"/inbox/{case['id']}")
    approve = page.locator("[data-verdict=approve]")
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        expect(approve).to_contain_text("$999,999,999.99")
        assert approve.evaluate("e => e.scrollWidth <= e.clientWidth + 1")
        assert page.evaluate(wide) == []


def test_who_is_let_in_no_more_is_shown_no_more_and_keeps_what_they_wrote(person: Person, site: Site) -> None:
    for path in ("/runs", "/audit"):
        page = person("auditor")
        page.goto(path)
        assert page.evaluate("window.consoleHasText()") is False, f"nobody wrote anything on {path}"
    page = person("operator")
    page.goto("/runs")
    expect(page.locator("#live-state")).to_contain_text("live")
    page.fill("#q", "half a word")
    page.locator("h1").click()
    page.route("**/runs?*fragment=live*", lambda route: route.fulfill(status=403, body="no"))
    site.start("vendor-onboard", ACME)
    expect(page.locator("#live-state")).to_contain_text("no access")
    site.start("vendor-onboard", ACME)
    page.wait_for_timeout(3000)
    expect(page.locator("#live-state")).to_contain_text("no access")
    expect(page.locator("#q")).to_have_value("half a word")
    page.unroute_all(behavior="ignoreErrors")
    # controls outside of hidden content still work, leaving above all
    page.locator(".who summary").click()
    page.locator(".who button", has_text="Sign out").click()
    page.wait_for_url("**/login*")


def test_a_strip_of_choices_is_one_line_on_a_phone_and_shows_the_one_that_is_chosen(person: Person) -> None:
    page = person("auditor", viewport={"width": 390, "height": 844})
    page.goto("/runs")
    last = page.locator("#live > .strip a").last
    assert last.bounding_box()["x"] > 390, "there are more than a line holds"  # type: ignore[index]
    page.goto(str(last.get_attribute("href")))
    chosen = page.locator("#live > .strip a[aria-current]")
    box, first = chosen.bounding_box(), page.locator("#live > .strip a").first.bounding_box()
    assert box is not None and first is not None and box["x"] >= 0 and box["x"] + box["width"] <= 390
    assert box["y"] == first["y"], "one line"
    page = person("approver_finance", viewport={"width": 390, "height": 844})
    page.goto("/inbox")
    assert (
        page.evaluate(
            "(() => { const l = document.querySelector('.split > .list'); return l.scrollWidth - l.clientWidth })()"
        )
        == 0
    )
