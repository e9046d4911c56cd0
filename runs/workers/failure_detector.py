"""When silence is enough: what one watcher makes of the fleet's roll call, pass after pass. Pure: no I/O, and time is
an argument.

Proof of death needs none of this (runs/workers/failover.py acts on it at once). Here are the two cases without proof:

- a worker's session lock is gone and it has not announced itself for `GRACE_SECONDS`: *suspicion*. Never on the host
  that can see the process run, and never within one TTL of the server's start or of this watcher's own arrival, for a
  restarted server, or one that was just promoted, has nobody's locks;
- a worker has given no sign of life for longer than the TTL by the database's clock: its *host is gone* if nobody on
  that host has, else it is suspected alone (it may be stopped; the fence makes taking over safe, whatever it does when
  it comes back). Not within one TTL of the server's start either: while it was away nobody could beat, and who is slow
  to come back is no less alive.

Both clocks must agree: the database's says how long the silence is, this watcher's monotonic one says that it was awake
to hear it. After a machine slept, or nobody could reach the database, every heartbeat looks old at once; a watcher that
has not been looking without interruption believes none of that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runs.fleet.members import Member

GRACE_SECONDS = 1.0
# How long this watcher must itself have heard nothing before it believes that there was nothing to hear.
HEARD_NOTHING_SECONDS = 3.0
# A watcher that didn't look for this long begins anew.
GAP_SECONDS = 2.5


@dataclass(frozen=True, slots=True)
class Verdict:
    """A worker whose runs are to go on elsewhere, the cause, and why in words."""

    id: UUID
    cause: str
    proof: str


class Watcher:
    """One process's memory of the roll calls."""

    def __init__(self, ttl_seconds: float, is_running_here: Callable[[Member], bool]) -> None:
        self._ttl, self._is_running_here = ttl_seconds, is_running_here
        self._since: float | None = None
        self._last = 0.0
        self._heard: dict[UUID, tuple[datetime, float]] = {}
        self._unanchored: dict[UUID, tuple[datetime, float]] = {}

    def judge(self, members: Sequence[Member], server_age: float, now: float) -> list[Verdict]:
        """Take in one roll call at `now` (monotonic seconds); whom it condemns."""
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
            proof = f"its session lock is gone and it has not announced itself again within {GRACE_SECONDS:g} s"
            return Verdict(member.id, "suspicion", proof)
        return None

    def _silent(self, member: Member) -> Verdict:
        # Its neighbours' last beats came a moment before or after its own: a host that went silent with it is none that
        # lives.
        if member.host_silence > self._ttl / 2:
            return Verdict(
                member.id,
                "host_gone",
                f"nobody on {member.host} has given a sign of life for {member.host_silence:.0f} s",
            )
        return Verdict(
            member.id, "suspicion", f"no sign of life for {member.silence:.0f} s, though its host {member.host} lives"
        )


def _lasts(known: dict[UUID, tuple[datetime, float]], member: Member, now: float) -> float:
    """For how long this watcher has been seeing the very same heartbeat of a member."""
    beat, since = known.get(member.id, (None, now))
    if beat != member.last_heartbeat_at:
        known[member.id] = (member.last_heartbeat_at, now)
        return 0.0
    return now - since
