"""A case's documents over HTTP, on its page and for programs: who gets them, what a browser may make of them, and what
it costs."""

from __future__ import annotations

import io
import json
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext
from PIL import Image

from approvals.documents import drawn
from approvals.models import Approval
from durableagents import Document
from durableagents.identity import rights
from durableagents.identity.auth import issue_key
from runs.engine.gate.documents import Named
from tests.api.conftest import Api, is_problem
from tests.approvals.setup import boss, say, somebody
from tests.approvals.test_documents import _nothing_drawn, asked, damage, paying, revised, settled
from tests.console.conftest import Reader
from tests.papers import broken_pdf, jpeg, pdf, png, text
from tests.runs.stage import Stage
from tests.scale.test_reads import MOST_STATEMENTS
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
__all__ = ["_nothing_drawn"]


def reader_of(name: str, *roles: str) -> Reader:
    return Reader(User.objects.get(pk=somebody(name, *roles).person))


def api_of(name: str, *roles: str) -> Api:
    return Api(issue_key(User.objects.get(pk=somebody(name, *roles).person), "test"))


def addresses(approval: Any) -> list[str]:
    """All of the first document's, on the page and for programs."""
    below = f"approvals/{approval}/documents/1"
    return [f"/{below}", f"/{below}/pages/1", f"/api/v1/{below}", f"/api/v1/{below}/pages", f"/api/v1/{below}/pages/1"]


def pixels(answer: Any) -> Image.Image:
    return Image.open(io.BytesIO(answer.content))


# --- what is sent -----------------------------------------------------------------------------------------------------


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
    drawn.kept.forget()
    assert ann.get(f"{path}/1").status_code == 409


def test_nothing_of_a_pictures_file_but_what_is_seen_comes_along(stage: Stage, tools: Toolbox) -> None:
    """Where it was taken, what was written behind it, and how it lay when it was taken."""
    exif = Image.Exif()
    exif[0x010E] = "secret-words"
    exif[0x0112] = 6  # lies on its side
    given = jpeg(exif=exif, size=(400, 200), comment=b"secret-words")
    assert b"secret-words" in given.bytes
    approval = asked(stage, paying(tools, [given]))
    answer = reader_of("ann", "approver_finance").get(f"/approvals/{approval.id}/documents/1/pages/1")
    assert b"secret-words" not in answer.content and pixels(answer).size == (200, 400)
    assert not pixels(answer).getexif() and set(pixels(answer).info) <= {"dpi"}


def test_what_lets_through_what_is_behind_it_can_not_pass_for_nothing(stage: Stage, tools: Toolbox) -> None:
    """White on nothing, which on a white page nobody would see."""
    picture = Image.new("RGBA", (64, 64), (255, 255, 255, 0))
    picture.paste((255, 255, 255, 255), (16, 0, 32, 16))
    file = io.BytesIO()
    picture.save(file, "PNG")
    approval = asked(stage, paying(tools, [Document("sly.png", "image/png", file.getvalue())]))
    seen = pixels(reader_of("ann", "approver_finance").get(f"/approvals/{approval.id}/documents/1/pages/1"))
    assert seen.getpixel((20, 8)) == (255, 255, 255) and seen.getpixel((40, 24)) == (255, 255, 255)
    assert {seen.getpixel((8, 8)), seen.getpixel((40, 8))} == {(190, 190, 190)}, "grey beside it"


def test_the_answer_of_an_approval_names_them(stage: Stage, tools: Toolbox) -> None:
    given = [text(), pdf(), png()]
    approval = asked(stage, paying(tools, given))
    program = api_of("bob", "approver_finance")
    told = program.get(f"approvals/{approval.id}").json()["documents"]
    assert told == [
        {
            "n": n,
            "name": one.name,
            "media_type": one.media_type,
            "size": len(one.bytes),
            "sha256": one.digest,
            "url": f"/api/v1/approvals/{approval.id}/documents/{n}",
        }
        for n, one in enumerate(given, 1)
    ]
    pages = program.get(f"{told[1]['url']}/pages").json()
    assert (pages["problem"], pages["note"], len(pages["pages"])) == ("", "", 2)
    assert pages["pages"][1] == {"n": 2, "width": 1240, "height": 1754, "url": f"{told[1]['url']}/pages/2"}
    assert program.get(pages["pages"][1]["url"])["Content-Type"] == "image/png"
    assert program.get(f"{told[0]['url']}/pages").json() == {"problem": "", "note": "", "pages": []}
    assert program.get("approvals").json()["results"][0]["documents"] == told


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


def test_too_many_at_once_are_sent_away_unharmed(stage: Stage, tools: Toolbox, monkeypatch: pytest.MonkeyPatch) -> None:
    approval = asked(stage, paying(tools, [pdf()]))
    # long enough for a drawing, were there a place
    for name, seconds in {"WAITS_SECONDS": 3.0, "PAGE_SECONDS": 0.01, "ACT_SECONDS": 0.01}.items():
        monkeypatch.setattr(drawn, name, seconds)
    taken = [drawn._places.acquire(blocking=False) for _ in range(drawn.AT_ONCE)]
    ann, bob = reader_of("ann", "approver_finance"), somebody("bob", "approver_finance")
    try:
        assert all(taken)
        assert "Its documents are being drawn" in ann.read(f"/inbox/{approval.id}")
        assert ann.get(f"/approvals/{approval.id}/documents/1/pages/1").status_code == 503
        answer = ann.post(
            f"/approvals/{approval.id}/decision", verdict="approve", plan_hash=approval.plan_hash, justification="yes"
        )
        assert answer.status_code == 503 and "yes" in answer.content.decode()
    finally:
        for _ in taken:
            drawn._places.release()
    settled()
    monkeypatch.setattr(drawn, "ACT_SECONDS", 20.0)
    assert say(approval, bob).state == "approved"


