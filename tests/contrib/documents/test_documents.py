"""Documents of a case: rendering, serving, gates that use them, and running out of time."""

from __future__ import annotations

import hashlib
import io
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from threading import Event
from time import monotonic
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from PIL import Image

from approvals.brief import ApprovalDetail, load_approval_detail
from approvals.cases.amending import amend
from approvals.guards import NotShown
from approvals.models import Approval, Decision, key_of
from approvals.services import decide
from durableagents import Context, End, Rejected
from durableagents import Document as Given
from durableagents import Stage as Further
from durableagents.contrib.documents import renderer, rendering
from durableagents.contrib.documents.models import Document
from durableagents.contrib.documents.panel import DocumentView
from durableagents.contrib.documents.storage import read_contents
from durableagents.identity import rights
from durableagents.identity.auth import issue_key
from ledger import events as e
from ledger.errors import Busy
from ledger.verification.runs import verify
from runs import features
from runs.engine.agents import Agent
from runs.engine.gating.documents import Named, named_in
from runs.models import Wait
from tests.integration.api.conftest import Api, is_problem
from tests.integration.approvals.setup import boss, say, somebody, sound
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage, at_once, events, now
from tests.papers import broken_pdf, jpeg, pdf, pdf_bytes, png, text
from tests.tampering import without_triggers
from tests.world import FIONA, Item, Notes, Outside, Toolbox, agent_of

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


@pytest.fixture(autouse=True)
def _nothing_drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    rendering.cache.forget()
    monkeypatch.setattr(rendering, "PAGE_SECONDS", 30.0)
    yield
    settled()
    rendering.cache.forget()


def settled() -> None:
    while under_way := list(rendering._in_progress.values()):
        assert all(each.by(monotonic() + 60) for each in under_way)


def paying(tools: Toolbox, *revisions: Sequence[Given], **more: Any) -> Agent:
    """Return an agent that pays once finance has seen these documents; each rejection brings the next revision."""
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
    stage.decide(approval.run, "reject", why="not so")
    assert stage.drive() == "parked"
    return Approval.objects.get(run=approval.run, state="open")


def opened(approval: Approval) -> ApprovalDetail:
    return load_approval_detail(approval.id, frozenset({"approver_finance"}), FIONA)


def views(approval: Approval) -> list[DocumentView]:
    (panel,) = opened(approval).panels_at["content"]
    return list(panel.value.views)


def past_the_triggers(statement: str, *values: Any) -> None:
    """Run SQL past triggers and constraints, as neither the application nor a careless owner could."""
    checks = (
        "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint WHERE contype = 'c' AND conrelid = %s::regclass"
    )
    with without_triggers() as cursor:
        cursor.execute(checks, ["approvals_document"])
        dropped = cursor.fetchall()
        for name, _ in dropped:
            cursor.execute(f"ALTER TABLE approvals_document DROP CONSTRAINT {name}")
        cursor.execute(statement, values)
        for name, condition in dropped:
            bare = condition.removesuffix(" NOT VALID")
            cursor.execute(f"ALTER TABLE approvals_document ADD CONSTRAINT {name} {bare} NOT VALID")


def damage(digest: str, content: bytes | None) -> None:
    if content is None:
        past_the_triggers("DELETE FROM approvals_document WHERE digest = %s", key_of(digest))
    else:
        past_the_triggers("UPDATE approvals_document SET content = %s WHERE digest = %s", content, key_of(digest))


def test_what_is_shown_is_stored_with_its_question_and_its_digest_is_in_the_plan(stage: Stage, tools: Toolbox) -> None:
    given = [text(), pdf(), png()]
    approval = asked(stage, paying(tools, given))
    plan = json.loads(bytes(approval.plan))
    assert plan["documents"] == approval.documents == [each.as_json() for each in given]
    (event,) = events(approval.run, e.ApprovalRequested)
    assert event.payload == plan, "so a decision that names the plan's hash names these digests"
    stored = read_contents(named_in(plan))
    assert stored == {each.digest: each.bytes for each in given} and Document.objects.count() == len(given)
    assert all(hashlib.sha256(content).hexdigest() == digest for digest, content in stored.items())
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "completed"
    assert Decision.objects.get().plan_hash == approval.plan_hash
    sound(approval.run)


