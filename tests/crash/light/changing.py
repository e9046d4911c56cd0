"""People who change a call before they say yes: one of them, or several at once, some of whom approve it as it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from approvals.cases.amending import amend
from approvals.models import Approval
from ledger.actors import Actor
from tests.crash.changed import MANNERS, TOOL
from tests.crash.light.shown import WHY, Shown
from tests.crash.light.together import at_once
from tests.world import FIONA, FRANK


class Changing:
    """Answers the calls that may be changed, each in the next manner of a schedule."""

    def __init__(self, manners: tuple[str, ...], shown: Shown) -> None:
        self._left, self._shown = list(manners), shown

    def act(self, approval: Approval) -> bool:
        """One look at an open question. What a change left open is answered as it is in the end."""
        manner = self._left.pop(0) if self._left else "plain"
        assert manner in MANNERS
        yes = self._shown.yes(approval, FIONA)
        match manner:
            case "change":
                at_once([_change(approval, FIONA, 7000)])
            case "race":
                at_once([_change(approval, FIONA, 7000), _change(approval, FRANK, 8000), yes])
            case _:
                at_once([yes])
        return True


def may_be_changed(approval: Approval) -> bool:
    """Whether it is one of those calls, by its own gate."""
    return approval.tool == TOOL and "editable" in json.loads(bytes(approval.plan))


def _change(approval: Approval, by: Actor, more: int) -> Callable[[], Any]:
    """Another number of the same call: none that any step has."""
    now = json.loads(bytes(approval.plan))["arguments"]["n"]
    plan_hash, given = approval.plan_hash, {"n": now + more}

    def act() -> Any:
        return amend(approval.pk, plan_hash=plan_hash, arguments=given, justification=WHY, by=by)

    return act
