"""Of a schedule's planned times, which is to be started now: those that nobody came to in time are missed, and what
becomes of them its rule says. Pure."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import chain, takewhile
from zoneinfo import ZoneInfo

from runs.services.schedules.cron import Cron

# Up to so much later a planned time was not missed.
GRACE = timedelta(minutes=5)
# What is older is not caught up with, and neither are more.
OLDEST, MOST = timedelta(days=31), 100


@dataclass(frozen=True, slots=True)
class Due:
    """The planned time to start for (None: none), those given up as missed (the last, and how many), and the planned
    time that is next. Each is after the missed ones."""

    start_for: datetime | None
    missed_at: datetime | None
    missed: int
    next_at: datetime | None


def due(cron: Cron, zone: ZoneInfo, next_at: datetime, now: datetime, rule: str) -> Due:
    """What is due at `now` where the first planned time that nobody looked at is `next_at`, by `rule`: skip, once or
    all."""
    first = next_at
    too_old = 0
    if first < now - OLDEST:
        first, too_old = next(cron.after(now - OLDEST, zone)), 1  # and who knows how many more
    late: deque[datetime] = deque(maxlen=MOST)
    in_time: list[datetime] = []
    n_late = 0
    for planned in takewhile(lambda moment: moment <= now, chain([first], cron.after(first, zone))):
        if planned < now - GRACE:
            late.append(planned)
            n_late += 1
        else:
            in_time.append(planned)
    wanted = _wanted(late, in_time, rule)
    kept = sum(planned in late for planned in wanted)
    given_up = [planned for planned in late if planned not in wanted]
    missed_at = given_up[-1] if given_up else next_at if too_old else None
    following = wanted[1] if len(wanted) > 1 else next(cron.after(max(now, first), zone), None)
    return Due(wanted[0] if wanted else None, missed_at, n_late - kept + too_old, following)


def _wanted(late: deque[datetime], in_time: list[datetime], rule: str) -> list[datetime]:
    if rule == "all":
        return [*late, *in_time][-MOST:]
    if rule == "once" and late and not in_time:
        return [late[-1]]
    return in_time
