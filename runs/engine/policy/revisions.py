"""What `runs_check_policies` holds an intent to in the database: where that is asked outside of it."""

from __future__ import annotations

from runs.engine.errors import PoliciesChanged


def hold_to(revision: int, live: int, judged: int | None) -> None:
    """Raises PoliciesChanged for a call that was judged by other policies than the `live` ones of now, those of
    `revision`. None: it was judged by none, for there were none."""
    if judged != revision and not (judged is None and live == 0):
        raise PoliciesChanged(f"judged by the policies of revision {judged}, in force are those of {revision}")
