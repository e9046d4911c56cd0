"""Documents in a case on the real database: stored once, shown from the bytes that the plan names, and nobody says yes
to what can't be shown."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from PIL import Image

from approvals.brief import Brief, brief
from approvals.documents import drawn
from approvals.documents.checking import NotShown
from approvals.models import Approval, Decision, Document
from durableagents import Context, End, Rejected
from durableagents import Document as Given
from durableagents.grants import APPEND_ONLY, FROZEN
from ledger import events as e
from ledger.verification.runs import verify
from runs.engine.agents import Agent
from runs.engine.gate.documents import Named, named_in
from tests.integration.approvals.setup import say, somebody, sound
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage, at_once, events
from tests.papers import broken_pdf, jpeg, pdf, pdf_bytes, png, text
from tests.world import FIONA, Item, Notes, Outside, Toolbox, agent_of

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _nothing_drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing is known, and there is time for it: a busy machine is another story."""
    drawn.kept.forget()
    monkeypatch.setattr(drawn, "PAGE_SECONDS", 30.0)
    yield
    settled()
    drawn.kept.forget()


def settled() -> None:
    """Until nothing is being drawn any more."""
    while under_way := list(drawn._under_way.values()):
        assert all(each.by(monotonic() + 60) for each in under_way)


def paying(tools: Toolbox, *revisions: Sequence[Given], **more: Any) -> Agent:
    """An agent that pays once finance has seen these documents; rejected, it comes again with the next ones."""
    assert tools.pay.gate is not None
    pay = replace(tools.pay, gate=replace(tools.pay.gate, **more))

    async def node(state: Notes, ctx: Context) -> Any:
        given = revisions[min(len(state.seen), len(revisions) - 1)] if revisions else ()
        try:
            return End((await ctx.call(pay, Item(name="po", amount=5000), documents=given)).amount)
        except Rejected as no:
            state.seen.append(no.reason)
            return "node"

    return agent_of(node, tools=[pay])


def asked(stage: Stage, agent: Agent) -> Approval:
    stage.start(agent)
    assert stage.drive() == "parked"
    return Approval.objects.get(state="open")


def revised(stage: Stage, approval: Approval) -> Approval:
    """The next revision, after a no to this one."""
    stage.decide(approval.run, "reject", why="not so")
    assert stage.drive() == "parked"
    return Approval.objects.get(run=approval.run, state="open")


def opened(approval: Approval) -> Brief:
    return brief(approval.id, frozenset({"approver_finance"}), FIONA)


def past_the_triggers(statement: str, *values: Any) -> None:
    """What nobody with the application's rights can do, nor an owner by mistake."""
    checks = (
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass"
    )
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(checks, ["approvals_document"])
        dropped = cursor.fetchall()
        for name, _ in dropped:
            cursor.execute(f"ALTER TABLE approvals_document DROP CONSTRAINT {name}")
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute(statement, values)
        for name, condition in dropped:
            bare = condition.removesuffix(" NOT VALID")
            cursor.execute(f"ALTER TABLE approvals_document ADD CONSTRAINT {name} {bare} NOT VALID")


def damage(digest: str, content: bytes | None) -> None:
    """Other bytes under a digest, or none."""
    if content is None:
        past_the_triggers("DELETE FROM approvals_document WHERE digest = %s", digest)
    else:
        past_the_triggers("UPDATE approvals_document SET content = %s WHERE digest = %s", content, digest)


# --- stored, once, with the question ----------------------------------------------------------------------------------


def test_what_is_shown_is_stored_with_its_question_and_its_digest_is_in_the_plan(stage: Stage, tools: Toolbox) -> None:
    given = [text(), pdf(), png()]
    approval = asked(stage, paying(tools, given))
    plan = json.loads(bytes(approval.plan))
    assert plan["documents"] == approval.documents == [each.as_json() for each in given]
    (event,) = events(approval.run, e.ApprovalRequested)
    assert event.payload == plan, "so a decision that names the plan's hash names these digests"
    stored = {row.digest: bytes(row.content) for row in Document.objects.all()}
    assert stored == {each.digest: each.bytes for each in given}
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in stored.items())
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "completed"
    assert Decision.objects.get().plan_hash == approval.plan_hash
    sound(approval.run)


