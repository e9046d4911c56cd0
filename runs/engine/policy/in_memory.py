"""What `runs_check_policies` does in the database, for the journal in memory."""

from __future__ import annotations

from collections.abc import Sequence

from ledger import events as e
from runs.engine.policy.revisions import hold_to as hold_to


def check(revision: int, live: int, events: Sequence[e.Event]) -> None:
    """Raises PoliciesChanged for a call's intent that was judged by other policies than the `live` ones of now."""
    if not any(isinstance(event, (e.ToolInvoked, e.ToolRedispatched)) for event in events):
        return
    hold_to(revision, live, next((event.revision for event in events if isinstance(event, e.PolicyApplied)), None))
