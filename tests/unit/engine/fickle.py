from __future__ import annotations

from collections import Counter
from typing import Any

from durableagents import BusinessFailure, KeyRejected, NotSent, TransportError
from tests.world import Item, Outside


class Fickle(Outside):
    """An `Outside` that refuses some bodies, or fails them at first."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: Counter[str] = Counter()

    def _serve(self, name: str, args: Item, call: Any) -> Any:
        if args.name.startswith("refused"):
            raise BusinessFailure("never", code="refused")
        if args.name.startswith("flaky") and self.failed[args.name] < 2:
            self.failed[args.name] += 1
            raise NotSent("refused connection")
        if args.name.startswith("away") and self.failed[args.name] < 2:
            self.failed[args.name] += 1
            super()._serve(name, args, call)
            raise TransportError("cut after it was done")
        if args.name.startswith("rejected") and call.attempt == 0:
            self.failed[args.name] += 1
            if self.failed[args.name] > 1:
                raise KeyRejected("this key was used with another body")
            super()._serve(name, args, call)
            raise TransportError("cut after it was done")
        return super()._serve(name, args, call)
