"""Documents that take long to draw: nobody waits for them longer than a moment, they are drawn all the same, and no yes
goes out before."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Event
from time import monotonic
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.documents import drawn
from approvals.models import Approval
from durableagents import Document as Given
from ledger.errors import Busy
from runs.engine.gate.documents import Named
from tests.integration.approvals.setup import say, somebody
from tests.integration.approvals.test_documents import _nothing_drawn, asked, opened, paying, settled
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage
from tests.papers import pdf
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
__all__ = ["_nothing_drawn"]
PAGE = (1240, 1754)
NEVER = 60.0  # seconds that whoever waits in vain would wait, and a drawing that nobody lets go
SOON = NEVER / 2  # whoever doesn't wait has their answer by then, however busy the machine is


class Slow:
    """In the place of the process that draws: each drawing takes until the story lets it go, and shows so many pages,
    or fails by bad luck where there are none."""

    def __init__(self) -> None:
        self.pages, self.begun, self.go = 1, 0, Event()

    def __call__(self, named: Named, content: bytes, first: int) -> tuple[dict[str, Any], list[bytes]]:
        self.begun += 1
        if not self.go.wait(NEVER):
            self.go.set()  # whoever waited for this one need not wait for the others too
        if not self.pages:
            return {"problem": "to draw it takes more than 20 seconds", "luck": True}, []
        drawn_now = min(drawn.TOGETHER, self.pages - first + 1)
        return {"pages": [PAGE] * self.pages}, [b"a picture"] * drawn_now

    def finish(self) -> None:
        """All that is being drawn is done now; what is begun later is not."""
        self.go.set()
        settled()
        self.go.clear()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, _nothing_drawn: None) -> Iterator[Slow]:
    slow = Slow()
    monkeypatch.setattr(drawn, "_ask", slow)
    monkeypatch.setattr(drawn, "PAGE_SECONDS", 0.1)
    monkeypatch.setattr(drawn, "ACT_SECONDS", NEVER)
    monkeypatch.setattr(drawn, "WAITS_SECONDS", NEVER)
    yield slow
    slow.go.set()


@pytest.fixture
def ten(stage: Stage, tools: Toolbox) -> Approval:
    """A question with as many documents as there may be."""
    return asked(
        stage, paying(tools, [Given(f"{n}.pdf", "application/pdf", pdf(words=str(n)).bytes) for n in range(10)])
    )


def test_whoever_looks_or_says_no_waits_a_moment_however_much_there_is_to_draw(ten: Approval, slow: Slow) -> None:
    ann = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person))
    began = monotonic()
    page = ann.read("/inbox")
    assert "Being drawn:" in page and "You may reject it." in page
    assert monotonic() - began < SOON and 0 < len(drawn._under_way) <= drawn.AT_ONCE
    began = monotonic()
    answer = ann.post(f"/approvals/{ten.id}/decision", verdict="reject", plan_hash=ten.plan_hash, justification="no")
    assert answer.status_code == 302 and monotonic() - began < SOON
    assert Approval.objects.get(pk=ten.pk).state == "rejected"


def test_each_look_has_the_next_drawn_and_waits_for_none_twice(ten: Approval, slow: Slow) -> None:
    looks = []
    while (found := opened(ten)).not_shown and len(looks) < 10:
        looks.append([each.is_drawing for each in found.documents].count(True))
        slow.finish()
    assert looks == [10, 8, 6, 4, 2] and opened(ten).not_shown == ""
    page = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person)).get(f"/inbox/{ten.id}")
    assert page.content.count(b"<img loading=") == 10 and b"data-lapses" not in page.content


def test_a_yes_waits_for_all_of_it_so_long_and_no_longer_and_goes_on_the_next_time(
    ten: Approval, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.pages = 9
    ann = somebody("ann", "approver_finance")
    with monkeypatch.context() as patch:
        patch.setattr(drawn, "ACT_SECONDS", 0.1)
        for n in (1, 2):
            began = monotonic()
            with pytest.raises(Busy):
                say(ten, ann)
            assert monotonic() - began < SOON and Approval.objects.get(pk=ten.pk).state == "open"
            slow.finish()
            assert slow.begun == n
    slow.go.set()
    say(ten, ann)
    assert Approval.objects.get(pk=ten.pk).state == "approved" and slow.begun == 30, "each page once"


def test_a_yes_waits_for_none_that_is_not_drawn(ten: Approval, slow: Slow, monkeypatch: pytest.MonkeyPatch) -> None:
    slow.pages = 0
    monkeypatch.setattr(drawn, "ACT_SECONDS", 0.1)
    ann = somebody("ann", "approver_finance")
    with pytest.raises(Busy):
        say(ten, ann)
    slow.finish()
    with pytest.raises(Exception, match="more than 20 seconds"):
        say(ten, ann)
    assert Approval.objects.get(pk=ten.pk).state == "open"


def test_a_drawing_that_breaks_off_here_is_a_document_that_can_not_be_shown(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise OSError("no more processes")

    monkeypatch.setattr(drawn, "_ask", broken)
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    assert drawn.facts_of(named, lambda: pdf().bytes).problem == "to draw it failed"
    assert "no more processes" in caplog.text and not drawn._under_way
