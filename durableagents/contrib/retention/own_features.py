"""The feature of this app: the hourly round, the expiry of clients' keys, and holds that prevent removal."""

from __future__ import annotations

from durableagents.contrib.retention import archiving, client_keys, holds, places
from durableagents.contrib.retention.register import every_archived_run
from runs.background import Duty
from runs.features import Feature

ROUND = "retention: round"
# The job is due only if the owner permits workers to remove rows. All tables in this query are small.
_IS_DUE = """EXISTS (SELECT FROM retention_allowance) AND EXISTS (SELECT FROM retention_policy)
    AND coalesce((SELECT at FROM retention_round ORDER BY id DESC LIMIT 1), '-infinity') < now() - interval '1 hour'"""


def feature() -> Feature:
    """Return the feature. Rounds require a configured storage, and the expiry of keys requires its setting."""
    rounds = (Duty(ROUND, _IS_DUE, archiving.run_when_due),) if places.is_set() else ()
    return Feature(
        name="retention",
        periodic=(*client_keys.duties(), *rounds),
        removal_refusals=(holds.refusal,),
        on_erased=(archiving.drop_earlier_files,),
        record_checks=(every_archived_run,),
    )