def test_bytes_are_stored_once_whoever_shows_them(stage: Stage, tools: Toolbox) -> None:
    given = [text(), text(name="the same again.txt")]
    for _ in range(2):
        stage.start(paying(tools, given))
        assert stage.drive() == "parked"
    assert Document.objects.count() == 1 and Approval.objects.filter(state="open").count() == 2


@pytest.mark.django_db(transaction=True)
def test_two_that_store_the_same_at_once_both_ask(stage: Stage, tools: Toolbox) -> None:
    given = [text(f"page {n}\n", f"{n}.txt") for n in range(9)]
    claims = []
    for documents in (given, given[::-1], given):
        stage.start(paying(tools, documents))
        claims += stage.claim()
    for claimed in claims:
        assert stage.drive_claimed(claimed) == "parked"
    assert Document.objects.count() == 9 and Approval.objects.filter(state="open").count() == 3


def test_nobody_puts_other_bytes_under_a_digest_nor_takes_any_away(stage: Stage, tools: Toolbox) -> None:
    """Whoever may write here as the application does: to be first with a digest is of no use."""
    digest = text().digest
    forged = "INSERT INTO approvals_document (digest, size, content, stored_at) VALUES (%s, 6, 'forged', now())"
    with pytest.raises(DatabaseError, match="approvals_document_is_its_digest"), transaction.atomic():
        connection.cursor().execute(forged, [digest])
    approval = asked(stage, paying(tools, [text()]))
    for act in (
        "UPDATE approvals_document SET content = 'x'",
        "DELETE FROM approvals_document",
        "TRUNCATE approvals_document",
        "UPDATE approvals_approval SET documents = '[]'",
    ):
        with pytest.raises(DatabaseError, match=r"append-only|Cannot update"), transaction.atomic():
            connection.cursor().execute(act)
    assert opened(approval).documents[0].problem == ""


def test_the_applications_role_may_only_add() -> None:
    assert "approvals_document" in APPEND_ONLY and "approvals_document" not in FROZEN


# --- shown ------------------------------------------------------------------------------------------------------------


def test_a_text_is_marked_word_by_word_against_the_revision_before(stage: Stage, tools: Toolbox) -> None:
    first = [text("The sum of 100 USD\nis due.\n"), text("stays\n", "terms.txt"), text("goes\n", "old.txt")]
    second = [text("The sum of 900 USD\nis due at once.\n"), text("stays\n", "terms.txt"), text("comes\n", "new.txt")]
    approval = asked(stage, paying(tools, first, second))
    assert [(x.against, x.is_compared) for x in opened(approval).documents] == [("", False)] * 3
    contract, terms, new, gone = opened(revised(stage, approval)).documents
    assert [(x.what, x.text) for x in contract.parts] == [
        ("same", "The sum of "),
        ("removed", "100"),
        ("added", "900"),
        ("same", " USD\nis "),
        ("removed", "due."),
        ("added", "due at once."),
        ("same", "\n"),
    ]
    assert contract.words == {"added": 4, "removed": 2}
    assert (terms.against, terms.is_compared) == ("the same as in revision 1", False)
    assert new.against.startswith("new: revision 1") and gone.n == 0 and "no more" in gone.against


def test_the_page_says_it_in_words_and_draws_nothing_that_hides(stage: Stage, tools: Toolbox) -> None:
    first, second = [text("Pay 100 to Acme.")], [text("Pay 100 to \u202eemcA\u202c.\n<script>alert(1)</script>")]
    approval = asked(stage, paying(tools, first, second))
    ann = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person))
    assert "What is signed or paid · 1 document" in ann.read(f"/inbox/{approval.id}")
    page = ann.read(f"/inbox/{revised(stage, approval).id}")
    assert "another than in revision 1" in page and "[removed] Acme." in page and "[added] U+202E emcA" in page
    assert "<script>alert(1)" in page, "as words"
    raw = ann.get(f"/inbox/{Approval.objects.get(state='open').id}").content.decode()
    assert "<script>alert(1)" not in raw and text().digest not in raw and second[0].digest in raw


