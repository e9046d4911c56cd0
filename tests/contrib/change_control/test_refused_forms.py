"""Refused forms and concurrent edits: nothing typed is lost or overwritten unseen."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from approvals.queue_models import Limit
from durableagents.contrib.change_control import services as changes
from durableagents.contrib.change_control import setting as guards
from durableagents.contrib.change_control.models import RuleChange
from durableagents.contrib.change_control.setting import GuardsBody
from ledger.errors import DurableAgentsError
from tests.integration.console.conftest import Reader
from tests.integration.console.test_refused_forms import PAGE, WHY, form, of

pytestmark = pytest.mark.django_db


@pytest.fixture
def bert(db: None) -> Reader:
    return Reader(User.objects.create_superuser("bert"))


@pytest.fixture
def anna(db: None) -> Reader:
    return Reader(User.objects.create_superuser("anna"))


def test_what_was_seen_still_has_to_hold_when_a_second_person_confirms_a_limit(anna: Reader, bert: Reader) -> None:
    at, later = f"{PAGE}/limits", []
    guards.require(GuardsBody(families=["queues", "roles"], justification=WHY), by=of(anna))
    for most in ("100", "200"):
        assert anna.post(at, **form(anna, PAGE, at) | {"most": most}).status_code == 302
        later.append(RuleChange.objects.latest("made_at").pk)
    changes.apply(later[0], by=of(bert), justification=WHY)
    with pytest.raises(DurableAgentsError, match="was changed by user:anna meanwhile"):
        changes.apply(later[1], by=of(bert), justification=WHY)
    assert [row.most for row in Limit.objects.filter(ended_at=None)] == [100]
