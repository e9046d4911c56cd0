"""Deciding: what is bound is shown whole, whoever decided first wins, nothing typed is lost."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import uuid4

import pytest

from approvals.models import Approval, Decision
from durableagents.identity import own_tags
from runs import search
from runs.console.tables.looks import LOOKS
from runs.models import Run, Wait
from runs.queries.why import afterwards
from runs.services import lifecycle
from tests.integration.console.conftest import OLGA, SHOP, Reader, start, text_of
from tests.integration.console.stage import question, settled, working
from tests.integration.halts.halting import halt

pytestmark = pytest.mark.django_db(transaction=True)

HOSTILE = "</textarea><script>alert(1)</script>\u202e\u200bcod\u0435\nAPPROVED BY LEGAL" + "\n" * 500 + "end"


@pytest.fixture
def asked() -> Callable[..., Approval]:
    """An open question about a run of the agent."""

    def of(**given: object) -> Approval:
        run = start(**given)
        with working():
            settled(run, "waiting_human")
        return question(run)

    return of


def test_money_first_then_everything_that_is_bound(finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked(amount=84_000, extra={"deep": [{"x": None}], "none": {}})
    page = finance.read(f"/inbox/{approval.id}")
    for words in (
        "Buy it",
        "$84,000.00",
        "Spends money.",
        "extra.deep[0].x null",
        "extra.none {}",
        "item chairs",
        "Everything",
        "Quote",
        "from supplier",
        "price 84000",
        "It is needed.",
        "Asked for by key:shop",
        "If approved",
        "If rejected",
        "revision 1",
    ):
        assert words in page, words
    shown = re.search(r'class="hash">([^<]+)<', finance.get(f"/inbox/{approval.id}").content.decode())
    assert shown is not None and shown.group(1).replace(" ", "") == approval.plan_hash.replace(" ", "")


def test_hostile_words_are_inert_and_what_they_hide_is_seen(finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked(item=HOSTILE, why=HOSTILE)
    for path in (
        f"/inbox/{approval.id}",
        "/inbox",
        "/",
        f"/runs/{approval.run_id}",
        f"/runs/{approval.run_id}?tab=journal",
        "/runs",
    ):
        page = finance.get(path).content.decode()
        assert "<script>alert" not in page and "\u202e" not in page and "\u200b" not in page, path
    page = finance.read(f"/inbox/{approval.id}")
    assert "U+202E" in page and "U+200B" in page and "U+0435" in page and "line break × 500" in page


def test_a_decision_is_taken_and_told(finance: Reader, asked: Callable[..., Approval]) -> None:
    approval = asked()
    answer = finance.client.post(
        f"/approvals/{approval.id}/decision",
        {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "Fine by me."},
        follow=True,
    )
    page = text_of(answer)
    assert (
        "Approved. The run goes on." in page
        and "Approved by user:approver_finance as Finance approver" in page
        and "“Fine by me.”" in page
    )
    assert "Fine by me." in finance.read("/audit") and "Fine by me." in finance.read(
        f"/runs/{approval.run_id}", tab="decisions"
    )
    assert Decision.objects.get().role == "approver_finance"


STANDS: dict[str, tuple[Callable[[Run], object], str]] = {
    "paused": (
        lambda run: lifecycle.pause(run.pk, by=OLGA, justification="let me see"),
        "The run is paused: it goes on once somebody resumes it.",
    ),
    "halted": (lambda run: halt("agent", "buyer"), "The run stands still under a halt: it goes on once that lets it."),
    "only new ones": (lambda run: halt("agent", "buyer", kind="starts"), "The run goes on."),
    "stopped": (
        lambda run: Wait.objects.create(
            id=uuid4(), run=run, kind="operator", slot="stop", opened_at=run.created_at, deadline=run.created_at
        ),
        "The run is stopped: it goes on once an operator has looked at it.",
    ),
}


@pytest.mark.parametrize("how", STANDS)
def test_a_yes_says_that_the_run_goes_on_only_where_it_does(
    finance: Reader, asked: Callable[..., Approval], how: str
) -> None:
    approval = asked()
    act, words = STANDS[how]
    act(approval.run)
    answer = finance.client.post(
        f"/approvals/{approval.id}/decision",
        {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "Fine by me."},
        follow=True,
    )
    page = text_of(answer)
    assert f"Approved. {words}" in page and ("The run goes on." in page) is (how == "only new ones")


def test_what_is_said_of_a_run_that_stands_still_is_of_looks_that_there_are() -> None:
    assert afterwards._STANDS.keys() <= LOOKS.keys()


def test_the_second_decision_learns_who_was_first_and_keeps_its_text(
    finance: Reader, reader: Callable[..., Reader], asked: Callable[..., Approval]
) -> None:
    approval = asked()
    form = {"verdict": "reject", "plan_hash": approval.plan_hash}
    finance.post(f"/approvals/{approval.id}/decision", **form, justification="No.")
    answer = reader("approver_finance", name="frank").post(
        f"/approvals/{approval.id}/decision", **form, justification="My careful reasons."
    )
    page = text_of(answer)
    assert (
        answer.status_code == 409 and "rejected by user:approver_finance at" in page and "My careful reasons." in page
    )
    assert Decision.objects.count() == 1


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ({"plan_hash": "sha256:0"}, 409, "another plan"),
        ({"justification": " "}, 422, "needs a justification"),
        ({"verdict": "maybe"}, 422, "Choose approve or reject"),
        ({"justification": "why\x00not"}, 422, "holds a NUL character"),
        ({"amount": "9"}, 422, "it does not have"),
        ({"justification": "x" * 4001}, 422, "too long: 4001 characters"),
        ({"plan_hash": "x" * 201}, 422, "see plan_hash"),
        ({"justification": "x" * 2_000_000}, 413, "larger than 1048576 bytes"),
    ],
)
def test_what_does_not_hold_is_refused_at_the_form(
    finance: Reader, asked: Callable[..., Approval], change: dict[str, str], status: int, words: str
) -> None:
    approval = asked()
    form = {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "Kept words."} | change
    answer = finance.post(f"/approvals/{approval.id}/decision", **form)
    assert answer.status_code == status and words in text_of(answer)
    assert form["justification"].strip().replace("\x00", "\ufffd") in answer.content.decode()
    assert Approval.objects.get().state == "open"


def test_another_queues_approver_is_refused(reader: Callable[..., Reader], asked: Callable[..., Approval]) -> None:
    approval = asked()
    legal = reader("approver_legal")
    answer = legal.post(
        f"/approvals/{approval.id}/decision", verdict="approve", plan_hash=approval.plan_hash, justification="Why not."
    )
    assert answer.status_code == 403 and "Only approver_finance decides" in text_of(answer)
    assert Approval.objects.get().state == "open"


@pytest.mark.parametrize(
    "wrong",
    [
        {},
        {"verdict": "maybe"},
        {"verdict": "approve", "amount": "9"},
        {"verdict": "approve", "plan_hash": "x" * 201},
        {"verdict": "approve", "justification": "a\x00"},
        {"justification": "x" * 2_000_000},
    ],
    ids=["empty", "no verdict", "a stray field", "no hash", "NUL", "too large"],
)
def test_who_may_not_decide_is_told_so_and_nothing_of_the_form(
    reader: Callable[..., Reader], asked: Callable[..., Approval], wrong: dict[str, str]
) -> None:
    approval = asked()
    shop = reader("approver_finance", name="shop")  # the name under which the run was started
    for who, words in ((reader("approver_legal"), "Only approver_finance decides"), (shop, "You started this run")):
        answer = who.client.post(f"/approvals/{approval.id}/decision", wrong)
        said = text_of(answer)
        assert answer.status_code == 403 and words in said
        assert not any(word in said for word in ("Choose approve", "plan_hash", "no field of this", "NUL", "larger"))
    assert Approval.objects.get().state == "open"


@pytest.mark.parametrize("role", ["operator", "auditor", "approver_legal"])
def test_other_roles_read_along(reader: Callable[..., Reader], asked: Callable[..., Approval], role: str) -> None:
    approval = asked()
    page = reader(role).get(f"/inbox/{approval.id}")
    assert b'id="decide"' not in page.content and "you read along" in text_of(page)
    is_read = role != "approver_legal"  # who isn't asked and has no right for it is told so
    assert ("$5.00" in text_of(page)) is is_read
    assert ("What exactly is asked is not shown to you" in text_of(page)) is not is_read


def test_an_integrator_reads_along_with_what_is_theirs_alone(
    reader: Callable[..., Reader], asked: Callable[..., Approval]
) -> None:
    approval, somebody = asked(), reader("integrator")
    assert somebody.get(f"/inbox/{approval.id}").status_code == 404
    assert str(approval.id) not in somebody.get("/inbox").content.decode()
    above = lifecycle.start("buyer", {"item": "chairs"}, by=SHOP, tags=["acme"])
    Run.objects.filter(pk=approval.run_id).update(parent=above.pk, parent_slot="0.1/1", depth=1)
    own_tags.give(somebody.user, "acme", justification="Theirs.")
    assert "you read along" in somebody.read(f"/inbox/{approval.id}") and "$5.00" in somebody.read("/inbox")


def test_whoever_asked_has_no_button(reader: Callable[..., Reader], asked: Callable[..., Approval]) -> None:
    page = reader("approver_finance", name="shop").get(f"/inbox/{asked().id}")
    assert b'id="decide"' not in page.content and "You started this run: somebody else has to decide this" in text_of(
        page
    )


def test_a_revision_stands_beside_the_one_before_and_why_that_was_rejected(finance: Reader) -> None:
    run: Run = start(amount=100)
    with working():
        settled(run, "waiting_human")
        first = question(run)
        finance.post(
            f"/approvals/{first.id}/decision",
            verdict="reject",
            plan_hash=first.plan_hash,
            justification="Half of it will do.",
        )
        second = question(run, revision=2)
    answer = finance.get(f"/inbox/{second.id}")
    page = text_of(answer)
    assert "against revision 1" in page and "Revision 1 was rejected" in page and "“Half of it will do.”" in page
    assert "<del>100</del> <ins>50</ins>" in answer.content.decode() and "chairs unchanged" in page
    assert "rejected: Half of it will do." in finance.read(f"/runs/{run.id}")


def test_the_list_is_by_deadline_and_counted(finance: Reader, asked: Callable[..., Approval]) -> None:
    later, sooner = asked(item="later"), asked(item="sooner")
    Approval.objects.filter(pk=sooner.pk).update(deadline=later.opened_at)
    page = finance.get("/inbox").content.decode()
    assert page.index(f"item-{sooner.id}") < page.index(f"item-{later.id}")
    assert "2 waiting for you" in text_of(finance.get("/"))


def test_a_search_that_was_cut_off_is_counted_so(
    finance: Reader, asked: Callable[..., Approval], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(item="chairs")
    asked(item="chairs")
    assert "2 , by deadline" in finance.read("/inbox", q="chairs")
    monkeypatch.setattr(search, "MOST", 2)
    assert "2+ , by deadline" in finance.read("/inbox", q="chairs")
