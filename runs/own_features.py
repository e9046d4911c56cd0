"""The features of this app."""

from __future__ import annotations

from ledger.verification import jobs
from runs.background import Duty
from runs.features import Feature
from runs.models import Wait
from runs.services import callbacks
from runs.services.budgets import raising
from runs.services.families import wishes
from runs.services.starts import turns
from runs.verification.continuation import Continuation
from runs.verification.effects import Effects, Undoing
from runs.verification.messages import CachedReads, Messages, Screened
from runs.verification.rows import RunFields, SeenBy
from runs.verification.snapshots import Checkpoints, Incidents, Signals
from runs.verification.waits import Waits

FEATURES = (
    Feature(
        name="runs",
        periodic=(Duty("verification", jobs.IS_DUE, jobs.start_process),),
        run_checks=(Effects, RunFields, Checkpoints, Signals, Incidents, Waits, Continuation, Undoing),
        run_tables={
            "runs_run": "id",
            "runs_wait": "run_id",
            "runs_checkpoint": "run_id",
            "runs_signal": "run_id",
            "runs_incident": "run_id",
        },
    ),
    Feature(name="callbacks", on_wait_due={Wait.Kind.WEBHOOK: callbacks.give_up}),
    Feature(name="children", on_action=(wishes.follow,)),
    Feature(name="turns", on_action=(turns.follow,)),
    Feature(
        name="messages",
        on_withdraw=("SELECT runs_end_messages(%s)",),
        run_checks=(Messages,),
        run_tables={"runs_message": "run_id"},
    ),
    Feature(name="budgets", on_wait_due={Wait.Kind.BUDGET: raising.give_up}),
    Feature(name="tags", run_checks=(SeenBy,)),
    Feature(name="read cache", run_checks=(CachedReads,), run_tables={"runs_cachedread": "run_id"}),
    Feature(name="content", run_checks=(Screened,)),
)
