"""A limit is proposed and agreed to while what it is about moves by itself; runs line up once it is in force."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.actors import Actor
from runs.engine.limits.rules import Rule
from runs.models import Limit
from runs.services.limits import acts as limits
from tests.integration.approvals.setup import WHY
from tests.integration.approvals.test_rule_changes import agreed, anna, bert, guarded, proposed
from tests.integration.runs.stage import Stage

pytestmark = pytest.mark.django_db
__all__ = ["anna", "bert", "guarded"]  # fixtures


def test_a_breaker_that_opens_meanwhile_keeps_nobody_from_agreeing(
    stage: Stage, guarded: None, anna: Actor, bert: Actor
) -> None:
    change = proposed(lambda: limits.set_limit("provider:acme", Rule(per_minute=5), by=anna, justification=WHY))
    limits.open_breaker("provider:acme", by=anna, justification=WHY)
    agreed(change, bert)
    limit = Limit.objects.get(key="provider:acme")
    assert (limit.given or {})["per_minute"] == 5 and limit.breaker == "open"


def test_runs_line_up_by_a_tag_s_limit_once_it_is_in_force_and_not_before(
    stage: Stage, guarded: None, anna: Actor, bert: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    lined: list[Any] = []
    plain = limits._line_up
    monkeypatch.setattr(limits, "_line_up", lambda key: (lined.append(key), plain(key)))
    change = proposed(lambda: limits.set_limit("tag:team:*", Rule(at_once=1), by=anna, justification=WHY))
    assert not lined
    agreed(change, bert)
    assert lined == ["tag:team:*"]
