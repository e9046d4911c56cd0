"""The feature of this app: it times journal writes, and has two worker jobs, which count events and measure figures."""

from __future__ import annotations

from durableagents.contrib.metrics.collecting import IS_DUE, collect
from durableagents.contrib.metrics.commits import commits
from ledger.observers import WriteTimed
from runs.background import Duty
from runs.features import Feature


def feature() -> Feature:
    """Return the feature."""
    return Feature(
        name="metrics",
        observers={WriteTimed: commits.note},
        periodic=(Duty("metrics: commits", "true", commits.flush), Duty("metrics: collecting", IS_DUE, collect)),
    )
