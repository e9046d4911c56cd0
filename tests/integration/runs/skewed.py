"""`python -m tests.integration.runs.skewed SECONDS`: a worker with a shifted wall clock; it drains on end of input."""

from __future__ import annotations

import datetime as module
import sys
import time

REAL, REAL_TIME, REAL_TIME_NS = module.datetime, time.time, time.time_ns


def shift(seconds: float) -> None:
    """Shift `time.time`, `datetime.now` and the like by this much; monotonic clocks stay."""

    class Meta(type):
        def __instancecheck__(cls, other: object) -> bool:
            return isinstance(other, REAL)

    class Shifted(REAL, metaclass=Meta):
        @classmethod
        def now(cls, tz: module.tzinfo | None = None) -> Shifted:
            at = REAL.now(tz) + module.timedelta(seconds=seconds)
            return cls(at.year, at.month, at.day, at.hour, at.minute, at.second, at.microsecond, at.tzinfo)

        @classmethod
        def utcnow(cls) -> Shifted:
            return cls.now(module.UTC).replace(tzinfo=None)

    # Queue messages contain a time, which is pickled by its class's name.
    Shifted.__module__, Shifted.__qualname__ = "datetime", "datetime"
    time.time = lambda: REAL_TIME() + seconds
    time.time_ns = lambda: REAL_TIME_NS() + int(seconds * 10**9)
    module.datetime = Shifted  # type: ignore[misc]


def main() -> None:
    import asyncio
    import os
    import threading
    from datetime import datetime

    import django

    django.setup()
    from runs.fleet import members
    from runs.workers.run_loop import Host

    assert abs(datetime.now().timestamp() - REAL_TIME() - float(sys.argv[1])) < 3600
    identity = members.identify(os.getpid())
    assert identity is not None
    host = Host(slots=10, incarnation=members.incarnation_id(identity))
    assert members.beat(kind="worker", pid=os.getpid())

    def wait_for_the_end() -> None:
        sys.stdin.read()
        host.drain(5)

    threading.Thread(target=wait_for_the_end, daemon=True).start()
    asyncio.run(host.serve())


if __name__ == "__main__":
    if float(sys.argv[1]):
        shift(float(sys.argv[1]))
    main()
