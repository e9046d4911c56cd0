"""A run's page says no more than it has read whole: what came meanwhile is told of by the socket, and read again."""

from __future__ import annotations

from typing import Any

import pytest

from ledger.models import Head
from runs.queries import families
from runs.services import lifecycle
from tests.integration.console.conftest import OLGA, Reader, start

pytestmark = pytest.mark.django_db


def test_what_came_while_a_page_was_read_is_read_again(operator: Reader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its row was read before, its journal after: the page shows neither that it moved nor, if it said that it had all
    of it, ever would."""
    run, waits, moves = start(), families.open_waits, []
    before = Head.objects.get(run_id=run.id).seq

    def meanwhile(ids: Any) -> Any:
        if not moves:
            moves.append(lifecycle.pause(run.id, by=OLGA, justification="Hold on."))
        return waits(ids)

    monkeypatch.setattr(families, "open_waits", meanwhile)
    page = operator.get(f"/runs/{run.id}").content.decode()
    after = Head.objects.get(run_id=run.id).seq
    assert after > before and f'data-seq="{before}"' in page
    assert f'data-seq="{after}"' in operator.get(f"/runs/{run.id}", fragment="live").content.decode()
