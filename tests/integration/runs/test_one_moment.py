from __future__ import annotations

import pytest
from django.db import Error, connection

from ledger.verification.runs import snapshot
from runs.models import Run
from tests.integration.runs.stage import Stage


def test_what_is_read_of_one_moment_locks_nothing_and_may_take_its_time(stage: Stage) -> None:
    """Under load more than a transaction's seconds may lie between two statements of a check."""

    def limit() -> str:
        with connection.cursor() as cursor:
            cursor.execute("SHOW idle_in_transaction_session_timeout")
            return str(cursor.fetchone()[0])

    before = limit()
    with snapshot():
        assert limit() == "2min" != before
        with pytest.raises(Error, match="read-only"):
            Run.objects.update(generation=0)
    assert limit() == before
