"""The features of this app."""

from __future__ import annotations

from approvals import offered, services
from approvals.calendars import asof
from approvals.deadlines import due
from approvals.deadlines.listed import absences_of, timing_of
from approvals.granting import using
from approvals.granting.listed import bounds_of
from approvals.policies.inforce import STATEMENT, book_of
from approvals.policies.verification import Policed, every_revision
from approvals.queues import along, standing
from approvals.timing import course
from approvals.verification import Gates
from runs.features import Feature, Policies, Queues
from runs.models import Wait

FEATURES = (
    Feature(
        name="approvals",
        open_gate=services.opener,
        queues=Queues(
            statement=along.FACTS,
            is_ours=along.is_ours,
            timings_in=asof.timings,
            role_of=standing.role_held,
            escalated=standing.went_further,
        ),
        on_question=(services.ON_ASK,),
        on_withdraw=(services.WITHDRAW,),
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
            "approvals_assertion": "run_id",
        },
    ),
    Feature(
        name="deadlines",
        on_wait_due={Wait.Kind.APPROVAL: due.on_due},
        on_wait_moved={Wait.Kind.APPROVAL: course.follow},
        sweeps=(due.look,),
        queue_panels=(lambda queue: {"t": timing_of(queue)},),
        queue_list_panels=(lambda person: {"absences": absences_of(person)},),
    ),
    Feature(name="standing grants", sweeps=(using.look,), queue_panels=(bounds_of,)),
    Feature(
        name="policies",
        policies=Policies(statement=STATEMENT, made_of=book_of),
        run_checks=(Policed,),
        record_checks=(every_revision,),
    ),
)
