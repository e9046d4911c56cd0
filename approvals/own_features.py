"""The features of this app."""

from __future__ import annotations

from approvals import offered, services
from approvals.deadlines import deadlines
from approvals.queues import along, standing
from approvals.verification import Gates
from runs.features import Feature, Queues
from runs.models import Wait

FEATURES = (
    Feature(
        name="approvals",
        open_gate=services.opener,
        queues=Queues(
            statement=along.FACTS,
            is_ours=along.is_ours,
            role_of=standing.role_held,
            escalated=standing.went_further,
        ),
        on_question=(services.ON_ASK,),
        on_withdraw=(services.WITHDRAW,),
        on_wait_due={Wait.Kind.APPROVAL: services.on_due},
        on_wait_moved={Wait.Kind.APPROVAL: lambda wait: deadlines().follow(wait)},
        on_reopen=(services.REOPEN,),
        offers=(offered.decisions,),
        remarks=(offered.how_many_more, offered.who_is_missing),
        run_checks=(Gates,),
        run_tables={
            "approvals_approval": "run_id",
            "approvals_escalation": "run_id",
            "approvals_inquiry": "run_id",
            "approvals_delegation": "run_id",
        },
    ),
)
