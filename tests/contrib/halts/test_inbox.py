"""Deciding: the whole plan is shown, the first decision wins, nothing typed is lost."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import pytest
from pytest_django.plugin import _django_db_marker  # noqa: F401 (the folder's takes no transaction=True)

from approvals.models import Approval
from runs.models import Run, Wait
from runs.services import lifecycle
from tests.contrib.halts.halting import halt
from tests.integration.console.conftest import (  # noqa: F401 (fixtures)
    OLGA,
    SHOP,
    Reader,
    agent,
    asked,
    finance,
    reader,
    text_of,
)
from tests.integration.console.test_inbox import run  # noqa: F401 (fixture)

pytestmark = pytest.mark.django_db(transaction=True)


STANDS: dict[str, tuple[Callable[[Run], object], str]] = {
    "paused": (
        lambda run: lifecycle.pause(run.pk, by=OLGA, justification="let me see"),
        "The run is paused. Resume it to continue.",
    ),
    "halted": (lambda run: halt("agent", "buyer"), "The run is halted. The run continues when the halt is lifted."),
    "only new ones": (lambda run: halt("agent", "buyer", kind="starts"), "The run continues."),
    "stopped": (
        lambda run: Wait.objects.create(
            id=uuid4(), run=run, kind="operator", slot="stop", opened_at=run.created_at, deadline=run.created_at
        ),
        "The run is stopped. An operator must examine it.",
    ),
}


@pytest.mark.every(2)
@pytest.mark.parametrize("how", STANDS)
def test_a_yes_says_when_the_run_continues(finance: Reader, asked: Callable[..., Approval], how: str) -> None:
    approval = asked()
    act, words = STANDS[how]
    act(approval.run)
    answer = finance.client.post(
        f"/approvals/{approval.id}/decision",
        {"verdict": "approve", "plan_hash": approval.plan_hash, "justification": "Fine by me."},
        follow=True,
    )
    page = text_of(answer)
    assert f"Approved. {words}" in page and ("The run continues." in page) is (how == "only new ones")