def test_bytes_are_stored_once_no_matter_who_shows_them(stage: Stage, tools: Toolbox) -> None:
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
    """Being first with a digest is of no use to anyone with the application's database rights."""
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
    assert views(approval)[0].problem == ""


def test_a_text_is_marked_word_by_word_against_the_revision_before(stage: Stage, tools: Toolbox) -> None:
    first = [text("The sum of 100 USD\nis due.\n"), text("stays\n", "terms.txt"), text("goes\n", "old.txt")]
    second = [text("The sum of 900 USD\nis due at once.\n"), text("stays\n", "terms.txt"), text("comes\n", "new.txt")]
    approval = asked(stage, paying(tools, first, second))
    assert [(x.against, x.is_compared) for x in views(approval)] == [("", False)] * 3
    contract, terms, new, gone = views(revised(stage, approval))
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
    assert new.against.startswith("new: revision 1") and gone.n == 0 and "this one does not" in gone.against


def test_the_page_says_it_in_words_and_draws_nothing_that_hides(stage: Stage, tools: Toolbox) -> None:
    first, second = [text("Pay 100 to Acme.")], [text("Pay 100 to \u202eemcA\u202c.\n<script>alert(1)</script>")]
    approval = asked(stage, paying(tools, first, second))
    ann = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person))
    assert "Documents · 1" in ann.read(f"/inbox/{approval.id}")
    page = ann.read(f"/inbox/{revised(stage, approval).id}")
    assert "not the same as in revision 1" in page and "[removed] Acme." in page and "[added] U+202E emcA" in page
    assert "<script>alert(1)" in page, "as words"
    raw = ann.get(f"/inbox/{Approval.objects.get(state='open').id}").content.decode()
    assert "<script>alert(1)" not in raw and text().digest not in raw and second[0].digest in raw


def test_pictures_and_pdfs_are_pages_with_their_size_and_words(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [pdf(3), png(), jpeg()]))
    invoice, receipt, photo = views(approval)
    assert [(p.n, p.width, p.height) for p in invoice.pages] == [(n, 1240, 1754) for n in (1, 2, 3)]
    assert [(p.width, p.height) for p in (*receipt.pages, *photo.pages)] == [(400, 300)] * 2
    ann = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person))
    raw = ann.get(f"/inbox/{approval.id}").content.decode()
    assert raw.count("<img loading=") == 5 and 'width="1240" height="1754"' in raw
    assert "Page 2 of 3 of invoice.pdf, as a picture" in raw


def test_a_large_plan_is_drawn_as_large_as_there_is_room(stage: Stage, tools: Toolbox) -> None:
    (plan,) = views(asked(stage, paying(tools, [sheet(3370, 2384)])))
    ((_, width, height),) = [(p.n, p.width, p.height) for p in plan.pages]
    assert 2000 < width < 2100 and width * height <= 3_010_000


def test_a_revision_of_a_pdf_is_told_by_its_digest(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [pdf(1)], [pdf(1)], [pdf(2)], [text(name="invoice.pdf")], [pdf(2)]))
    items = []
    for _ in range(4):
        approval = revised(stage, approval)
        items.append(views(approval)[0].against)
    same, other = "the same as in revision {}", "not the same as in revision {}"
    assert items == [same.format(1), other.format(2), other.format(3), other.format(4)]


UNSHOWN: dict[str, tuple[Any, str]] = {
    "broken": (broken_pdf, "it can't be opened"),
    "too long": (lambda: pdf(41), "it has 41 pages; at most 40 can be shown"),
    "cut off": (lambda: replace_content(jpeg(), jpeg().bytes[:2000]), "it can't be read"),
    "a bomb": (lambda: bomb(), "pixels"),
    "several": (lambda: animated(), "several pictures"),
    "no picture": (lambda: replace_content(png(), b"\x89PNG\r\n\x1a\nnothing"), "it can't be read (it is not a PNG)"),
    "a strip": (lambda: png(size=(600, 60_000)), "too long to be legible"),
    "a wall": (lambda: sheet(14_000, 14_000), "too large to be legible"),
}


