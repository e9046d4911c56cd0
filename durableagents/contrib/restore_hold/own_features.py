"""The feature of this app: a comparison at each start and new connection, and a thread that maintains the head file."""

from __future__ import annotations

from durableagents.contrib.restore_hold import marking
from durableagents.contrib.restore_hold.doubts import panel
from runs.features import Feature


def feature() -> Feature:
    """Return the feature."""
    return Feature(
        name="restore hold",
        on_serving=(marking.check_process,),
        on_connection=(marking.check_connection,),
        while_driving=(marking.marking,),
        fences=(marking.is_overdue,),
        halt_panels=(panel,),
    )
