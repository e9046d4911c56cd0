"""What a case's page says of the same again, and of asking somebody, where that is refused: by its fields' names."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.grants.models import StandingGrant
from approvals.models import Approval
from ledger.actors import Actor
from tests.approvals.granting import allowed, asks, given, paying
from tests.approvals.setup import WHY, boss
from tests.console.conftest import text_of
from tests.runs.stage import Stage
from tests.world import Toolbox

pytestmark = pytest.mark.django_db


def post(by: Actor, path: str, **form: Any) -> Any:
    client = Client()
    client.force_login(User.objects.get(pk=by.person))
    return client.post(path, form)


def decided(case: Approval, by: Actor, **again: str) -> Any:
    form = {"verdict": "approve", "plan_hash": case.plan_hash, "justification": WHY, **again}
    return post(by, f"/approvals/{case.id}/decision", **form)


def test_the_same_again_is_refused_by_the_name_and_at_the_place_of_its_field(
    stage: Stage, tools: Toolbox, fiona: Actor
) -> None:
    allowed(boss())
    case = asks(stage, paying(tools))
    for again, words, at in (
        ({"again_times": "2"}, "“Until when” is missing", "again_until"),
        ({"again_until": "2036-01-01T09:00"}, "“How many more” is missing", "again_times"),
        (
            {"again_times": "2", "again_until": "2036-01-01T09:00", "again_sum": "9000"},
            "UTC, the latest there",
            "again_until",
        ),
        (
            {"again_times": "9", "again_until": "2036-01-01T09:00", "again_sum": "9000"},
            "“How many more” is more than 5",
            "again_times",
        ),
    ):
        answer = decided(case, fiona, **again)
        page = text_of(answer)
        assert answer.status_code == 422 and words in page and f'id="{at}_error"' in answer.content.decode(), again
        assert "again_until" not in page and "again.until" not in page and not StandingGrant.objects.exists()


def test_whom_one_asks_is_no_field_named_to(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    case = asks(stage, paying(tools))
    answer = post(fiona, f"/approvals/{case.id}/inquiries", to="nobody at all", question="Do you know them?")
    assert answer.status_code == 422 and "That can't be: whom you name is nobody's name." in text_of(answer)


def test_taking_one_back_without_a_reason_is_said_in_words(stage: Stage, tools: Toolbox, fiona: Actor) -> None:
    allowed(boss())
    grant = given(asks(stage, paying(tools)), fiona)
    page = text_of(post(fiona, f"/queues/grants/{grant.pk}/ends", justification=""))
    assert "Taking a standing grant back needs a justification" in page and "tanding_revoke" not in page