def replace_content(given: Given, content: bytes) -> Given:
    return Given(given.name, given.media_type, content)


def sheet(width: int, height: int) -> Given:
    return Given("plan.pdf", "application/pdf", pdf_bytes(1, "Plan", (int(width / 72 * 10), int(height / 72 * 10)), 10))


def bomb() -> Given:
    """A few hundred kilobytes that unpack to four hundred megapixels."""
    file = io.BytesIO()
    Image.new("L", (20_000, 20_000)).save(file, "PNG")
    return Given("bomb.png", "image/png", file.getvalue())


def animated() -> Given:
    """A picture that changes after a second."""
    file = io.BytesIO()
    Image.new("RGB", (40, 40), "white").save(
        file, "PNG", save_all=True, append_images=[Image.new("RGB", (40, 40), "black")]
    )
    return Given("moving.png", "image/png", file.getvalue())


@pytest.mark.parametrize("which", UNSHOWN)
def test_what_is_not_shown_can_only_be_rejected(stage: Stage, tools: Toolbox, outside: Outside, which: str) -> None:
    make, problem = UNSHOWN[which]
    given = make()
    approval = asked(stage, paying(tools, [text(), given], [text()]))
    ann = somebody("ann", "approver_finance")
    with pytest.raises(NotShown) as refused:
        say(approval, ann)
    assert problem in refused.value.detail and given.name in refused.value.detail
    assert Decision.objects.count() == 0
    found = opened(approval)
    assert (
        problem in found.obstacle
        and found.panels_at["content"][0].value.views[0].problem == ""
        and not found.is_editable
    )
    page = Reader(User.objects.get(pk=ann.person)).read(f"/inbox/{approval.id}")
    assert "A document can't be shown:" in page and given.digest in page
    assert "You can reject it." in page
    say(approval, ann, "reject")
    assert stage.drive() == "parked" and outside.requests == []
    say(Approval.objects.get(state="open"), ann)
    assert stage.drive() == "completed"


@pytest.mark.parametrize("content", [None, b"Pay 900 USD to Mallory.\n", b"Pay 100 USD to Acme.\r\n", b""])
def test_a_row_unlike_its_digest_is_named_and_not_shown(stage: Stage, tools: Toolbox, content: bytes | None) -> None:
    approval = asked(stage, paying(tools, [text()]))
    damage(text().digest, content)
    wrong = "not stored" if content is None else "do not match the plan"
    found = opened(approval)
    assert (
        wrong in found.panels_at["content"][0].value.views[0].problem
        and found.panels_at["content"][0].value.views[0].parts == ()
    )
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
    assert opened(approval).obstacle == ""
    damage(pdf().digest, pdf(words="Other").bytes)
    with pytest.raises(NotShown, match="do not match the plan"):
        say(approval, somebody("ann", "approver_finance"))


def test_a_list_in_the_row_that_is_not_the_plans_is_named(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [text()]))
    past_the_triggers("UPDATE approvals_approval SET documents = '{\"a\": 1}'")
    assert opened(approval).obstacle == "", "the plan names what is shown"
    assert any("documents differ from the plan" in each for each in verify(approval.run_id).problems)


def test_the_revision_before_may_be_gone(stage: Stage, tools: Toolbox) -> None:
    """Nothing is marked, and the page says so; this revision is shown and can be decided."""
    approval = asked(stage, paying(tools, [text("one\n")], [text("two\n")]))
    approval = revised(stage, approval)
    damage(text("one\n").digest, b"forged")
    (contract,) = views(approval)
    assert [(x.what, x.text) for x in contract.parts] == [
        ("same", "two\n")
    ] and "no differences are marked" in contract.against
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "completed"


