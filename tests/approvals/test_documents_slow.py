"""Documents that take long to draw: nobody waits for them longer than a moment, they are drawn all the same, and no yes
goes out before."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from time import monotonic, sleep
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.brief import brief
from approvals.documents import drawn
from approvals.models import Approval
from approvals.services import decide
from durableagents import Document as Given
from ledger.errors import Busy
from runs.engine.gate.documents import Named
from tests.approvals.setup import say, somebody
from tests.approvals.test_documents import _nothing_drawn, asked, opened, paying, settled
from tests.console.conftest import Reader
from tests.papers import pdf, text
from tests.runs.stage import Stage, at_once
from tests.world import FIONA, Toolbox

pytestmark = pytest.mark.django_db
__all__ = ["_nothing_drawn"]
PAGE = (1240, 1754)


class Slow:
    """In the place of the process that draws: each drawing takes so many seconds, and shows that many pages or fails
    by bad luck."""

    def __init__(self, seconds: float, pages: int = 1) -> None:
        self.seconds, self.pages, self.begun = seconds, pages, 0

    def __call__(self, named: Named, content: bytes, first: int) -> tuple[dict[str, Any], list[bytes]]:
        self.begun += 1
        sleep(self.seconds)
        if not self.pages:
            return {"problem": "to draw it takes more than 20 seconds", "luck": True}, []
        drawn_now = min(drawn.TOGETHER, self.pages - first + 1)
        return {"pages": [PAGE] * self.pages}, [b"a picture"] * drawn_now


def slowly(monkeypatch: pytest.MonkeyPatch, seconds: float, pages: int = 1) -> Slow:
    slow = Slow(seconds, pages)
    monkeypatch.setattr(drawn, "_ask", slow)
    monkeypatch.setattr(drawn, "PAGE_SECONDS", 1.0)
    return slow


@pytest.fixture
def ten(stage: Stage, tools: Toolbox) -> Iterator[Approval]:
    """A question with as many documents as there may be."""
    yield asked(
        stage, paying(tools, [Given(f"{n}.pdf", "application/pdf", pdf(words=str(n)).bytes) for n in range(10)])
    )
    settled()


def test_whoever_looks_or_says_no_waits_a_moment_however_much_there_is_to_draw(
    ten: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowly(monkeypatch, 3.0, pages=0)  # fifteen seconds for all of them, two at a time
    ann = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person))
    began = monotonic()
    page = ann.read("/inbox")
    assert "Being drawn:" in page and "You may reject it." in page
    assert monotonic() - began < 4 and 0 < len(drawn._under_way) <= drawn.AT_ONCE
    began = monotonic()
    answer = ann.post(f"/approvals/{ten.id}/decision", verdict="reject", plan_hash=ten.plan_hash, justification="no")
    assert answer.status_code == 302 and monotonic() - began < 3
    assert Approval.objects.get(pk=ten.pk).state == "rejected"


def test_a_no_draws_nothing(ten: Approval, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = slowly(monkeypatch, 1.2)
    ann = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person))
    sent = {"verdict": "reject", "plan_hash": ten.plan_hash, "justification": "no"}
    assert ann.post(f"/approvals/{ten.id}/decision", **sent).status_code == 302
    assert slow.begun == 0 and not drawn._under_way


def test_each_look_has_the_next_drawn_and_waits_for_none_twice(ten: Approval, monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch, 0.7)
    looks = []
    until = monotonic() + 30
    while opened(ten).not_shown and monotonic() < until:
        began = monotonic()
        looks.append([each.is_drawing for each in opened(ten).documents].count(True))
        assert monotonic() - began < 2
        sleep(0.2)
    assert looks[0] > 0 and opened(ten).not_shown == "" and looks == sorted(looks, reverse=True)
    page = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person)).get(f"/inbox/{ten.id}")
    assert page.content.count(b"<img loading=") == 10 and b"data-lapses" not in page.content


def test_what_takes_long_is_waited_for_once(ten: Approval, monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch, 3.0)
    assert opened(ten).is_drawing
    began = monotonic()
    assert opened(ten).is_drawing and monotonic() - began < 0.8


def test_the_page_reads_itself_again_while_something_is_drawn(ten: Approval, monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch, 1.5)
    page = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person)).get(f"/inbox/{ten.id}")
    assert b'id="drawing" data-lapses="1"' in page.content and b'id="not-shown"' not in page.content
    assert b"once they are shown, in a moment" in page.content


def test_what_others_wait_for_is_drawn_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = slowly(monkeypatch, 0.3)
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    found = at_once(*[lambda: drawn.facts_of(named, lambda: pdf().bytes)] * 6)
    assert {each.pages for each in found} == {(PAGE,)} and slow.begun == 1


def test_what_fails_again_and_again_is_tried_less_and_less(monkeypatch: pytest.MonkeyPatch) -> None:
    slow, past = slowly(monkeypatch, 0, pages=0), [0.0]
    monkeypatch.setattr(drawn, "monotonic", lambda: monotonic() + past[0])
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    tried: list[float] = []
    while len(tried) < 5:
        begun = slow.begun
        assert drawn.facts_of(named, lambda: pdf().bytes).problem
        if slow.begun > begun:
            tried.append(past[0])
        past[0] += 30
    waited = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert waited == [60, 600, 3600, 3600]


def test_a_yes_waits_for_all_of_it_so_long_and_no_longer_and_goes_on_the_next_time(
    ten: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = slowly(monkeypatch, 0.1, pages=9)
    monkeypatch.setattr(drawn, "ACT_SECONDS", 1.0)
    ann = somebody("ann", "approver_finance")
    refused, until = 0, monotonic() + 60
    while monotonic() < until:
        began = monotonic()
        try:
            say(ten, ann)
            break
        except Busy:
            refused += 1
            assert monotonic() - began < 2 and Approval.objects.get(pk=ten.pk).state == "open"
    assert refused >= 2 and Approval.objects.get(pk=ten.pk).state == "approved"
    assert slow.begun == 30, "each page once"


def test_a_yes_waits_for_none_that_is_not_drawn(ten: Approval, monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch, 0.5, pages=0)
    monkeypatch.setattr(drawn, "ACT_SECONDS", 0.1)
    ann = somebody("ann", "approver_finance")
    with pytest.raises(Busy):
        say(ten, ann)
    settled()
    with pytest.raises(Exception, match="more than 20 seconds"):
        say(ten, ann)
    assert Approval.objects.get(pk=ten.pk).state == "open"


def test_more_than_so_many_are_not_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    slowly(monkeypatch, 0.5)
    papers = [pdf(words=str(n)) for n in range(drawn.MOST_UNDER_WAY + 1)]
    named = [Named("a.pdf", "application/pdf", len(each.bytes), each.digest) for each in papers]
    for one, paper in zip(named[:-1], papers, strict=False):
        with pytest.raises(Busy):
            drawn.facts_of(one, lambda paper=paper: paper.bytes, monotonic())
    began = monotonic()
    with pytest.raises(Busy):
        drawn.facts_of(named[-1], lambda: papers[-1].bytes)
    assert drawn.facts_within(9.0, [(named[-1], lambda: papers[-1].bytes)]) == [None] and monotonic() - began < 0.4
    settled()
    assert drawn.facts_of(named[-1], lambda: papers[-1].bytes).pages == (PAGE,)


def test_a_drawing_that_breaks_off_here_is_a_document_that_can_not_be_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("no more processes")

    monkeypatch.setattr(drawn, "_ask", broken)
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    assert drawn.facts_of(named, lambda: pdf().bytes).problem == "to draw it failed"
    assert "no more processes" in caplog.text and not drawn._under_way


def test_what_one_reads_is_shown_beside_what_is_being_drawn(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    slowly(monkeypatch, 1.5)
    approval = asked(stage, paying(tools, [text(), pdf()]))
    found = opened(approval)
    assert [(each.is_drawing, bool(each.parts)) for each in found.documents] == [(False, True), (True, False)]
    assert not found.is_unshown and found.not_shown == "invoice.pdf: it is being drawn"
    unshown = brief(approval.id, frozenset({"approver_finance"}), FIONA, is_shown_whole=False)
    assert unshown.documents == [] and not hasattr(unshown.approval, "contents")
    monkeypatch.setattr(drawn, "ACT_SECONDS", 0.1)
    ann = somebody("ann", "approver_finance")
    with pytest.raises(Busy):
        decide(approval.id, verdict="approve", plan_hash=approval.plan_hash, justification="yes",
               by=ann)  # fmt: skip
