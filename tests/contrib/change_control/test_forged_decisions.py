"""Forged rows of decisions, queues and records: none counts, and verification names each."""

from __future__ import annotations

import pytest

from durableagents.contrib.change_control.models import RuleChange
from tests.integration.approvals.setup import boss, signed_in
from tests.integration.approvals.test_forged_decisions import change, said_so

pytestmark = [pytest.mark.django_db, pytest.mark.every(3)]


@said_so
@pytest.mark.usefixtures("db")
def test_a_proposed_change_that_nobody_can_read_takes_no_list_away(said: str) -> None:
    change(said)
    admin = signed_in(boss())
    row = RuleChange.objects.get()
    assert not row.is_authentic
    page = admin.get("/changes")
    assert page.status_code == 200 and "not authentic" in page.content.decode()
    assert admin.get(f"/changes/{row.pk}").status_code == 200
    (found,) = admin.get("/api/v1/changes").json()["results"]
    assert found["is_authentic"] is False and found["told"] == []
