"""Verification of a run's own tables against its journal; see ledger/verification/runs.py."""

from __future__ import annotations

from ledger.verification import registers
from ledger.verification.runs import register as add
from runs.verification.attributes import Attributes, SeenBy
from runs.verification.batches import Batches
from runs.verification.effects import Effects, Undoing
from runs.verification.forks import Forks
from runs.verification.halts import every_halt
from runs.verification.messages import CachedReads, Messages, Screened
from runs.verification.pools import Charges, every_pool
from runs.verification.releases import Assigned, every_release
from runs.verification.rows import RunFields
from runs.verification.snapshots import Checkpoints, Incidents, Signals
from runs.verification.succession import Succession
from runs.verification.waits import Waits


def register() -> None:
    """Register the checks."""
    add(
        Effects,
        RunFields,
        Checkpoints,
        Signals,
        Messages,
        Incidents,
        Waits,
        Attributes,
        Charges,
        Succession,
        Screened,
        CachedReads,
        Assigned,
        Undoing,
        Forks,
        SeenBy,
        Batches,
        runs_run="id",
        runs_wait="run_id",
        runs_checkpoint="run_id",
        runs_signal="run_id",
        runs_incident="run_id",
        runs_message="run_id",
        runs_attribute="run_id",
        runs_poolcharge="run_id",
        runs_cachedread="run_id",
        runs_rampstart="run_id",
    )
    for check in (every_pool, every_release, every_halt):
        if check not in registers.more:
            registers.more.append(check)