def test_pictures_and_pdfs_are_pages_with_their_size_and_words(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [pdf(3), png(), jpeg()]))
    invoice, receipt, photo = opened(approval).documents
    assert [(p.n, p.width, p.height) for p in invoice.pages] == [(n, 1240, 1754) for n in (1, 2, 3)]
    assert [(p.width, p.height) for p in (*receipt.pages, *photo.pages)] == [(400, 300)] * 2
    ann = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person))
    raw = ann.get(f"/inbox/{approval.id}").content.decode()
    assert raw.count("<img loading=") == 5 and 'width="1240" height="1754"' in raw
    assert "Page 2 of 3 of invoice.pdf, as a picture" in raw


def test_a_large_plan_is_drawn_as_large_as_there_is_room(stage: Stage, tools: Toolbox) -> None:
    (plan,) = opened(asked(stage, paying(tools, [sheet(3370, 2384)]))).documents
    ((_, width, height),) = [(p.n, p.width, p.height) for p in plan.pages]
    assert 2000 < width < 2100 and width * height <= 3_010_000


def test_a_revision_of_a_pdf_is_told_by_its_digest(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [pdf(1)], [pdf(1)], [pdf(2)], [text(name="invoice.pdf")], [pdf(2)]))
    told = []
    for _ in range(4):
        approval = revised(stage, approval)
        told.append(opened(approval).documents[0].against)
    same, other = "the same as in revision {}", "another than in revision {}"
    assert told == [same.format(1), other.format(2), other.format(3), other.format(4)]


# --- what can't be shown ----------------------------------------------------------------------------------------------

UNSHOWN: dict[str, tuple[Any, str]] = {
    "broken": (broken_pdf, "it can't be opened"),
    "too long": (lambda: pdf(41), "it has 41 pages, and 40 can be shown"),
    "cut off": (lambda: replace_content(jpeg(), jpeg().bytes[:2000]), "it can't be read"),
    "a bomb": (lambda: bomb(), "pixels"),
    "several": (lambda: animated(), "several pictures"),
    "no picture": (lambda: replace_content(png(), b"\x89PNG\r\n\x1a\nnothing"), "it can't be read (it is no PNG)"),
    "a strip": (lambda: png(size=(600, 60_000)), "too long to be read"),
    "a wall": (lambda: sheet(14_000, 14_000), "too large to be read"),
}


def replace_content(given: Given, content: bytes) -> Given:
    return Given(given.name, given.media_type, content)


def sheet(width: int, height: int) -> Given:
    """A PDF of one page of so many points."""
    return Given("plan.pdf", "application/pdf", pdf_bytes(1, "Plan", (int(width / 72 * 10), int(height / 72 * 10)), 10))


def bomb() -> Given:
    """Some hundred kilobytes that unpack to four hundred megapixels."""
    file = io.BytesIO()
    Image.new("L", (20_000, 20_000)).save(file, "PNG")
    return Given("bomb.png", "image/png", file.getvalue())


def animated() -> Given:
    """A picture that shows something else a second later."""
    file = io.BytesIO()
    Image.new("RGB", (40, 40), "white").save(
        file, "PNG", save_all=True, append_images=[Image.new("RGB", (40, 40), "black")]
    )
    return Given("moving.png", "image/png", file.getvalue())


@pytest.mark.parametrize("which", UNSHOWN)
def test_what_can_not_be_shown_can_be_rejected_and_not_approved(
    stage: Stage, tools: Toolbox, outside: Outside, which: str
) -> None:
    make, problem = UNSHOWN[which]
    given = make()
    approval = asked(stage, paying(tools, [text(), given], [text()]))
    ann = somebody("ann", "approver_finance")
    with pytest.raises(NotShown) as refused:
        say(approval, ann)
    assert problem in refused.value.detail and given.name in refused.value.detail
    assert Decision.objects.count() == 0
    found = opened(approval)
    assert problem in found.not_shown and found.documents[0].problem == "" and not found.is_editable
    page = Reader(User.objects.get(pk=ann.person)).read(f"/inbox/{approval.id}")
    assert "A document can't be shown:" in page and given.digest in page
    assert "so nobody can approve this. You may reject it." in page
    say(approval, ann, "reject")
    assert stage.drive() == "parked" and outside.requests == []
    say(Approval.objects.get(state="open"), ann)
    assert stage.drive() == "completed"