def test_an_unreadable_list_of_the_revision_before_stops_nobody(stage: Stage, tools: Toolbox) -> None:
    approval = revised(stage, asked(stage, paying(tools, [text("one\n")], [text("two\n"), pdf()])))
    past_the_triggers("UPDATE approvals_approval SET plan = %s WHERE revision = 1", b'{"documents": 7}')
    found = opened(approval)
    assert found.obstacle == "" and [each.problem for each in found.panels_at["content"][0].value.views] == ["", ""]
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "completed"


def test_a_slow_drawing_is_tried_again_later(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    approval = asked(stage, paying(tools, [pdf()]))
    with monkeypatch.context() as patched:
        patched.setattr(rendering, "MAX_SECONDS", 0.01)
        assert "takes more than 0.01 seconds" in opened(approval).obstacle
    assert "takes more than" in opened(approval).obstacle, "it is not begun again for each look"
    monkeypatch.setattr(rendering, "monotonic", lambda: monotonic() + rendering.RETRY_SECONDS[0] + 1)
    assert opened(approval).obstacle == ""


def test_a_yes_needs_every_page(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first pages are rendered before the decision; the last one may be the one that can't be."""
    approval = asked(stage, paying(tools, [pdf(6)]))
    assert opened(approval).obstacle == "" and rendering.cache.missing_pages(
        named_in({"documents": approval.documents})[0], 6
    )
    ask = rendering._run_renderer
    monkeypatch.setattr(
        rendering,
        "_run_renderer",
        lambda named, content, first: (
            ({"problem": "its page 5 can't be drawn"}, []) if first > 4 else ask(named, content, first)
        ),
    )
    with pytest.raises(NotShown, match="page 5"):
        say(approval, somebody("ann", "approver_finance"))
    assert "page 5" in opened(approval).obstacle, "and now everybody who looks is told"


def test_who_wants_the_same_at_once_waits_for_a_place(stage: Stage) -> None:
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    found = at_once(*[lambda: rendering.problem_of(named, lambda: pdf().bytes)] * 6)
    assert found == [""] * 6, "no more than two are drawn at once"


def test_each_stage_is_shown_the_same(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [text()], then=[Further("legal")]))
    first = approval.documents
    say(approval, somebody("ann", "approver_finance"))
    assert stage.drive() == "parked"
    second = Approval.objects.get(state="open")
    assert second.queue == "legal" and second.documents == first == json.loads(bytes(second.plan))["documents"]
    lee = replace(somebody("lee", "approver_legal"), role="approver_legal")
    damage(text().digest, b"other")
    with pytest.raises(NotShown):
        decide(second.id, verdict="approve", plan_hash=second.plan_hash, justification="as read", by=lee)
    damage(text().digest, text().bytes)
    decide(second.id, verdict="approve", plan_hash=second.plan_hash, justification="as read", by=lee)
    assert stage.drive() == "completed"
    sound(approval.run)


def test_a_change_keeps_documents_unless_one_is_damaged(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    made: list[int] = []

    def documents(args: Item) -> list[Given]:
        made.append(args.amount)
        return [text(f"Pay {args.amount} USD.\n")]

    approval = asked(stage, paying(tools, editable=["amount"], documents=documents))
    ann = replace(somebody("ann", "approver_finance"), role="approver_finance")
    given = {"plan_hash": approval.plan_hash, "arguments": {"amount": 4000}, "justification": "less", "by": ann}
    digest = approval.documents[0]["sha256"]
    damage(digest, b"other")
    with pytest.raises(NotShown):
        amend(approval.id, **given)
    damage(digest, b"Pay 5000 USD.\n")
    following = amend(approval.id, **given).approval
    assert following.state == "approved" and following.documents == approval.documents
    assert stage.drive() == "completed" and [json.loads(x.body)["amount"] for x in outside.requests] == [4000]
    assert set(made) == {5000}, "what they were shown is of what was asked for"
    sound(approval.run)


def test_a_yes_that_lapsed_is_asked_for_again_with_the_same_documents(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [text()]))
    say(approval, somebody("ann", "approver_finance"))
    Wait.objects.filter(kind="approval").update(grant_expires_at=now() - timedelta(seconds=1))
    assert stage.drive() == "parked"
    again = Approval.objects.get(state="open")
    assert again.id != approval.id and again.documents == approval.documents
    assert views(again)[0].problem == ""


def test_a_grant_carries_what_was_shown(stage: Stage, tools: Toolbox, outside: Outside) -> None:
    """`ctx.approve` for a later call: the documents of the grant are shown with the next question."""

    async def node(state: Notes, ctx: Context) -> End:
        body = Item(name="po", amount=5000)
        grant = await ctx.approve("finance_po", title="Pay", tool=tools.pay, body=body, documents=[text(), pdf()])
        return End((await ctx.call(tools.pay, body, grant=grant)).ref)

    approval = asked(stage, agent_of(node, tools=tools.all()))
    say(approval, somebody("ann", "approver_finance"))
    Wait.objects.filter(kind="approval").update(grant_expires_at=now() - timedelta(seconds=1))
    assert stage.drive() == "parked"
    again = Approval.objects.get(state="open")
    assert again.documents == approval.documents and outside.requests == []
    say(again, somebody("bob", "approver_finance"))
    assert stage.drive() == "completed"


def reader_of(name: str, *roles: str) -> Reader:
    return Reader(User.objects.get(pk=somebody(name, *roles).person))


def api_of(name: str, *roles: str) -> Api:
    return Api(issue_key(User.objects.get(pk=somebody(name, *roles).person), "test"))


def addresses(approval: Any) -> list[str]:
    below = f"approvals/{approval}/documents/1"
    return [f"/{below}", f"/{below}/pages/1", f"/api/v1/{below}", f"/api/v1/{below}/pages", f"/api/v1/{below}/pages/1"]


def pixels(answer: Any) -> Image.Image:
    return Image.open(io.BytesIO(answer.content))


def test_the_original_comes_as_a_file_that_runs_nothing(stage: Stage, tools: Toolbox) -> None:
    given = [text("<script>alert(1)</script>", "ünïcode “note”.txt"), pdf()]
    approval = asked(stage, paying(tools, given))
    ann, program = reader_of("ann", "approver_finance"), api_of("bob", "approver_finance")
    for n, one in enumerate(given, 1):
        for answer in (
            ann.get(f"/approvals/{approval.id}/documents/{n}"),
            program.get(f"approvals/{approval.id}/documents/{n}"),
        ):
            assert answer.status_code == 200 and answer.content == one.bytes
            assert answer["Content-Type"].startswith(one.media_type)
            assert answer["Content-Disposition"].startswith("attachment; filename")
            assert answer["X-Content-Type-Options"] == "nosniff" and answer["Cache-Control"] == "no-store"
            assert answer["Content-Security-Policy"] == "default-src 'none'; frame-ancestors 'none'; sandbox"
            assert answer["Cross-Origin-Resource-Policy"] == "same-origin"


def test_a_page_is_a_picture_made_here_that_no_browser_keeps(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [pdf(6)]))
    ann = reader_of("ann", "approver_finance")
    path = f"/approvals/{approval.id}/documents/1/pages"
    for page in (6, 1, 5):
        answer = ann.get(f"{path}/{page}")
        assert (answer.status_code, answer["Content-Type"]) == (200, "image/png")
        assert pixels(answer).size == (1240, 1754) and pixels(answer).format == "PNG"
        assert answer["Content-Security-Policy"].endswith("sandbox") and answer["Cache-Control"] == "no-store"
        assert "ETag" not in answer
    assert [ann.get(f"{path}/{page}").status_code for page in (0, 7, 999)] == [404] * 3
    damage(pdf(6).digest, pdf(6, "Other").bytes)
    rendering.cache.forget()
    assert ann.get(f"{path}/1").status_code == 409


