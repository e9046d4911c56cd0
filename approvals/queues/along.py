"""Read queues and deputyships in the same statement as the session or API key, so that no page needs another query."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any
from uuid import UUID

from approvals.queue_models import Deputy, Escalation, Queue
from approvals.talk_models import Delegation, Inquiry
from ledger.keys import code_key
from ledger.rows import row_of
from ledger.web.roles import Mark, OwnCase, OwnLimit, StandsIn
from runs.journal.asked.queues import QUEUES

# SQL value: the queues, with the deputyships, cases and limits of the account named by `user` (sql/along.sql).
ANNOTATIONS = "approvals_along({user})::text"
# The same without an account, for workers.
FACTS = "approvals_along(NULL)::jsonb"


def is_ours(row: str) -> bool:
    """Return whether a queue's row, given as text, is authentic.

    Cached, because every request reads all queues and they rarely change.
    """
    return _is_authentic(row, code_key())


@lru_cache(maxsize=1000)
def _is_authentic(row: str, key: bytes) -> bool:
    return row_of(Queue, row).is_authentic


def learnt(value: Any) -> list[Mark]:
    """Update the known queues, and return the reader's deputyships, cases and limits.

    Forged rows and forged queues give no rights.
    """
    value = json.loads(value) if isinstance(value, str) else value
    QUEUES.learn(value)
    ours = {name for name, *_, row in value["queues"] if is_ours(row)}
    deputies = [(row_of(Deputy, row), whom, queues) for row, whom, queues in value["stands"]]
    standing_approvals = [
        StandsIn(queue, row.ends_at, whom)
        for row, whom, queues in deputies
        if row.is_authentic
        for queue in queues
        if queue in ours
    ]
    cases = [
        OwnCase(UUID(case), what, whom)
        for case, what, whom, row, places in value["cases"]
        if row_of(Delegation if what == "decide" else Inquiry, row).is_authentic
        and (what != "decide" or any(is_ours(place) and _is_asked_there(went) for place, went in places))
    ]
    places = [(queue, row.principal) for row, _, queues in deputies if row.is_authentic for queue in queues]
    return [*standing_approvals, *cases, *_limits(value, places)]


def _limits(fields: dict[str, Any], places: Sequence[tuple[str, int]]) -> list[OwnLimit]:
    """Return the reader's highest limit at each queue where every authority of theirs is limited.

    For counting and display only.
    """
    me, decided = fields["decides"]
    limits = {(queue, person): (most, currency, needs) for queue, needs, person, most, currency in fields["limits"]}
    found = []
    for queue in {*decided, *(queue for queue, _ in places)}:
        role, own = limits.get((queue, None)), limits.get((queue, me))
        ways = [[own or role]] if queue in decided else []
        ways += [[limits.get((queue, principal)) or role, own] for at, principal in places if at == queue]
        caps = [[cap for cap in way if cap is not None and cap[0] is not None] for way in ways]
        if all(caps):  # one unlimited authority makes the reader unlimited
            most, currency, needs = max((min(way, key=_cap_amount) for way in caps), key=_cap_amount)
            found.append(OwnLimit(queue, Decimal(most), currency, needs))
    return found


def _cap_amount(cap: Sequence[Any]) -> Decimal:
    return Decimal(cap[0])


def _is_asked_there(went: Sequence[str] | None) -> bool:
    """Return whether a queue may decide a case: as its first queue, or by an authentic escalation."""
    return went is None or any(row_of(Escalation, each).is_authentic for each in went)