@pytest.mark.parametrize("content", [None, b"Pay 900 USD to Mallory.\n", b"Pay 100 USD to Acme.\r\n", b""])
def test_a_row_that_is_not_its_digest_is_not_shown_nor_approved_and_is_named(
    stage: Stage, tools: Toolbox, content: bytes | None
) -> None:
    approval = asked(stage, paying(tools, [text()]))
    damage(text().digest, content)
    wrong = "not stored" if content is None else "not those that the plan names"
    found = opened(approval)
    assert wrong in found.documents[0].problem and found.documents[0].parts == ()
    with pytest.raises(NotShown, match=wrong):
        say(approval, somebody("ann", "approver_finance"))
    assert [
        each for each in verify(approval.run_id).problems if "document 1 ('contract.txt')" in each and wrong in each
    ]
    ann = Reader(User.objects.get(username="ann"))
    answer = ann.get(f"/approvals/{approval.id}/documents/1")
    assert answer.status_code == 409 and b"Mallory" not in answer.content
    assert "Mallory" not in ann.read(f"/inbox/{approval.id}")


def test_a_damaged_pdf_is_refused_at_the_yes_even_where_its_pages_are_at_hand(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [pdf()]))
    assert opened(approval).not_shown == ""
    damage(pdf().digest, pdf(words="Other").bytes)
    with pytest.raises(NotShown, match="not those that the plan names"):
        say(approval, somebody("ann", "approver_finance"))


def test_a_list_in_the_row_that_is_not_the_plans_is_named(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [text()]))
    past_the_triggers("UPDATE approvals_approval SET documents = '{\"a\": 1}'")
    assert "its bytes are not stored" in opened(approval).not_shown, "the row was asked for another"
    assert any("documents are not what the plan says" in each for each in verify(approval.run_id).problems)


def test_the_revision_before_may_be_gone(stage: Stage, tools: Toolbox) -> None:
    """Then nothing is marked, and that is said; this one is shown and can be decided."""
    approval = asked(stage, paying(tools, [text("one\n")], [text("two\n")]))
    approval = revised(stage, approval)
    damage(text("one\n").digest, b"forged")
    (contract,) = opened(approval).documents
    assert [(x.what, x.text) for x in contract.parts] == [("same", "two\n")] and "nothing is marked" in contract.against
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "completed"


def test_a_list_of_the_revision_before_that_can_not_be_read_keeps_nobody_from_deciding(
    stage: Stage, tools: Toolbox
) -> None:
    approval = revised(stage, asked(stage, paying(tools, [text("one\n")], [text("two\n"), pdf()])))
    past_the_triggers("UPDATE approvals_approval SET plan = %s WHERE revision = 1", b'{"documents": 7}')
    found = opened(approval)
    assert found.not_shown == "" and [each.problem for each in found.documents] == ["", ""]
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "completed"


def test_a_drawing_that_takes_too_long_is_tried_again_later(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = asked(stage, paying(tools, [pdf()]))
    with monkeypatch.context() as patched:
        patched.setattr(drawn, "MOST_SECONDS", 0.01)
        assert "takes more than 0.01 seconds" in opened(approval).not_shown
    assert "takes more than" in opened(approval).not_shown, "it is not begun anew for each look"
    monkeypatch.setattr(drawn, "monotonic", lambda: monotonic() + drawn.FORGET_SECONDS[0] + 1)
    assert opened(approval).not_shown == ""


def test_a_yes_needs_every_page(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pages are drawn to look at it; the last one may be what can't be."""
    approval = asked(stage, paying(tools, [pdf(6)]))
    assert opened(approval).not_shown == "" and drawn.kept.undrawn(named_in({"documents": approval.documents})[0], 6)
    ask = drawn._ask
    monkeypatch.setattr(
        drawn,
        "_ask",
        lambda named, content, first: (
            ({"problem": "its page 5 can't be drawn"}, []) if first > 4 else ask(named, content, first)
        ),
    )
    with pytest.raises(NotShown, match="page 5"):
        say(approval, somebody("ann", "approver_finance"))
    assert "page 5" in opened(approval).not_shown, "and now everybody who looks is told"


def test_who_wants_the_same_at_once_waits_for_a_place(stage: Stage) -> None:
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    found = at_once(*[lambda: drawn.problem_of(named, lambda: pdf().bytes)] * 6)
    assert found == [""] * 6, "no more than two are drawn at once"


def test_names_say_what_a_plan_names() -> None:
    assert [each.name for each in named_in({"documents": [text().as_json(), png().as_json()]})] == [
        "contract.txt",
        "receipt.png",
    ]
