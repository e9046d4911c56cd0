"""A case's documents over HTTP, on its page and for programs: who gets them, what a browser may make of them, and what
it costs."""

from __future__ import annotations

import io
import json
import os
from typing import Any

import pytest
from django.contrib.auth.models import User
from PIL import Image

from approvals.documents import drawing, drawn
from approvals.models import Approval
from durableagents.identity import rights
from durableagents.identity.auth import issue_key
from runs.engine.gate.documents import Named
from tests.integration.api.conftest import Api, is_problem
from tests.integration.approvals.setup import boss, somebody
from tests.integration.approvals.test_documents import _nothing_drawn, asked, damage, paying
from tests.integration.console.conftest import Reader
from tests.integration.runs.stage import Stage
from tests.papers import broken_pdf, pdf, text
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
    """A program in its place reports what is left: no environment, no way to write, little memory, never root."""
    monkeypatch.setenv("DURABLEAGENTS_SECRET_KEY", "zz-secret")
    spy = tmp_path / "spy.py"
    spy.write_text(
        "import json, os, sys\n"
        f"sys.path.insert(0, {str(drawn._PROGRAM.parent)!r})\n"
        "import drawing\n"
        f"file = open({str(tmp_path / 'written')!r}, 'w')\n"
        "drawing.confine()\n"
        "found = [sorted(set(os.environ) - {'LC_CTYPE'}), os.getuid()]\n"
        "try:\n"
        "    with file:\n"
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
    assert json.loads(drawn.facts_of(named, lambda: pdf().bytes).problem) == [
        [],
        os.getuid() or drawing.NOBODY,
        "OSError",
        "no memory",
    ]


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
