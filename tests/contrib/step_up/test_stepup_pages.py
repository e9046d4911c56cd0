"""Step-up on pages: a stale session is asked to authenticate, loses no text, and then decides."""

from __future__ import annotations

import re
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import Approval, Decision
from approvals.queues import acts
from approvals.queues.acts import ProofBody
from ledger.actors import Actor
from runs.journal.asked.queues import QUEUES
from tests.contrib.accounts.conftest import PASSWORD, Clock, Someone, clock, grow_old
from tests.integration.approvals.setup import WHY, asked
from tests.integration.runs.stage import Stage
from tests.rewriting import rewrite
from tests.world import Toolbox

__all__ = ["clock"]
pytestmark = pytest.mark.django_db
WROTE = "Budget line 7.\nSeen by the board: <b>“yes”</b>"


@pytest.fixture
def fiona(stage: Stage, clock: Clock) -> Someone:
    user = User.objects.create_user("fiona", password=PASSWORD)
    user.groups.set([Group.objects.get_or_create(name="approver_finance")[0]])
    return Someone(user, clock)


def rule(**said: Any) -> None:
    acts.prove("finance_po", ProofBody(justification=WHY, **said), by=Actor("os", "root", auth="shell"))
    QUEUES.forget()


@pytest.fixture
def question(stage: Stage, tools: Toolbox) -> Approval:
    rule(minutes=5)
    return asked(stage, tools)


def send(who: Someone, question: Approval, **more: str) -> Any:
    form = {"verdict": "approve", "plan_hash": question.plan_hash, "stage": "1", "justification": WROTE}
    return who.client.post(f"/approvals/{question.id}/decision", form | more)


def kept(answer: Any) -> dict[str, str]:
    found = re.findall(r'<textarea name="(\w+)" hidden>\n(.*?)</textarea>', answer.content.decode(), re.DOTALL)
    return {name: unescape(text) for name, text in found}


def test_who_decides_long_after_signing_in_is_asked_and_goes_on_with_all_they_wrote(
    stage: Stage, tools: Toolbox, fiona: Someone
) -> None:
    rule(minutes=5, type_amount=True, above=Decimal(1000))
    question = asked(stage, tools)
    fiona.sign_in()
    grow_old(fiona.client)
    page = fiona.client.get(f"/inbox/{question.id}").content.decode()
    assert "Type the amount to approve" in page and "within the last 5 minutes" in page
    answer = send(fiona, question, typed_amount="$5,000")
    assert answer.status_code == 403 and "Confirm it" in answer.content.decode() and not Decision.objects.exists()
    form = kept(answer)
    assert form["justification"].replace("\r\n", "\n") == WROTE and form["typed_amount"] == "$5,000"
    wrong = fiona.client.post(f"/approvals/{question.id}/decision", form | {"proof_password": "not it"})
    assert wrong.status_code == 422 and kept(wrong) == form and not Decision.objects.exists()
    assert (
        fiona.client.post(f"/approvals/{question.id}/decision", form | {"proof_password": PASSWORD}).status_code == 302
    )
    decision = Decision.objects.get()
    assert (decision.verdict, decision.justification, decision.proof["by"]) == ("approve", WROTE, "password")
    assert decision.proof["typed"] == {"amount": "$5,000"} and "password" not in decision.proof["typed"]
    assert stage.drive() == "completed"


def test_who_has_just_signed_in_is_not_asked(fiona: Someone, question: Approval) -> None:
    fiona.sign_in()
    assert send(fiona, question).status_code == 302 and Decision.objects.get().proof["by"] == "password"


def test_nobody_is_asked_to_say_no(stage: Stage, tools: Toolbox, fiona: Someone) -> None:
    rule(minutes=5, second_factor=True)
    question = asked(stage, tools)
    fiona.sign_in()
    grow_old(fiona.client)
    assert send(fiona, question, verdict="reject").status_code == 302
    assert Decision.objects.get().proof is None


def test_a_second_factor_is_asked_of_who_signed_in_with_a_password_and_has_set_one_up(
    stage: Stage, tools: Toolbox, fiona: Someone
) -> None:
    rule(minutes=5, second_factor=True)
    question = asked(stage, tools)
    fiona.sign_in()
    refused = send(fiona, question)
    text = refused.content.decode()
    assert refused.status_code == 403 and "Set up a second factor" in text and "Budget line 7." in text
    assert not Decision.objects.exists()
    fiona.set_up()
    fiona.clock.pass_steps()
    grow_old(fiona.client)
    form = kept(send(fiona, question))
    code = fiona.code()
    assert fiona.client.post(f"/approvals/{question.id}/decision", form | {"proof_code": code}).status_code == 302
    assert Decision.objects.get().proof["by"] == "totp"


def test_a_session_that_shows_nothing_of_its_person_decides_nothing(fiona: Someone, question: Approval) -> None:
    """A session from an identity provider or the demo's button."""
    fiona.client.force_login(fiona.user)
    assert "Confirm it" in send(fiona, question).content.decode() and not Decision.objects.exists()
    rewrite(User.objects.filter(pk=fiona.user.pk), password="!")
    fiona.client.force_login(User.objects.get(pk=fiona.user.pk))
    assert "No second factor" in send(fiona, question).content.decode()


def test_a_wrong_code_is_tried_so_often_and_no_more(fiona: Someone, question: Approval) -> None:
    fiona.sign_in()
    grow_old(fiona.client)
    status_codes = [send(fiona, question, proof_password=f"guess {n}").status_code for n in range(7)]
    assert status_codes[:5] == [422] * 5 and set(status_codes[5:]) == {429} and not Decision.objects.exists()
    assert send(fiona, question, proof_password=PASSWORD).status_code == 429


def test_what_is_typed_wrong_is_said_where_it_stands_and_kept(stage: Stage, tools: Toolbox, fiona: Someone) -> None:
    rule(type_amount=True, type_target=True)
    question = asked(stage, tools)
    fiona.sign_in()
    answer = send(fiona, question, typed_amount="500<b>", typed_target="po")
    text = answer.content.decode()
    assert answer.status_code == 422 and "type: 5000 USD" in text and 'value="500&lt;b&gt;"' in text
    assert 'value="po"' in text and "Budget line 7." in text and not Decision.objects.exists()
