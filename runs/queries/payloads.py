"""Whether somebody reads what a run holds, or what it asks: for faces that show rows. The decision itself is
`Viewer.reads` and `runs/seen.py`; here it is about what is put to people."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ledger.web.roles import stand_ins
from ledger.web.seeing.payloads import WORDS, status_of
from ledger.web.seeing.viewers import Viewer, reads, viewer
from runs.journal import wait_hooks
from runs.models import Wait
from runs.services.authority import put_to
from runs.services.migrating.outcomes import Outcome

_ASKING = (Wait.Kind.APPROVAL, Wait.Kind.INPUT)
# What of some waits tells what they are besides: our own words, and nothing of what the run holds.
_OF_KIND: dict[str, tuple[str, ...]] = {
    Wait.Kind.INPUT: ("schema",),
    Wait.Kind.APPROVAL: ("on_timeout",),
    Wait.Kind.TIMER: ("limit", "why"),
    Wait.Kind.RECONCILE: ("suspicion",),
}


def is_asked(name: str, who: Viewer | None = None) -> bool:
    """Whether somebody is asked what is put to this queue, or to this role, or stands in for whoever is: then they read
    it, whatever else they don't."""
    who = who or viewer()
    in_stead = any(one.queue == name for one in stand_ins(who.held))
    return who.reads_all or in_stead or wait_hooks.queues.get(name, name) in who.held


def reads_wait(wait: Wait, *, is_read: bool, who: Viewer | None = None) -> bool:
    """Whether somebody reads what a run waits for, beyond that it does. `is_read`: they read the run's payloads."""
    return is_read or (wait.kind in _ASKING and any(is_asked(each, who) for each in put_to(wait)))


def shown(wait: Wait, *, is_read: bool) -> Wait:
    """A wait as whoever looks is told of it; its row is not to be saved. What it says beyond what it waits for is left
    out where it is not theirs to read."""
    if isinstance(wait.detail, dict) and not reads_wait(wait, is_read=is_read):
        wait.detail = without_payload(wait)
    return wait


def moved(found: Outcome) -> Outcome:
    """What became of a run that was to be moved: why a checkpoint doesn't fit quotes it, so that is left out of what
    somebody is told who doesn't read the run's payloads."""
    return replace(found, why=WORDS) if found.why and not reads(found.run) else found


def without_payload(wait: Wait) -> dict[str, Any]:
    return status_of(wait.detail, *_OF_KIND.get(str(wait.kind), ()))
