"""Decides from the fleet's roll calls which silent workers are lost. Pure: no I/O, time is an argument.

Proof of death is handled at once by runs/workers/failover.py. Without proof, a worker is lost in two cases:
- Suspicion: a worker's session lock is gone, and it has been silent for `GRACE_SECONDS`. This never applies on the host
  where the process is seen running, nor within one TTL of the server's start or this watcher's own start, because a
  restarted or promoted server holds no locks.
- Silence longer than the TTL on the database's clock. If no process of the host sent a heartbeat, the host is
  considered gone; otherwise only the worker is suspected (it may be stopped; the fence makes failover safe). This
  doesn't apply within one TTL of the server's start either, because no heartbeat could be stored before.
The database's clock measures the silence. This watcher's monotonic clock measures whether the watcher itself was awake.
After a machine was suspended, or after an outage, every heartbeat looks old, so only uninterrupted watching counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runs.fleet.members import Member

GRACE_SECONDS = 1.0
# This watcher must have observed the silence itself for this long before it acts on it.
HEARD_NOTHING_SECONDS = 3.0
# A watcher that hasn't looked for this long starts over.
GAP_SECONDS = 2.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """A lost worker, the cause, and an explanation."""

    id: UUID
    cause: str
    proof: str


class Watcher:
    """Judges which workers are lost, from the roll calls that this process has seen so far."""

    def __init__(self, ttl_seconds: float, is_running_here: Callable[[Member], bool]) -> None:
        self._ttl, self._is_running_here = ttl_seconds, is_running_here
        self._since: float | None = None
        self._last = 0.0
        self._heard: dict[UUID, tuple[datetime, float]] = {}
        self._unanchored: dict[UUID, tuple[datetime, float]] = {}

    def judge(self, members: Sequence[Member], server_age: float, now: float) -> list[Verdict]:
        """Evaluate a roll call at `now` (monotonic seconds). Returns the lost workers."""
        if self._since is None or now - self._last > GAP_SECONDS:
            self._since = now
            self._heard.clear()
            self._unanchored.clear()
        self._last = now
        workers = [each for each in members if each.kind == "worker"]
        for known in (self._heard, self._unanchored):
            for gone in known.keys() - {each.id for each in workers}:
                del known[gone]
        verdicts = [self._judged(each, server_age, now) for each in workers]
        return [verdict for verdict in verdicts if verdict is not None]

    def _judged(self, member: Member, server_age: float, now: float) -> Verdict | None:
        heard_nothing = _lasts(self._heard, member, now)
        if member.is_anchored:
            self._unanchored.pop(member.id, None)
            unanchored = 0.0
        else:
            unanchored = _lasts(self._unanchored, member, now)
        if member.silence > self._ttl and heard_nothing >= HEARD_NOTHING_SECONDS:
            return self._silent(member) if server_age > self._ttl else None
        assert self._since is not None
        is_settled = min(server_age, now - self._since) > self._ttl
        if is_settled and unanchored >= GRACE_SECONDS and not (member.is_here and self._is_running_here(member)):
            proof = f"its session lock is released and it has not announced itself again within {GRACE_SECONDS:g} s"
            return Verdict(member.id, "suspicion", proof)
        return None

    def _silent(self, member: Member) -> Verdict:
        # If the last heartbeats of the host's other processes came at about the same time, the whole host went silent,
        # and is not alive.
        if member.host_silence > self._ttl / 2:
            return Verdict(
                member.id,
                "host_gone",
                f"no process on {member.host} has sent a heartbeat for {member.host_silence:.0f} s",
            )
        return Verdict(
            member.id, "suspicion", f"no sign of life for {member.silence:.0f} s, though its host {member.host} lives"
        )


def _lasts(known: dict[UUID, tuple[datetime, float]], member: Member, now: float) -> float:
    """Return how long this watcher has been seeing the same heartbeat of a member."""
    beat, since = known.get(member.id, (None, now))
    if beat != member.last_heartbeat_at:
        known[member.id] = (member.last_heartbeat_at, now)
        return 0.0
    return now - since
