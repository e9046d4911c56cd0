"""A confirmed two-person rule counts."""

from __future__ import annotations

import pytest
from django.core.management import call_command
from django.db import connection

from approvals.queue_models import Queue
from durableagents.contrib.change_control.models import FourEyes
from ledger.models import ActRecord
from ledger.verification.registers import protected_rows
from tests.integration.ledger.test_protected import sample
from tests.tampering import tamper

pytestmark = pytest.mark.django_db


def test_confirming_a_row_with_a_code_of_its_own_lets_it_count(db: None, capsys: pytest.CaptureFixture[str]) -> None:
    """Not where rows never change: those are set again, or put back."""
    queue = sample(Queue, name="orders")
    with connection.cursor() as cursor:
        cursor.execute("UPDATE approvals_queue SET role = 'approver_legal' WHERE id = %s", [queue.pk])
        cursor.execute("INSERT INTO ledger_foureyes (n, families, set_by, at) VALUES (1, '{}', 'user:eve', now())")
    call_command("ledger", "confirm", "approvals_queue", str(queue.pk), "--reason", "Set during the outage.")
    assert Queue.objects.get(pk=queue.pk).is_authentic
    with pytest.raises(SystemExit):
        call_command("ledger", "confirm", "ledger_foureyes", "1", "--reason", "Set during the outage.")
    assert "rows of ledger_foureyes never change" in (err := capsys.readouterr().err) and "set the values again" in err
    assert [each.partition(" (")[0] for each in protected_rows().problems] == ["two-person rule '1'"]
    assert ActRecord.objects.filter(action="row_confirm").count() == 1
    tamper("DELETE FROM ledger_foureyes")
    rule = sample(FourEyes, n=1)
    tamper("UPDATE ledger_foureyes SET set_by = 'user:eve'")
    assert len(protected_rows().problems) == 1
    tamper("UPDATE ledger_foureyes SET set_by = %s", rule.set_by)
    assert protected_rows().problems == []
