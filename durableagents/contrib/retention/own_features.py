"""The feature of this app: a job that archives every hour where it may, and the holds that stop removal."""

from __future__ import annotations

from durableagents.contrib.retention import archiving, holds, places
from durableagents.contrib.retention.register import every_archived_run
from runs.background import Duty
from runs.features import Feature

ROUND = "retention: round"
# Only where the owner lets workers remove rows. The tables are as small as the rules are few.
_IS_DUE = """EXISTS (SELECT FROM retention_allowance) AND EXISTS (SELECT FROM retention_policy)
    AND coalesce((SELECT at FROM retention_round ORDER BY id DESC LIMIT 1), '-infinity') < now() - interval '1 hour'"""


def feature() -> Feature:
    """Return the feature; the job only where a storage is configured."""
    return Feature(
        name="retention",
        periodic=(Duty(ROUND, _IS_DUE, archiving.run_when_due),) if places.is_configured() else (),
        removal_refusals=(holds.refusal,),
        on_erased=(archiving.drop_earlier_files,),
        record_checks=(every_archived_run,),
    )
