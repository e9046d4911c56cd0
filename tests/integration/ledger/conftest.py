from __future__ import annotations

from collections.abc import Callable
from uuid import UUID, uuid4

import pytest

from ledger import events as e
from ledger.append import append
from ledger.chain import genesis
from ledger.models import Head
from runs.engine.journal import Entry
from tests.world import OLGA, SHOP

Journal = Callable[[], UUID]


@pytest.fixture
def journal(db: None) -> Journal:
    """A run's journal of seven events, with payloads small, large and absent, and two facts in the ledger."""

    def write() -> UUID:
        run_id = uuid4()
        Head.objects.create(run_id=run_id, chain=genesis(run_id))
        append(run_id, e.RunCreated(agent="a", version="1.0.0", by=SHOP.ref, payload={"text": "go"}), by=SHOP)
        append(run_id, e.VisitEntered(node="first", visit=1), e.ValueRead(slot="0.1/1", what="now", payload=1), by=SHOP)
        invoked = e.ToolInvoked(
            slot="0.1/2",
            tool="order",
            replay_class="idempotent_with_key",
            requested_hash="h",
            executed_hash="h",
            payload={"x": "y" * 5000},
        )
        pending = Entry("0.1/2", 0, "pending", "order", "idempotent_with_key", key="k", input_hash="h")
        append(run_id, invoked, by=SHOP, entries=[pending])
        committed = Entry("0.1/2", 0, "committed", "order", "idempotent_with_key", key="k", external_id="PO-1")
        append(run_id, e.ToolReturned(slot="0.1/2", tool="order", external_id="PO-1"), by=SHOP, entries=[committed])
        append(run_id, e.CancelRequested(by=OLGA.ref, payload={"justification": "enough"}), by=OLGA)
        append(run_id, e.RunCancelled(by=OLGA.ref, in_flight=[]), by=OLGA)
        return run_id

    return write
