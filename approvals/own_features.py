"""The features of this app."""

from __future__ import annotations

from functools import partial

from approvals import offered, services
from approvals.deadlines import deadlines
from approvals.granting import using
from approvals.granting.listed import bounds_of
from approvals.notices import addressing, kinds
from approvals.notices.courier import ADDRESS, BY_CHAT, BY_MAIL, BY_PUSH, CHAT, FORGET, MAIL, PUSH, carry, is_due
from approvals.policies.inforce import STATEMENT, book_of
from approvals.policies.verification import Policed, every_revision
from approvals.queues import along, standing
from approvals.verification import Gates
from runs.background import Duty
from runs.features import Feature, Policies, Queues
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
            "approvals_standinggrant": "run_id",
            "approvals_standinguse": "run_id",
        },
    ),
    Feature(name="standing grants", sweeps=(using.look,), queue_panels=(bounds_of,)),
    Feature(
        name="policies",
        policies=Policies(statement=STATEMENT, made_of=book_of),
        run_checks=(Policed,),
        record_checks=(every_revision,),
    ),
    Feature(
        name="notices",
        on_outcome_proposed=(kinds.outcome_said,),
        on_versions_missing=(kinds.versions_missing,),
        on_change_proposed=(kinds.change_proposed,),
        periodic=(
            Duty(ADDRESS, addressing.IS_DUE, addressing.address_all, then=(MAIL, CHAT, PUSH)),
            Duty(MAIL, is_due(BY_MAIL), partial(carry, BY_MAIL)),
            Duty(CHAT, is_due(BY_CHAT), partial(carry, BY_CHAT)),
            Duty(PUSH, is_due(BY_PUSH), partial(carry, BY_PUSH)),
            Duty(FORGET, addressing.IS_OLD, addressing.retire),
        ),
    ),
)
