"""Who may decide: default no."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.policy import QUEUES, VERDICTS, may_decide, role_for
from ledger.web.roles import ROLES


def test_each_queue_belongs_to_one_role_that_exists() -> None:
    assert QUEUES == {"finance_po": "approver_finance", "legal": "approver_legal"}
    assert set(QUEUES.values()) <= set(ROLES)
    assert len(set(QUEUES.values())) == len(QUEUES)


@pytest.mark.parametrize("queue", QUEUES)
@pytest.mark.parametrize("role", [*ROLES, "superuser", "", "admin"])
def test_only_the_queues_own_role_decides(queue: str, role: str) -> None:
    assert may_decide(queue, [role]) is (QUEUES[queue] == role)


@given(st.text(), st.lists(st.text() | st.sampled_from(ROLES)))
def test_a_queue_that_nobody_is_in_charge_of_is_decided_by_nobody(queue: str, roles: list[str]) -> None:
    if queue not in QUEUES:
        assert not may_decide(queue, [*roles, *ROLES]) and role_for(queue) is None


@given(st.lists(st.text() | st.sampled_from(ROLES)))
def test_more_roles_never_take_a_right_away(roles: list[str]) -> None:
    for queue, role in QUEUES.items():
        assert may_decide(queue, [*roles, role])
        assert may_decide(queue, roles) is (role in roles)
    assert not may_decide("legal", [])


def test_there_are_two_verdicts() -> None:
    assert VERDICTS == {"approve": "approved", "reject": "rejected"}
