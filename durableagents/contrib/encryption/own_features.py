"""The feature of this app."""

from __future__ import annotations

from typing import Any

from durableagents.contrib.encryption import commands
from durableagents.contrib.encryption.run_keys import RunKeys
from durableagents.contrib.encryption.verification import Erased, every_erasure
from runs.features import Feature, RunCommand


def panel(run: Any, _: Any, user: Any) -> Any:
    """Return the panel with the form for erasing, for a run's page."""
    # imported here, because only processes that serve pages need it
    from durableagents.contrib.encryption.views import panel as found

    return found(run, user)


def feature(keys: RunKeys) -> Feature:
    """Return the feature, whose cipher uses the keys of this process."""
    return Feature(
        name="encryption",
        on_birth=(keys.birth,),
        before_read=(keys.prepare,),
        run_checks=(Erased,),
        run_tables={"encryption_erasure": "run_id"},
        record_checks=(every_erasure,),
        run_panels=(panel,),
        run_commands={"erase": RunCommand(add_arguments=commands.add_arguments, lines=commands.lines)},
    )
