"""Formats of what is stored, and how an older one is read: step by step, each step from one number to the next."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Step = Callable[[Any], Any]


class UnknownFormat(ValueError):
    """Nobody here can read that format."""


@dataclass(frozen=True)
class Formats:
    """What is stored as `name`, of which this code writes the format `now`. `steps[n]` makes format n + 1 of n. Raises
    ValueError where a step is missing, or leads nowhere."""

    name: str
    now: int = 1
    steps: Mapping[int, Step] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if sorted(self.steps) != list(range(self.oldest, self.now)):
            known = ", ".join(map(str, sorted(self.steps))) or "none"
            raise ValueError(f"{self.name}: the steps to format {self.now} have a gap, or go beyond it: {known}")

    @property
    def oldest(self) -> int:
        """The oldest that can still be read."""
        return min(self.steps, default=self.now)

    def upgraded(self, number: object, thing: Any) -> Any:
        """`thing`, which is of the format `number`, as this code writes it. Raises UnknownFormat."""
        if isinstance(number, bool) or not isinstance(number, int):
            raise UnknownFormat(f"the {self.name} says {number!r} for its format, which is no number")
        if number > self.now:
            raise UnknownFormat(
                f"the {self.name} is of format {number}, and this version reads up to {self.now}: a newer one wrote it"
            )
        if number < self.oldest:
            raise UnknownFormat(
                f"the {self.name} is of format {number}, and the oldest that can be read is {self.oldest}"
            )
        for n in range(number, self.now):
            thing = self.steps[n](thing)
        return thing


# A checkpoint's `schema_version`, a file of `checkpoints export`, and an event in such a file. What an event of a kind
# looks like never changes; what would change here is how it stands in the file.
STATES = Formats("checkpoint")
FILES = Formats("checkpoint file")
