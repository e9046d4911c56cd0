"""Judges halts from outside, by their times and the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

_LEAVES = ("ToolInvoked", "ToolRedispatched")
_OF_RUNS = ("tag", "version")


@dataclass(frozen=True, slots=True)
class Stretch:
    """A full halt from `since` to `until`; all workers had confirmed it at `confirmed_at`."""

    scope: str
    key: str
    since: datetime
    until: datetime
    confirmed_at: datetime | None = None

    @property
    def is_of_runs(self) -> bool:
        """Return whether it halts whole runs, not only calls."""
        return self.scope in _OF_RUNS


def judge_halted(events: Sequence[Mapping[str, Any]], stretches: Sequence[Stretch]) -> Iterable[str]:
    """Check that under a halt nothing was sent and no run claimed, and that deadlines paused."""
    for event in events:
        at = datetime.fromisoformat(event["at"])
        what = f"event {event['seq']}, {event['kind']} of {event['slot'] or 'the run'}"
        for one in stretches:
            if one.since <= at < one.until and _begins(event, one):
                yield f"{what}: it began at {at}, under the halt of {one.scope} {one.key} since {one.since}"
            is_taken = event["kind"] == "RunClaimed" and one.is_of_runs and one.confirmed_at is not None
            if is_taken and one.confirmed_at <= at < one.until:  # type: ignore[operator]
                yield f"{what}: it was taken at {at}, and all had confirmed the halt of {one.scope} {one.key}"
    yield from _deadlines(events, [one for one in stretches if one.is_of_runs])


def _begins(event: Mapping[str, Any], one: Stretch) -> bool:
    kind, data = event["kind"], event["data"]
    match one.scope:
        case "tool":
            return kind in _LEAVES and data["tool"] == one.key
        case "provider":
            return kind == "ModelRouted" and data["model"].partition(":")[0] == one.key
        case _:
            return kind in (*_LEAVES, "ModelRouted")


def _deadlines(events: Sequence[Mapping[str, Any]], stretches: Sequence[Stretch]) -> Iterable[str]:
    """Check that what the sweeper ended was overdue without the time halted."""
    opened: dict[tuple[Any, ...], tuple[datetime, datetime]] = {}
    for event in events:
        data, at = event["data"], datetime.fromisoformat(event["at"])
        if event["kind"] not in ("WaitOpened", "WaitResolved") or data["wait"] == "pool":
            continue  # pools refill when a month ends, which halts don't postpone
        place = (event["slot"], event["attempt"], data["wait"], data["n"])
        if event["kind"] == "WaitOpened":
            opened[place] = at, datetime.fromisoformat(data["deadline"])
        elif data["by"] == "system:sweeper":
            since, deadline = opened[place]
            if at < deadline + (stood := _stood(stretches, since, at)):
                yield (
                    f"event {event['seq']}: the {data['wait']} of {event['slot']} ran out at {at}, due at {deadline} "
                    f"and {stood} of standing still later"
                )


def _stood(stretches: Sequence[Stretch], since: datetime, until: datetime) -> timedelta:
    """Return how long it was certainly halted; overlaps count once."""
    stood, end = timedelta(0), since
    for one in sorted(stretches, key=lambda one: one.since):
        begin, over = max(one.since, end), min(one.until, until)
        if begin < over:
            stood, end = stood + (over - begin), over
    return stood