def test_the_process_that_draws_has_nothing_of_ours(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """A program in the place of the one that draws tells what it finds: no environment, no way to write, no time."""
    monkeypatch.setenv("DURABLEAGENTS_SECRET_KEY", "zz-secret")
    spy = tmp_path / "spy.py"
    spy.write_text(
        "import json, os, sys\n"
        f"sys.path.insert(0, {str(drawn._PROGRAM.parent)!r})\n"
        "import drawing\n"
        "drawing.confine()\n"
        "found = [sorted(set(os.environ) - {'LC_CTYPE'})]\n"
        "try:\n"
        f"    with open({str(tmp_path / 'written')!r}, 'w') as file:\n"
        "        file.write('x')\n"
        "    found.append('wrote')\n"
        "except OSError as error:\n"
        "    found.append(type(error).__name__)\n"
        "try:\n"
        "    bytearray(2 * drawing.MOST_MEMORY)\n"
        "except MemoryError:\n"
        "    found.append('no memory')\n"
        "print(json.dumps({'problem': json.dumps(found), 'lengths': []}))\n"
    )
    monkeypatch.setattr(drawn, "_PROGRAM", spy)
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    assert json.loads(drawn.facts_of(named, lambda: pdf().bytes).problem) == [[], "OSError", "no memory"]


@pytest.mark.parametrize(
    ("does", "told"), [("import os; os.kill(os.getpid(), 9)", "signal 9"), ("raise SystemExit(3)", "status 3")]
)
def test_a_process_that_dies_while_it_draws_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, does: str, told: str
) -> None:
    dying = tmp_path / "dying.py"
    dying.write_text(does)
    monkeypatch.setattr(drawn, "_PROGRAM", dying)
    named = Named("a.pdf", "application/pdf", len(pdf().bytes), pdf().digest)
    assert drawn.problem_of(named, lambda: pdf().bytes) == f"to draw it failed ({told})"


# --- who --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("roles", "status"),
    [
        (("approver_finance",), 200),
        (("operator",), 200),  # whom an administrator lets
        (("approver_legal",), 403),  # sees the case, and does not read what is asked
        (("integrator",), 404),  # a run of somebody else's
    ],
)
def test_whoever_reads_what_is_asked_gets_them_and_nobody_else(
    stage: Stage, tools: Toolbox, roles: tuple[str, ...], status: int
) -> None:
    approval = asked(stage, paying(tools, [pdf()]))
    person = somebody("pat", *roles)
    user = User.objects.get(pk=person.person)
    if roles == ("operator",):
        rights.let_read_payloads(user.pk, True, by=boss(), justification="they repair it")
    browser, program = Reader(user), Api(issue_key(user, "test"))
    found = {path: (program if "/api/" in path else browser).get(path).status_code for path in addresses(approval.id)}
    assert set(found.values()) == {status}, found
    assert len(program.get(f"approvals/{approval.id}").json().get("documents", [])) == (1 if status == 200 else 0)


def test_what_there_is_not_is_not_found_and_nobody_comes_in_unsigned(stage: Stage, tools: Toolbox) -> None:
    approval = asked(stage, paying(tools, [text()]))
    ann, program = reader_of("ann", "approver_finance"), api_of("bob", "approver_finance")
    nobody, unkeyed = Reader(None), Api(None)
    for path in addresses(uuid4()) + [each.replace("documents/1", "documents/2") for each in addresses(approval.id)]:
        assert (program if "/api/" in path else ann).get(path).status_code == 404, path
    for path in addresses(approval.id):
        assert (unkeyed if "/api/" in path else nobody).get(path).status_code == (401 if "/api/" in path else 302)
    assert ann.get(f"/approvals/{approval.id}/documents/0").status_code == 404


def test_what_one_is_shown_opens_no_door_to_the_same_bytes_elsewhere(stage: Stage, tools: Toolbox) -> None:
    """Bytes are kept once; who reads them in one case is still nobody in another."""
    mine = asked(stage, paying(tools, [text()]))
    other = paying(tools, [text()], queue="legal")
    stage.start(other)
    assert stage.drive() == "parked"
    theirs = Approval.objects.get(queue="legal", state="open")
    ann = reader_of("ann", "approver_finance")
    assert ann.get(f"/approvals/{mine.id}/documents/1").status_code == 200
    assert ann.get(f"/approvals/{theirs.id}/documents/1").status_code == 403


# --- what it costs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [True, False], ids=["never drawn", "drawn"])
def test_a_case_with_documents_costs_no_more_statements(stage: Stage, tools: Toolbox, is_first: bool) -> None:
    papers = [text("one\n"), pdf(3), png(), jpeg()]
    approval = asked(stage, paying(tools, papers, [text("two\n"), *papers[1:]]))
    approval = revised(stage, approval)
    ann = reader_of("ann", "approver_finance")
    ann.get("/inbox")
    if is_first:
        drawn.kept.forget()
    with CaptureQueriesContext(connection) as found:
        page = ann.read(f"/inbox/{approval.id}")
    assert "What is signed or paid · 4 documents" in page
    assert len(found.captured_queries) <= MOST_STATEMENTS
    sizes = [len(row) for (row,) in _contents(found)]
    assert sizes and (max(sizes) > 10_000) == is_first, "what was drawn is not read again"


def _contents(found: CaptureQueriesContext) -> list[tuple[str]]:
    (statement,) = [each["sql"] for each in found.captured_queries if "json_object_agg(d.digest" in each["sql"]]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT coalesce(contents, '') FROM ({statement}) AS q")
        rows: list[tuple[str]] = cursor.fetchall()
    return rows
