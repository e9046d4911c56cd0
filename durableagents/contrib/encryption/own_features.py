"""The feature of this app."""

from __future__ import annotations

from durableagents.contrib.encryption.run_keys import RunKeys
from durableagents.contrib.encryption.verification import Erased, every_erasure
from runs.features import Feature


def feature(keys: RunKeys) -> Feature:
    """Return the feature, with the keys that this process uses."""
    return Feature(
        name="encryption",
        on_birth=(keys.birth,),
        before_read=(keys.prepare,),
        run_checks=(Erased,),
        run_tables={"encryption_erasure": "run_id"},
        record_checks=(every_erasure,),
    )
