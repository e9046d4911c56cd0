"""People who change a call before approving: one or several at once, some of whom approve it unchanged."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from approvals.cases.amending import amend
from approvals.models import Approval, Delegation, Inquiry
from durableagents.contrib.casework import delegations, inquiries
from ledger.actors import Actor
from tests.system.crash.changed import MANNERS, TOOL
from tests.system.crash.light.shown import WHY, Shown
from tests.system.crash.light.together import at_once
from tests.system.crash.light.votes import HANDED, account
from tests.world import FIONA, FRANK

FINANCE = "approver_finance"


class Changing:
    """Answers the calls that may be changed, each in a schedule's next manner."""

    def __init__(self, manners: tuple[str, ...], shown: Shown) -> None:
        self._left, self._shown = list(manners), shown

    def act(self, approval: Approval) -> bool:
        """Handle an open question once; approve what a change left open."""
        manner = self._left.pop(0) if self._left else "plain"
        assert manner in MANNERS
        yes = self._shown.yes(approval, FIONA)
        match manner:
            case "change":
                at_once([_change(approval, FIONA, 7000)])
            case "race":
                at_once([_change(approval, FIONA, 7000), _change(approval, FRANK, 8000), yes])
            case "ask":
                self._ask(approval, yes)
            case "hand":
                self._hand(approval)
            case _:
                at_once([yes])
        return True

    def _ask(self, approval: Approval, yes: Callable[[], Any]) -> None:
        """Ask someone twice at once; the answer races with the withdrawal and an approval."""
        first, second = (account(f"{FINANCE}-{n}", FINANCE) for n in (0, 1))
        put = partial(inquiries.ask, approval.pk, to=second.name, question=WHY, by=first)
        at_once([put, put])
        for row in Inquiry.objects.filter(approval=approval.pk, ended_at=None):
            at_once(
                [
                    partial(inquiries.answer, approval.pk, row.n, answer=WHY, by=second),
                    partial(inquiries.withdraw, approval.pk, row.n, justification=WHY, by=first),
                ]
            )
        at_once([yes, put])

    def _hand(self, approval: Approval) -> None:
        """Delegate it; the delegate decides while it is revoked, and in the end the delegating person decides."""
        first, handed = account(f"{FINANCE}-0", FINANCE), account(HANDED, FINANCE)
        put = partial(delegations.delegate, approval.pk, to=HANDED, justification=WHY, by=first)
        at_once([put, put, self._shown.yes(approval, handed)])
        rows = Delegation.objects.filter(approval=approval.pk, ended_at=None)
        backs = [partial(delegations.take_back, approval.pk, row.n, justification=WHY, by=first) for row in rows]
        at_once([*backs, self._shown.yes(approval, handed), self._shown.yes(approval, handed)])
        at_once([self._shown.yes(approval, first)])


def may_be_changed(approval: Approval) -> bool:
    """Return whether it is one of these calls, by its own gate."""
    return approval.tool == TOOL and "editable" in json.loads(bytes(approval.plan))


def _change(approval: Approval, by: Actor, more: int) -> Callable[[], Any]:
    """Return an act that changes the call to a number that no step has."""
    now = json.loads(bytes(approval.plan))["arguments"]["n"]
    plan_hash, given = approval.plan_hash, {"n": now + more}

    def act() -> Any:
        return amend(approval.pk, plan_hash=plan_hash, arguments=given, justification=WHY, by=by)

    return act
