"""A journal whose writer dies as scheduled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from runs.engine.journal import Batch, Reply
from runs.engine.memory import MemoryJournal
from tests.unit.engine.story import Story
from tests.world import Killed


@dataclass
class Death:
    """The worker dies at its `nth` write from here, before or after its effect, or in the middle of a call."""

    nth: int
    when: Literal["before", "after", "call"]


class MortalJournal(MemoryJournal):
    schedule: list[Death]

    async def _dying(self, writing: Any) -> Reply:
        death = self.schedule[0] if self.schedule else None
        if death is None or death.when == "call":
            return await writing  # type: ignore[no-any-return]
        death.nth -= 1
        if death.nth > 0:
            return await writing  # type: ignore[no-any-return]
        self.schedule.pop(0)
        if death.when == "before":
            writing.close()
            raise Killed("before a write")
        await writing
        raise Killed("after a write")

    async def commit(self, batch: Batch) -> Reply:
        return await self._dying(super().commit(batch))

    async def leave(self, *args: Any, **kwargs: Any) -> Reply:
        return await self._dying(super().leave(*args, **kwargs))

    async def answer(self, *args: Any, **kwargs: Any) -> Reply:
        return await self._dying(super().answer(*args, **kwargs))

    async def succeed(self, *args: Any, **kwargs: Any) -> Reply:
        return await self._dying(super().succeed(*args, **kwargs))


def mortal(schedule: list[Death]) -> type[MortalJournal]:
    class Mortal(MortalJournal):
        pass

    Mortal.schedule = schedule
    return Mortal


def die_as_scheduled(story: Story, schedule: list[Death], points: Collection[str] = ("CP2", "CP4")) -> None:
    """Let the worker die at these writes, and at these points in the middle of its calls."""
    story.journal, plain = mortal(schedule), story._hit

    def hit(point: str, tool: str) -> None:
        if point in points and schedule and schedule[0].when == "call":
            schedule[0].nth -= 1
            if schedule[0].nth <= 0:
                schedule.pop(0)
                raise Killed("in a call")
        plain(point, tool)

    story._hit = hit  # type: ignore[method-assign]
