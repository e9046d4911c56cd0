"""The feature of this app: the hourly round where it is allowed, the expiry of clients' keys, and the holds that stop
removal."""

from __future__ import annotations

from durableagents.contrib.retention import archiving, client_keys, holds, places
from durableagents.contrib.retention.register import every_archived_run
from runs.background import Duty
from runs.features import Feature

ROUND = "retention: round"
# Only where the owner lets workers remove rows. The tables are as small as the rules are few.
_IS_DUE = """EXISTS (SELECT FROM retention_allowance) AND EXISTS (SELECT FROM retention_policy)
    AND coalesce((SELECT at FROM retention_round ORDER BY id DESC LIMIT 1), '-infinity') < now() - interval '1 hour'"""


def feature() -> Feature:
    """Return the feature; rounds only where a storage is configured, expiry of keys only where it is set."""
    rounds = (Duty(ROUND, _IS_DUE, archiving.run_when_due),) if places.is_set() else ()
    return Feature(
        name="retention",
        periodic=(*client_keys.duties(), *rounds),
        removal_refusals=(holds.refusal,),
        on_erased=(archiving.drop_earlier_files,),
        record_checks=(every_archived_run,),
    )
