"""Whom policies ask besides, once a question has its yes: as the journal says that they judged its call. For eyes only:
the call is judged anew before it leaves."""

from __future__ import annotations

from django.contrib.postgres.fields import ArrayField
from django.db.models import BinaryField, TextField
from django.db.models.expressions import RawSQL

from approvals.models import Approval, ApprovalState
from ledger import events as e
from ledger.codec import read_clear

_JUDGED = f"""SELECT e.clear FROM runs_wait w JOIN ledger_event e
        ON e.run_id = w.run_id AND e.slot = w.slot AND e.attempt = w.attempt AND e.kind = '{e.PolicyApplied.KIND}'
    WHERE w.id = approvals_approval.wait_id ORDER BY e.seq DESC LIMIT 1"""
_GRANTED = """SELECT a.queue FROM runs_wait here
    JOIN runs_wait w ON w.run_id = here.run_id AND w.slot = here.slot AND w.attempt = here.attempt
    JOIN approvals_approval a ON a.wait_id = w.id AND a.state = 'approved'
    WHERE here.id = approvals_approval.wait_id"""


def along() -> dict[str, RawSQL]:
    """To be annotated where questions are shown, also one whose wait is gone: what was said of the call last, and the
    queues that said yes to it."""
    return {
        "judged": RawSQL(f"({_JUDGED})", [], output_field=BinaryField()),
        "granted_by": RawSQL(f"ARRAY({_GRANTED})", [], output_field=ArrayField(TextField())),
    }


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
