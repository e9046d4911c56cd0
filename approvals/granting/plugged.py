"""Where standing grants plug in: the sweeper answers by them, and a queue's page says how far they may go."""

from __future__ import annotations

from approvals.granting import listed, using
from approvals.queues import listed as queues
from runs.journal import wait_hooks


def plug_in() -> None:
    """Doing so again changes nothing."""
    if using.look not in wait_hooks.on_sweep:
        wait_hooks.on_sweep.append(using.look)
        queues.on_page.append(listed.bounds_of)
