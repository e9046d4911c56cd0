"""A lost message is resent, the log shows it, and its link opens nothing for anybody else."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest
from aiosmtpd.controller import Controller
from playwright.sync_api import Page, expect

from tests.conftest import free_ports
from tests.contrib.notifications.mail_server import Postbox
from tests.system.browser.looks import check, holds_up
from tests.system.browser.site import ALONE, Site, running
from tests.system.browser.steps import PASSWORD, approve, first_administrator, invited, read_all, start_clerk
from tests.waiting import eventually

VENDOR = "Nordlicht Antriebe GmbH"
LATER = "451 4.3.2 come back later"


@pytest.fixture
def postbox() -> Iterator[Postbox]:
    box, (box.port,) = Postbox(), free_ports(1)
    server = Controller(box, hostname="127.0.0.1", port=box.port)
    server.start()
    yield box
    server.stop()


@pytest.fixture
def bare(tmp_path_factory: pytest.TempPathFactory, postbox: Postbox) -> Iterator[Site]:
    """`DURABLEAGENTS_DEMO=0 manage.py up` with a mail server."""
    mail = {
        "DURABLEAGENTS_EMAIL_URL": f"smtp+plain://127.0.0.1:{postbox.port}",
        "DURABLEAGENTS_EMAIL_FROM": "agents@example.org",
    }
    with running(tmp_path_factory, **ALONE, **mail) as site:
        yield site


def is_told(page: Page, words: str) -> None:
    def says() -> bool:
        page.goto("/notifications/log")
        return page.locator("tr[id^=delivery-]", has_text="fiona").filter(has_text=words).count() == 1

    eventually(says, f"the log says {words}", 240)  # a courier that is cut off leaves it for its lease, 120 s


def test_a_lost_message_is_sent_again_and_its_link_opens_nothing(
    bare: Site, postbox: Postbox, somebody: Callable[[], Page]
) -> None:
    root = somebody()
    first_administrator(root, bare)
    olaf = invited(root, somebody(), "olaf", "Operator")
    ida = invited(root, somebody(), "ida", "Integrator")
    invited(root, somebody(), "fiona", "Finance approver").context.close()
    eventually(lambda: len(postbox.mails) == 3, "three invitations by mail")
    postbox.answers.append(LATER)
    run = start_clerk(olaf, "asks", legal_name=VENDOR)
    expect(olaf.locator("#why")).to_contain_text("Waiting for finance_po to decide")
    # it is lost, and the log says why
    is_told(olaf, f"the mail server said {LATER}")
    row = olaf.locator("tr[id^=delivery-]", has_text="fiona")
    expect(row.locator(".chip")).to_have_text("waiting")
    row.locator("summary", has_text="1").click()
    expect(row.locator("ol li")).to_have_count(1)
    expect(row.locator("ol li")).to_contain_text("failed")
    assert row.locator("summary", has_text="Send again").count() == 0
    holds_up(olaf)
    assert len(postbox.mails) == 3
    # and resent by itself
    eventually(lambda: len(postbox.mails) == 4, "the message", 240)
    is_told(olaf, "sent")
    row.locator("summary", has_text="2").click()
    expect(row.locator("ol li")).to_have_count(2)
    expect(row.locator("ol li").first).to_contain_text(LATER)
    expect(row.locator("ol li").last).to_contain_text("sent")
    holds_up(olaf)
    assert postbox.to[-1] == "fiona@example.org" and "To decide: " in postbox.mails[-1]["Subject"]
    link, settings = re.findall(r"http\S+", postbox.text())
    assert re.fullmatch(re.escape(bare.url) + r"/inbox/[0-9a-f-]{36}", link), "no token"
    assert settings == f"{bare.url}/notifications"
    of_no_use_to_others(bare, somebody(), ida, link)
    olaf.goto(run)
    expect(olaf.locator("#why")).to_contain_text("Waiting for finance_po to decide")
    opens_for(somebody(), link)
    expect(olaf.locator("h1 ~ .chip")).to_have_text("completed")


def anonymous(method: str, where: str) -> tuple[int, str]:
    parts = urlsplit(where)
    connection = http.client.HTTPConnection(parts.netloc, timeout=20)
    try:
        connection.request(method, parts.path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def of_no_use_to_others(site: Site, stranger: Page, ida: Page, link: str) -> None:
    """Check that others are asked to sign in or told nothing, and that nothing is decided."""
    case = link.rpartition("/")[2]
    decision = f"{site.url}/approvals/{case}/decision"
    for method, where in (("GET", link), ("HEAD", link), ("POST", link), ("POST", decision)):
        status, text = anonymous(method, where)
        assert status in (302, 403) and VENDOR not in text, (method, where)
    stranger.goto(link)
    stranger.wait_for_url(f"**/login?next=/inbox/{case}")
    assert VENDOR not in stranger.content() and "Take on" not in stranger.content()
    for width in (1280, 390):
        stranger.set_viewport_size({"width": width, "height": 900})
        # there is nothing but the form to navigate to
        assert [one for one in check(stranger, link) if not one.endswith("no landmarks")] == []
    for where in (link, f"{link}?fragment=live"):
        answer = ida.goto(where)
        assert answer is not None and answer.status in (403, 404)
        assert VENDOR not in ida.content() and "Take on" not in ida.content()
    ida.goto(link)
    holds_up(ida)
    sent = """async (where) => { const token = document.querySelector('[name=csrfmiddlewaretoken]').value;
      const body = new URLSearchParams({csrfmiddlewaretoken: token, verdict: 'approve', justification: 'Fine.'});
      const answer = await fetch(where, {method: 'POST', body}); return [answer.status, await answer.text()]; }"""
    status, text = ida.evaluate(sent, decision)
    assert status in (403, 404) and VENDOR not in text


def opens_for(fiona: Page, link: str) -> None:
    fiona.goto(link)
    fiona.fill("#username", "fiona")
    fiona.fill("#password", PASSWORD)
    fiona.press("#password", "Enter")
    fiona.wait_for_url(link)
    expect(fiona.locator("main")).to_contain_text(f"Take on {VENDOR} at once")
    holds_up(fiona)
    read_all(fiona)
    approve(fiona)
