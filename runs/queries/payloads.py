"""Access to the questions that a run asks people.
`Viewer.reads` and `runs/seen.py` decide who may read other payloads."""

from __future__ import annotations

from typing import Any

from ledger.web.roles import stand_ins
from ledger.web.seeing.payloads import status_of
from ledger.web.seeing.viewers import Viewer, viewer
from runs.journal.asked.queues import QUEUES
from runs.models import Wait
from runs.services.authority import put_to

_ASKING = (Wait.Kind.APPROVAL, Wait.Kind.INPUT)
# Status fields of some waits; they contain no payload.
_OF_KIND: dict[str, tuple[str, ...]] = {
    Wait.Kind.INPUT: ("schema",),
    Wait.Kind.APPROVAL: ("on_timeout",),
    Wait.Kind.TIMER: ("limit", "why", "held"),
    Wait.Kind.RECONCILE: ("suspicion",),
}


def is_asked(name: str, who: Viewer | None = None) -> bool:
    """Return whether a viewer may read the questions of this queue or role.
    They may if they read all payloads, or if they may answer the questions, including as a deputy."""
    who = who or viewer()
    in_stead = any(one.queue == name for one in stand_ins(who.held))
    return who.reads_all or in_stead or QUEUES.get(name, name) in who.held


def reads_wait(wait: Wait, *, is_read: bool, who: Viewer | None = None) -> bool:
    """Return whether a viewer may read a wait's detail.
    `is_read` means that they may read the run's payloads."""
    return is_read or (wait.kind in _ASKING and any(is_asked(each, who) for each in put_to(wait)))


def without_hidden_payload(wait: Wait, *, is_read: bool) -> Wait:
    """Return the wait without the payload if the viewer may not read it. Such a wait must not be saved."""
    if isinstance(wait.detail, dict) and not reads_wait(wait, is_read=is_read):
        wait.detail = without_payload(wait)
    return wait


def without_payload(wait: Wait) -> dict[str, Any]:
    return status_of(wait.detail, *_OF_KIND.get(str(wait.kind), ()))
