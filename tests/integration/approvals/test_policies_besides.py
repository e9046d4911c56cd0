"""Where a policy asks another queue besides: that is said beforehand, and other people answer it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from django.contrib.auth.models import Group, User

from approvals.models import Approval, Queue
from approvals.services import AlreadyVoted, decide
from ledger.actors import Actor
from tests.integration.approvals.setup import away, boss, somebody
from tests.integration.approvals.test_policies import ordering, put, turned
from tests.integration.runs.stage import Stage, problems
from tests.world import Outside, Toolbox

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize("how", ["both roles", "as a deputy", "by a deputy"])
def test_one_person_gives_one_yes_to_what_several_queues_are_asked(
    stage: Stage, tools: Toolbox, outside: Outside, how: str
) -> None:
    agent, admin = ordering(tools), boss()
    put(admin, queue="finance_po")
    run = stage.start(agent)
    assert stage.drive() == "parked"
    first = Approval.objects.get(run=run, state="open")
    roles = {queue.name: queue.role for queue in Queue.objects.filter(name__in=["finance_po", "legal"])}
    both = somebody("berta", *(roles.values() if how == "both roles" else [roles["legal"]]))
    other = somebody("otto", roles["finance_po"])

    def yes(case: Approval, by: Actor) -> Approval:
        by = replace(by, role=roles[case.queue])
        return decide(case.id, verdict="approve", plan_hash=case.plan_hash, justification="as quoted", by=by)

    if how == "both roles":
        yes(first, both)
    else:  # the word of either is the other's
        deputy, principal = (both, other) if how == "as a deputy" else (other, both)
        if how == "by a deputy":
            User.objects.get(pk=both.person).groups.add(Group.objects.get_or_create(name=roles["finance_po"])[0])
            deputy = somebody("emil", roles["legal"])
        away(principal, deputy.name, queue="finance_po")
        yes(first, deputy)
    turned(admin)
    assert stage.drive() == "parked" and outside.requests == []
    second = Approval.objects.get(run=run, state="open")
    with pytest.raises(AlreadyVoted, match="One person has one word"):
        yes(second, both)
    assert Approval.objects.get(pk=second.pk).state == "open"
    yes(second, somebody("lena", roles["legal"]))
    assert stage.drive() == "completed" and len(outside.executed()) == 1
    assert problems(run) == []
