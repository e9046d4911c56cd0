"""The feature of this app: the hourly round, the expiry of clients' keys, and holds that prevent removal."""

from __future__ import annotations

from durableagents.contrib.retention import archiving, client_keys, holds, places
from durableagents.contrib.retention.register import every_archived_run, every_expiry, expired_checkpoints
from runs.background import Duty
from runs.features import Feature

ROUND = "retention: round"
# Due only if the owner permits workers to remove rows. Without a storage, only checkpoints can be removed. All of these
# tables are small.
_IS_DUE = """EXISTS (SELECT FROM retention_allowance)
    AND EXISTS (SELECT FROM retention_policy WHERE {is_set} OR checkpoint_days IS NOT NULL)
    AND coalesce((SELECT at FROM retention_round ORDER BY id DESC LIMIT 1), '-infinity') < now() - interval '1 hour'"""


def feature() -> Feature:
    """Return the feature. The expiry of keys requires its setting."""
    is_due = _IS_DUE.format(is_set=places.is_set())
    return Feature(
        name="retention",
        periodic=(*client_keys.duties(), Duty(ROUND, is_due, archiving.run_when_due)),
        removal_refusals=(holds.refusal,),
        on_erased=(archiving.drop_earlier_files,),
        expired_checkpoints=expired_checkpoints,
        record_checks=(every_archived_run, every_expiry),
    )
