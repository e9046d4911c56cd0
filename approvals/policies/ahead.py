"""Whom policies ask besides, once a question has its yes: as the journal says that they judged its call. For eyes only:
the call is judged anew before it leaves."""

from __future__ import annotations

from typing import Any

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Subquery

from approvals.models import Approval, ApprovalState
from ledger import events as e
from ledger.codec import read_clear
from ledger.models import Event


def along() -> dict[str, Any]:
    """To be annotated where questions are shown: what was said of the call last, and the queues that said yes to it."""
    place = {"run_id": OuterRef("run_id"), "slot": OuterRef("wait__slot"), "attempt": OuterRef("wait__attempt")}
    said = Event.objects.filter(**place, kind=e.PolicyApplied.KIND).order_by("-seq")
    beside = Approval.objects.filter(
        run_id=OuterRef("run_id"), wait__slot=OuterRef("wait__slot"), wait__attempt=OuterRef("wait__attempt"),
        state=ApprovalState.APPROVED,
    )  # fmt: skip
    return {"judged": Subquery(said.values("clear")[:1]), "granted_by": ArraySubquery(beside.values("queue"))}


def asked_after(approval: Approval) -> list[str]:
    """The queues that are asked after an open question that was so read, in their order."""
    told = getattr(approval, "judged", None)
    if approval.state != ApprovalState.OPEN or told is None:
        return []
    try:
        queues = read_clear(told)["queues"]
    except (KeyError, TypeError, ValueError):
        return []  # a forged row takes no page away
    have = {approval.queue, *getattr(approval, "granted_by", ())}
    return [each for each in queues if isinstance(each, str) and each not in have] if isinstance(queues, list) else []
