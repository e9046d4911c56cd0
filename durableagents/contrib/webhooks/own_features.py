"""The feature of this app: jobs that send messages and remove old ones."""

from __future__ import annotations

from durableagents.contrib.webhooks import delivering
from durableagents.contrib.webhooks.metrics import read_metrics
from runs.background import Duty
from runs.features import Feature


def feature() -> Feature:
    """Return the feature."""
    return Feature(
        name="webhooks",
        metrics=(read_metrics,),
        periodic=(
            Duty("webhooks: delivery", delivering.IS_DUE, delivering.deliver),
            Duty("webhooks: forgetting", delivering.IS_OLD, delivering.forget),
        ),
    )
