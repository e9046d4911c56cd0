"""People approve in the schedule's manners, some of which are refused, then with every proof."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from approvals.models import Approval
from approvals.services import decide
from ledger.actors import Actor
from ledger.clock import database_now
from ledger.errors import DurableAgentsError

WHY = "The schedule says so."


class Shown:
    """`how`: by question, the manners of approvals not refused, also where the answer was lost."""

    def __init__(self, manners: tuple[str, ...] = ()) -> None:
        self._left = list(manners)
        self.how: dict[str, list[str]] = defaultdict(list)

    def yes(self, approval: Approval, by: Actor) -> Callable[[], Any]:
        return self.word(approval, "approve", by, self._left.pop(0) if self._left else "whole")

    def word(self, approval: Approval, verdict: str, by: Actor, manner: str) -> Callable[[], Any]:
        typed = {} if manner == "blank" else _typed(approval)
        by = _as(by, manner)
        entry = self.how[str(approval.id)]

        def act() -> Any:
            entry.append(manner)
            try:
                return decide(
                    approval.id, verdict=verdict, plan_hash=approval.plan_hash, justification=WHY, by=by, typed=typed
                )
            except DurableAgentsError:
                entry.remove(manner)
                raise

        return act


def _as(by: Actor, manner: str) -> Actor:
    if manner == "key":
        return replace(by, kind="key", proved_at=None, proved_by="")
    ago = timedelta(hours=2) if manner == "stale" else timedelta()
    return replace(by, proved_at=database_now() - ago, proved_by="password" if manner == "password" else "totp")


def _typed(approval: Approval) -> dict[str, str]:
    """Return what the plan wants typed, as people write it."""
    words = json.loads(bytes(approval.plan)).get("proof", {}).get("typed", {})
    return {name: f" {text.upper()}  " for name, text in words.items()}