def test_what_can_not_be_shown_is_a_problem_by_name(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [broken_pdf()]))
    program = api_of("bob", "approver_finance")
    pages = program.get(f"approvals/{approval.id}/documents/1/pages").json()
    assert pages["problem"].startswith("it can't be opened") and pages["pages"] == []
    body = {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "as seen"}
    decision = f"approvals/{approval.id}/decision"
    for answer in (program.get(f"approvals/{approval.id}/documents/1/pages/1"), program.post(decision, body)):
        assert is_problem(answer, 409)
        problem = answer.json()
        assert problem["type"].endswith("document-not-shown") and problem["document"] == "invoice.pdf"
    assert program.post(decision, body | {"verdict": "reject"}).status_code == 200


def test_the_process_that_draws_has_nothing_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A program in its place reports what is left: no environment, no writable path, little memory, never root."""
    monkeypatch.setenv("DURABLEAGENTS_SECRET_KEY", "zz-secret")
    spy = tmp_path / "spy.py"
    spy.write_text(
        "import json, os, sys\n"
        f"sys.path.insert(0, {str(rendering._PROGRAM.parent)!r})\n"
        "import renderer\n"
        f"file = open({str(tmp_path / 'written')!r}, 'w')\n"
        "renderer.confine()\n"
        "found = [sorted(set(os.environ) - {'LC_CTYPE'}), os.getuid()]\n"
        "try:\n"
        "    with file:\n"
        "        file.write('x')\n"
        "    found.append('wrote')\n"
        "except OSError as error:\n"
        "    found.append(type(error).__name__)\n"
        "try:\n"
        "    bytearray(2 * renderer.MAX_MEMORY)\n"
        "except MemoryError:\n"
        "    found.append('no memory')\n"
        "print(json.dumps({'problem': json.dumps(found), 'lengths': []}))\n"
    )
    monkeypatch.setattr(rendering, "_PROGRAM", spy)
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    assert json.loads(rendering.facts_of(named, lambda: pdf().bytes).problem) == [
        [],
        os.getuid() or renderer.NOBODY,
        "OSError",
        "no memory",
    ]


@pytest.mark.parametrize(
    ("roles", "status"),
    [
        (("approver_finance",), 200),
        (("operator",), 200),  # allowed by an administrator
        (("approver_legal",), 403),  # sees the case, but not the payload
        (("integrator",), 404),  # someone else's run
    ],
)
def test_only_readers_of_a_case_get_them(stage: Stage, tools: Toolbox, roles: tuple[str, ...], status: int) -> None:
    approval = asked(stage, paying(tools, [pdf()]))
    person = somebody("pat", *roles)
    user = User.objects.get(pk=person.person)
    if roles == ("operator",):
        rights.let_read_payloads(user.pk, True, by=boss(), justification="they repair it")
    browser, program = Reader(user), Api(issue_key(user, "test"))
    found = {path: (program if "/api/" in path else browser).get(path).status_code for path in addresses(approval.id)}
    assert set(found.values()) == {status}, found
    assert len(program.get(f"approvals/{approval.id}").json().get("documents", [])) == (1 if status == 200 else 0)


def test_what_one_is_shown_opens_no_door_to_the_same_bytes_elsewhere(stage: Stage, tools: Toolbox) -> None:
    """Bytes are kept once; access in one case gives none in another."""
    mine = asked(stage, paying(tools, [text()]))
    other = paying(tools, [text()], queue="legal")
    stage.start(other)
    assert stage.drive() == "parked"
    theirs = Approval.objects.get(queue="legal", state="open")
    ann = reader_of("ann", "approver_finance")
    assert ann.get(f"/approvals/{mine.id}/documents/1").status_code == 200
    assert ann.get(f"/approvals/{theirs.id}/documents/1").status_code == 403


PAGE = (1240, 1754)
NEVER = 60.0  # the seconds of a wait in vain, and of a rendering that is never released
SOON = NEVER / 2  # without a wait the answer comes by then, under any load


class Slow:
    """Replaces the rendering process: each rendering lasts until `finish`; with no pages it fails."""

    def __init__(self) -> None:
        self.pages, self.begun, self.go = 1, 0, Event()

    def __call__(self, named: Named, content: bytes, first: int) -> tuple[dict[str, Any], list[bytes]]:
        self.begun += 1
        if not self.go.wait(NEVER):
            self.go.set()  # a request that waited for this one need not wait for the others too
        if not self.pages:
            return {"problem": "rendering takes more than 20 seconds", "is_transient": True}, []
        drawn_now = min(rendering.PAGES_PER_PROCESS, self.pages - first + 1)
        return {"pages": [PAGE] * self.pages}, [b"a picture"] * drawn_now

    def finish(self) -> None:
        self.go.set()
        settled()
        self.go.clear()


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, _nothing_drawn: None) -> Iterator[Slow]:
    slow = Slow()
    monkeypatch.setattr(rendering, "_run_renderer", slow)
    monkeypatch.setattr(rendering, "PAGE_SECONDS", 0.1)
    monkeypatch.setattr(rendering, "APPROVAL_SECONDS", NEVER)
    monkeypatch.setattr(rendering, "WAIT_SECONDS", NEVER)
    yield slow
    slow.go.set()


@pytest.fixture
def ten(stage: Stage, tools: Toolbox) -> Approval:
    return asked(
        stage, paying(tools, [Given(f"{n}.pdf", "application/pdf", pdf(words=str(n)).bytes) for n in range(10)])
    )


def test_someone_who_looks_or_says_no_waits_a_moment_however_much_there_is_to_draw(ten: Approval, slow: Slow) -> None:
    ann = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person))
    began = monotonic()
    page = ann.read("/inbox")
    assert "Loading documents." in page and "You can reject it." in page
    assert monotonic() - began < SOON and 0 < len(rendering._in_progress) <= rendering.MAX_PROCESSES
    began = monotonic()
    answer = ann.post(f"/approvals/{ten.id}/decision", verdict="reject", plan_hash=ten.plan_hash, justification="no")
    assert answer.status_code == 302 and monotonic() - began < SOON
    assert Approval.objects.get(pk=ten.pk).state == "rejected"


def test_each_look_has_the_next_drawn_and_waits_for_none_twice(ten: Approval, slow: Slow) -> None:
    items = []
    while (found := opened(ten)).obstacle and len(items) < 10:
        items.append([each.is_loading for each in found.panels_at["content"][0].value.views].count(True))
        slow.finish()
    assert items == [10, 8, 6, 4, 2] and opened(ten).obstacle == ""
    page = Reader(User.objects.get(pk=somebody("ann", "approver_finance").person)).get(f"/inbox/{ten.id}")
    assert page.content.count(b"<img loading=") == 10 and b"data-lapses" not in page.content


def test_a_yes_waits_for_all_of_it_so_long_and_no_longer_and_goes_on_the_next_time(
    ten: Approval, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.pages = 9
    ann = somebody("ann", "approver_finance")
    with monkeypatch.context() as patch:
        patch.setattr(rendering, "APPROVAL_SECONDS", 0.1)
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
    monkeypatch.setattr(rendering, "APPROVAL_SECONDS", 0.1)
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

    monkeypatch.setattr(rendering, "_run_renderer", broken)
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    assert rendering.facts_of(named, lambda: pdf().bytes).problem == "rendering failed"
    assert "no more processes" in caplog.text and not rendering._in_progress


def test_without_the_app_nothing_with_documents_is_asked_or_approved(
    stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval = asked(stage, paying(tools, [text()]))
    monkeypatch.delitem(features.installed, "documents")
    assert "no installed app shows documents" in opened(approval).why_not_approve
    ann = somebody("ann", "approver_finance")
    with pytest.raises(NotShown, match="no installed app"):
        say(approval, ann)
    say(approval, ann, "reject")
    assert stage.drive() == "failed"  # it asks again
    assert "no installed app shows documents" in str(events(approval.run)[-1])
