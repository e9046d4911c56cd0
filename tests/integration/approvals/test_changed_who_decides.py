"""A person who changed who decides after a question was asked can't decide it, by any way and under any name."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group

from approvals.models import Approval
from approvals.queues import acts
from approvals.queues.acts import QueueChangeBody
from durableagents.identity import rights
from ledger.acting import acting
from ledger.actors import Actor
from ledger.errors import Forbidden
from tests.integration.approvals.setup import WHY, asked, limited, say, somebody
from tests.integration.runs.stage import Stage
from tests.rewriting import rewrite
from tests.world import Toolbox

pytestmark = pytest.mark.django_db
FINANCE = "approver_finance"


@pytest.fixture
def ada(stage: Stage) -> Actor:
    return somebody("ada", FINANCE, is_superuser=True, is_staff=True)


def refused(approval: Approval, by: Actor) -> None:
    with pytest.raises(Forbidden, match="You changed the members of this role"):
        say(approval, by)
    assert Approval.objects.get(pk=approval.pk).state == "open"


def test_a_role_that_is_named_again_is_one_that_was_given(stage: Stage, tools: Toolbox) -> None:
    mona = somebody("mona", "operator", "approver_x", is_superuser=True, is_staff=True)
    approval = asked(stage, tools)
    rewrite(Group.objects.filter(name=FINANCE), name="approver_old")
    with acting(mona):
        rewrite(Group.objects.filter(name="approver_x"), name=FINANCE)
    refused(approval, mona)


def test_a_title_decides_nothing(stage: Stage, tools: Toolbox, ada: Actor) -> None:
    approval = asked(stage, tools)
    acts.change("finance_po", QueueChangeBody(title="Orders", justification=WHY), by=ada)
    assert say(approval, ada).state == "approved"


def test_what_was_set_before_is_nobodys_business(stage: Stage, tools: Toolbox, ada: Actor) -> None:
    limited(ada, "100000", person="ada")
    rights.set_roles(ada.person or 0, [FINANCE, "operator"], True, by=ada, justification=WHY)
    assert say(asked(stage, tools), ada).state == "approved"
