"""People who give and revoke standing approvals while the sweeper uses them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

from approvals.bodies import MAX_TIMES, AgainBody
from approvals.models import Approval, Queue
from durableagents.contrib.standing_approvals import answering
from durableagents.contrib.standing_approvals.models import StandingGrant
from durableagents.contrib.standing_approvals.services import approve_again, revoke
from durableagents.contrib.standing_approvals.terms import Bounds
from ledger.actors import Actor
from ledger.clock import database_now
from tests.system.crash.granted import MANNERS, QUEUE, TIMES, TOOL
from tests.system.crash.light.shown import WHY, Shown
from tests.system.crash.light.together import at_once
from tests.system.crash.light.votes import account

FINANCE = "approver_finance"


def put_bounds() -> None:
    """Let the queue give standing approvals, once for all lanes."""
    queue = Queue.objects.get(name=QUEUE)
    queue.again = Bounds(MAX_TIMES, 30).as_json()  # for all equal calls, over all runs of a lane
    queue.seal()
    queue.save(update_fields=["again", "code"])


class Granting:
    """Answers the calls that standing approvals may cover, each in a schedule's next manner."""

    def __init__(self, manners: tuple[str, ...], shown: Shown) -> None:
        self._left, self._shown = list(manners), shown

    def act(self, approval: Approval) -> bool:
        """Handle an open question once; a person answers what no grant did."""
        manner = self._left.pop(0) if self._left else "wait"
        assert manner in MANNERS
        first, second = (account(f"{FINANCE}-{n}", FINANCE) for n in (0, 1))
        yes, look = self._shown.yes(approval, second), partial(answering.answer_questions, [], float("inf"))
        match manner:
            case "allow":
                at_once([_allow(approval, first), _allow(approval, second)])
            case "race":
                at_once([look, look, yes, _allow(approval, first)])
            case "revoke":
                at_once([look, *_take_all_back(approval, first), look])
            case "wait":
                at_once([look, look])
        at_once([self._shown.yes(approval, second)])
        return True


def may_be_again(approval: Approval) -> bool:
    """Return whether it is one of these calls, by its own gate."""
    return approval.tool == TOOL and approval.queue == QUEUE


def _allow(approval: Approval, by: Actor) -> Callable[[], Any]:
    again = AgainBody(times=TIMES, until=database_now() + timedelta(hours=1), scope="run")
    return partial(approve_again, approval.pk, plan_hash=approval.plan_hash, justification=WHY, by=by, again=again)


def _take_all_back(approval: Approval, by: Actor) -> list[Callable[[], Any]]:
    rows = StandingGrant.objects.filter(run_id=approval.run_id)
    return [partial(revoke, row.pk, justification=WHY, by=by, roles=[FINANCE]) for row in rows]
