"""Versions and revisions of policies that were written past the installation stand in no genuine one's way."""

from __future__ import annotations

import pytest

from approvals.calendars.rows import LOOKED_AT
from approvals.models import Policy
from approvals.policies import acts
from ledger.actors import Actor
from ledger.errors import InvalidInput
from runs.models import PolicyRevision
from tests.approvals.setup import WHY, boss
from tests.approvals.test_policies import put, turned
from tests.runs.stories import as_superuser
from tests.world import Toolbox, agent_of, ends_with

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("stage")]
LAST = 2**31 - 1
_RETIRED = """
    INSERT INTO approvals_policy (name, version, agent, tool, condition, kinds, effect, queue, within_seconds, rule,
        set_by, made_at, ended_at, ended_by)
    VALUES ('orders', %s, '', '', '', '{}', 'allow', '', 0, 'none', 'user:mallory', now(), now(), 'user:mallory')"""
_MANY_RETIRED = _RETIRED.replace("VALUES ('orders', %s", "SELECT 'orders', n").replace(
    "'user:mallory')", "'user:mallory' FROM generate_series(2, %s) AS n"
)


@pytest.fixture
def admin(tools: Toolbox) -> Actor:
    agent_of(ends_with(1), tools=tools.all())
    return boss()


@pytest.mark.parametrize("version", [7, LAST])
def test_a_retired_version_that_was_never_there_locks_nobody_out(admin: Actor, version: int) -> None:
    put(admin)
    as_superuser(_RETIRED, version)
    assert acts.find("orders").version == 1
    assert turned(admin, effect="deny").effect == "deny"
    acts.retire("orders", by=admin, justification=WHY)
    assert acts.find("orders").effect == "deny" and acts.find("orders").is_genuine
    again = put(admin, effect="deny")
    assert again.is_in_force and again.is_genuine
    assert Policy.objects.filter(name="orders", ended_at__isnull=True).count() == 1


def test_more_retired_versions_than_are_looked_at_hide_not_the_one_in_force(admin: Actor) -> None:
    put(admin)
    as_superuser(_MANY_RETIRED, LOOKED_AT + 2)
    assert acts.find("orders").version == 1
    assert turned(admin, effect="deny").version == LOOKED_AT + 3


def test_where_no_number_is_left_that_is_said(admin: Actor) -> None:
    for n in range(5):
        as_superuser(_RETIRED, LAST - n)
    with pytest.raises(InvalidInput, match="leave no number"):
        put(admin)
    assert put(admin, name="others").version == 1


def test_a_revision_with_the_last_number_is_said_to_be_in_the_way(admin: Actor) -> None:
    put(admin)
    as_superuser(
        "INSERT INTO runs_policyrevision (revision, live, policies, set_by, at) VALUES (%s, 0, '', 'user:m', now())",
        2**63 - 1,
    )
    with pytest.raises(acts.PoliciesDamaged, match="has the last number"):
        acts.restore(by=admin, justification=WHY)
    as_superuser("DELETE FROM runs_policyrevision WHERE revision = %s", 2**63 - 1)
    assert turned(admin, effect="deny").effect == "deny" and PolicyRevision.objects.count() == 2


_ENDED = "UPDATE approvals_policy SET ended_at = now(), ended_by = 'user:mallory' WHERE name = %s AND ended_at IS NULL"


def test_what_came_back_and_was_retired_since_stays_retired(admin: Actor) -> None:
    put(admin, effect="deny")
    as_superuser(_ENDED, "orders")
    acts.restore(by=admin, justification=WHY)
    assert (acts.find("orders").version, acts.find("orders").is_in_force) == (2, True)
    acts.retire("orders", by=admin, justification=WHY)
    put(admin, name="others", effect="deny")
    as_superuser(_ENDED, "others")
    acts.restore(by=admin, justification=WHY)
    assert [str(row) for row in Policy.objects.filter(ended_at__isnull=True)] == ["others@2"]


@pytest.mark.parametrize("act", ["change", "create", "restore"])
def test_a_version_under_another_spelling_of_the_name_is_in_nobodys_way(admin: Actor, act: str) -> None:
    put(admin)
    as_superuser(_RETIRED.replace("'orders'", "'ORDERS'"), 2)
    if act == "change":
        turned(admin, effect="deny")
    elif act == "create":
        acts.retire("orders", by=admin, justification=WHY)
        put(admin)
    else:
        as_superuser(_ENDED, "orders")
        acts.restore(by=admin, justification=WHY)
    assert [str(row) for row in Policy.objects.filter(ended_at__isnull=True)] == ["orders@3"]
