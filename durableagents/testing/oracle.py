"""The requests that were sent, in order, and their effects, from the view of the upstream system.

They don't depend on the run's record.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Sent:
    """One request, from the view of the upstream system.

    It has `tool`, `args`, idempotency `key` and place (`slot`, `attempt`, `run`). `is_read`: it only reads. `happened`:
    whether it was carried out, None if unknown.
    """

    tool: str
    args: Any
    key: str | None
    slot: str
    attempt: int
    run: str
    is_read: bool = False
    happened: bool | None = None

    def answered(self, answer: Any, after: BaseException | None) -> Any:
        """Record that the request was carried out with this `answer`. An `after` error hides that from the run."""
        self.happened = True
        if after is not None:
            raise after
        return answer

    def failed(self, error: Exception, *, is_definite: bool) -> Exception:
        """Record the tool's `error`: a definite refusal (`is_definite`), or an unknown outcome."""
        self.happened = False if is_definite else None
        return error

    @property
    def identity(self) -> tuple[str, ...]:
        """Return the identity of the effect: key and body if there is a key, else the request itself."""
        body = json.dumps(self.args, sort_keys=True, default=str)
        return (self.tool, self.key, body) if self.key is not None else (self.tool, str(id(self)))


@dataclass(frozen=True, slots=True)
class Effect:
    """One effect in an upstream system: its `tool`, `args` and `key`, and the `slot` and `run` that caused it."""

    tool: str
    args: Any
    key: str | None
    slot: str
    run: str


def effects_of(sent: Iterable[Sent]) -> list[Effect]:
    """Return the effects in order. Repeats with the same key and body are one effect."""
    found: dict[tuple[str, ...], Effect] = {}
    for each in sent:
        if each.happened and not each.is_read:
            found.setdefault(each.identity, Effect(each.tool, each.args, each.key, each.slot, each.run))
    return list(found.values())


def twice(sent: Sequence[Sent]) -> list[str]:
    """Return problems with requests: a key with two bodies, or a call that was carried out more than once."""
    problems: list[str] = []
    bodies: dict[tuple[str, str], Sent] = {}
    done: dict[tuple[str, str], list[Effect]] = {}
    for each in (x for x in sent if x.key is not None):
        first = bodies.setdefault((each.tool, each.key or ""), each)
        if first.args != each.args:
            problems.append(
                f"{each.tool} at {each.slot} sent another body under the same key: {first.args}, {each.args}"
            )
    for effect in effects_of(sent):
        done.setdefault((effect.run, effect.slot), []).append(effect)
    for (_, slot), several in done.items():
        if len(several) > 1:
            problems.append(f"{several[0].tool} at {slot} was carried out {len(several)} times: {several[0].args}")
    return problems
