"""What people see of a decision that several make, on the page and over HTTP: who said what, what is missing, and what
each choice does."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from approvals.models import Approval, Decision
from ledger.actors import Actor
from tests.integration.api.conftest import Api, is_problem, issue_key
from tests.integration.approvals.setup import somebody
from tests.integration.approvals.test_stages import FINANCE, LEGAL, LEGAL_THEN_TWO, TWO, buying, now, say
from tests.integration.console.conftest import Reader, text_of
from tests.integration.runs.stage import Stage as Fleet
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


@pytest.fixture
def ask(stage: Fleet, tools: Toolbox) -> Callable[..., Approval]:
    def asked(gate: Any) -> Approval:
        stage.start(buying(tools, gate, tries=2))
        assert stage.drive() == "parked"
        return now()

    return asked


def reads(name: str) -> Reader:
    return Reader(User.objects.get(username=name))


def calls(name: str) -> Api:
    return Api(issue_key(User.objects.get(username=name), "test"))


def decides(reader: Reader, approval: Approval, verdict: str, **more: Any) -> Any:
    form = {"verdict": verdict, "plan_hash": approval.plan_hash, "justification": f"{verdict} as quoted"} | more
    return reader.client.post(f"/approvals/{approval.id}/decision", form, follow=True)


def people() -> list[Actor]:
    named = (("lena", LEGAL), ("fiona", FINANCE), ("frank", FINANCE), ("greta", FINANCE))
    return [somebody(name, role) for name, role in named]


def kept(name: str, answer: Any) -> None:
    """For whoever wants to look at the page."""
    if folder := os.environ.get("DURABLEAGENTS_KEEP_PAGES"):
        Path(folder, name).write_bytes(answer.content)


def test_the_page_says_who_decides_how_far_they_are_and_what_ones_own_yes_would_be(
    stage: Fleet, ask: Callable[..., Approval]
) -> None:
    first, _ = ask(LEGAL_THEN_TWO), people()
    page = reads("lena").read(f"/inbox/{first.id}")
    for words in (
        "Who decides",
        "0 of 1 yes",
        "you may be the first",
        "finance_po next 0 of 2 yes",
        "finance_po is asked next. Nothing is sent before",
        "Fail the run",
        "Abstain",
    ):
        assert words in page, (words, page)
    told = text_of(decides(reads("lena"), first, "approve", stage="1"))
    assert "Approved. It is put to finance_po next." in told and "lena said yes" in told
    stage.drive()
    assert "Asked after this one, as a case of its own" in reads("lena").read(f"/inbox/{first.id}")
    second = now()
    page = reads("fiona").read(f"/inbox/{second.id}")
    for words in (
        "legal done",
        "1 of 1 yes",
        "user:lena said yes",
        "“approve as quoted”",
        "0 of 2 said yes",
        "Your yes is counted, and 1 more is needed",
        "2 different people, each a finance approver",
    ):
        assert words in page, (words, page)
    assert "stage 2 of 2: 0 of 2 yes" in reads("fiona").read("/inbox")
    told = text_of(decides(reads("fiona"), second, "approve", stage="2"))
    assert "Your yes is counted. It waits for somebody else" in told and "You approved this at" in told
    kept("voted.html", reads("fiona").get(f"/inbox/{second.id}"))
    kept("second.html", reads("frank").get(f"/inbox/{second.id}"))
    page = reads("frank").read(f"/inbox/{second.id}")
    assert "1 of 2 said yes: you may be the second" in page and "sent once" in page
    assert "stage 2 of 2: 1 of 2 yes; you had your say" in reads("fiona").read("/inbox")
    page = reads("frank").read("/inbox")
    assert "stage 2 of 2: 1 of 2 yes" in page and "you had your say" not in page
    assert "Approved. The run goes on." in text_of(decides(reads("frank"), second, "approve"))
    kept("done.html", reads("greta").get(f"/inbox/{second.id}"))
    page = reads("greta").read(f"/inbox/{second.id}")
    assert "2 of 2 yes" in page and "finance_po done" in page
    assert "finance_po done 2 of 2 yes" in reads("lena").read(f"/inbox/{first.id}")
    assert "user:fiona said yes" in reads("lena").read(f"/inbox/{first.id}"), (
        "whoever decided first sees what became of it"
    )
    assert stage.drive() == "completed"


def test_who_had_their_say_is_told_so_and_what_they_typed_is_kept(ask: Callable[..., Approval]) -> None:
    asked, _ = ask(TWO), people()
    decides(reads("fiona"), asked, "approve")
    answer = decides(reads("fiona"), asked, "reject", justification="I have thought again about it")
    page = text_of(answer)
    assert answer.status_code == 409 and "You have had your say" in page and "I have thought again about it" in page
    answer = decides(reads("frank"), asked, "approve", stage="2", justification="My careful reasons")
    page = text_of(answer)
    assert answer.status_code == 409 and "Another stage is being decided" in page and "My careful reasons" in page
    for wrong in ("0", "-1", "x", "1" * 30):
        assert decides(reads("frank"), asked, "approve", stage=wrong).status_code == 422
    assert Decision.objects.count() == 1


def test_over_http_a_stage_is_read_and_decided(stage: Fleet, ask: Callable[..., Approval]) -> None:
    first, _ = ask(LEGAL_THEN_TWO), people()
    lena, fiona, frank = calls("lena"), calls("fiona"), calls("frank")
    row = lena.get(f"approvals/{first.id}").json()
    assert row["stage"] == 1 and [(s["queue"], s["quorum"], s["state"], s["yes"]) for s in row["stages"]] == [
        ("legal", 1, "now", 0),
        ("finance_po", 2, "next", 0),
    ]
    body = {"verdict": "approve", "plan_hash": row["plan_hash"], "justification": "as quoted"}
    assert is_problem(lena.post(f"approvals/{first.id}/decision", body | {"stage": 2}), 409, "other-stage")
    assert is_problem(lena.post(f"approvals/{first.id}/decision", body | {"stage": 0}), 422)
    assert is_problem(lena.post(f"approvals/{first.id}/decision", body | {"verdict": "maybe"}), 422)
    done = lena.post(f"approvals/{first.id}/decision", body | {"stage": 1}).json()
    assert (done["state"], done["stage"]) == ("approved", 1)
    assert is_problem(lena.post(f"approvals/{first.id}/decision", body), 409, "already-decided")
    assert lena.get(f"approvals/{first.id}").json()["stage"] == 1
    stage.drive()
    second = now()
    assert lena.get(f"approvals/{first.id}").json()["stage"] == 1, "while the next one is being decided"
    body["plan_hash"] = second.plan_hash
    assert fiona.post(f"approvals/{second.id}/decision", body).json()["state"] == "open"
    assert is_problem(fiona.post(f"approvals/{second.id}/decision", body | {"verdict": "reject"}), 409, "already-voted")
    (listed,) = fiona.get("approvals?state=open").json()["results"]
    assert listed["stage"] == 2 and listed["decision"] is None and listed["stages"][1]["yes"] == 1
    assert [(v["by"], v["verdict"]) for s in listed["stages"] for v in s["votes"]] == [
        ("key:lena", "approve"),
        ("key:fiona", "approve"),
    ]
    done = frank.post(f"approvals/{second.id}/decision", body).json()
    assert (done["state"], done["stage"]) == ("approved", 2)
    assert stage.drive() == "completed"
    assert [lena.get(f"approvals/{each.id}").json()["stage"] for each in (first, second)] == [1, 2]


def test_a_forged_vote_is_shown_as_none_and_counts_for_nothing(ask: Callable[..., Approval]) -> None:
    from tests.integration.approvals.test_stages import forged

    asked = ask(TWO)
    fiona, frank = somebody("fiona", FINANCE), somebody("frank", FINANCE)
    forged(asked, fiona)
    page = reads("frank").read(f"/inbox/{asked.id}")
    assert "not genuine" in page and "0 of 2 yes" in page
    say(frank)
    assert Approval.objects.get().state == "open"
