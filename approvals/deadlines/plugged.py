"""Where what time brings plugs in: the sweeper's hooks, and the pages of queues."""

from __future__ import annotations

from approvals.deadlines import due, listed
from approvals.queues import listed as queues
from runs.journal import wait_hooks


def plug_in() -> None:
    """After gates have: from here on their deadlines do what their terms say. Doing so again changes nothing."""
    wait_hooks.on_due["approval"] = due.on_due
    if due.look not in wait_hooks.on_sweep:
        wait_hooks.on_sweep.append(due.look)
        queues.on_page.append(lambda queue: {"t": listed.timing_of(queue)})
        queues.on_pages.append(lambda person: {"absences": listed.absences_of(person)})
