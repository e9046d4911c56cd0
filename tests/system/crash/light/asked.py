"""People asked with little time: they answer early, just before the deadline, or after an escalation."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from approvals.models import Approval
from runs.workers import timers
from tests.system.crash.late import FURTHER_TO, MANNERS
from tests.system.crash.light.shown import Shown
from tests.system.crash.light.together import at_once
from tests.world import FIONA, FRANK, LENA


class Asked:
    """Answers calls whose gates set what follows on no answer."""

    def __init__(self, manners: tuple[str, ...], shown: Shown) -> None:
        self._left, self._shown = list(manners), shown
        self._manners: dict[Any, str] = {}

    def act(self, approval: Approval) -> bool:
        """Handle an open question once. Return False if it is left alone for now."""
        if approval.pk not in self._manners:
            self._manners[approval.pk] = self._left.pop(0) if self._left else "early"
        manner, has_run_out = self._manners[approval.pk], bool(approval.reminded or approval.escalated_to)
        assert manner in MANNERS
        if manner == "early" or has_run_out:
            people = (FIONA, LENA) if approval.escalated_to else (FIONA,)
            at_once([self._shown.yes(approval, by) for by in people])
            return True
        if manner == "race":
            self._wait_for(approval)
            at_once([*self._words(approval), timers.sweep, timers.sweep])
            return True
        return False  # the sweeper comes first

    def _words(self, approval: Approval) -> list[Callable[[], Any]]:
        """Answer all at once; people of the escalation queue may or may not be allowed yet."""
        return [partial(self._shown.yes(approval, by)) for by in (FIONA, FRANK, LENA)]

    def _wait_for(self, approval: Approval) -> None:
        time.sleep(min(1.0, max(0.0, approval.deadline.timestamp() - time.time() - 0.002)))


def is_asked(approval: Approval) -> bool:
    """Return whether it is one of these calls, by its own gate."""
    return approval.tool in ("further", "patient") and approval.queue != FURTHER_TO and approval.timing is not None
