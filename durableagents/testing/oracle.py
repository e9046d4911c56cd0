"""What left, in order, and what was carried out of it: told by the other side, not by the run's own record."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass
class Sent:
    """One request as the other side saw it: `tool`, `args`, idempotency `key`, place (`slot`, `attempt`, `run`), and
    whether it only reads (`is_read`), and whether it `happened`: None where nobody can tell."""

    tool: str
    args: Any
    key: str | None
    slot: str
    attempt: int
    run: str
    is_read: bool = False
    happened: bool | None = None

    def answered(self, answer: Any, after: BaseException | None) -> Any:
        """It was carried out, with this `answer`; what comes `after` it keeps that from the run."""
        self.happened = True
        if after is not None:
            raise after
        return answer

    def failed(self, error: Exception, *, is_definite: bool) -> Exception:
        """The tool raised this `error`: a definite no (`is_definite`), or nobody knows."""
        self.happened = False if is_definite else None
        return error

    @property
    def identity(self) -> tuple[str, ...]:
        """What the other side tells effects apart by: a key, where there is one, and the body that came with it; else
        each request is another."""
        body = json.dumps(self.args, sort_keys=True, default=str)
        return (self.tool, self.key, body) if self.key is not None else (self.tool, str(id(self)))


@dataclass(frozen=True, slots=True)
class Effect:
    """Something that was done outside: by which `tool`, with which `args`, under which `key`, at which `slot` of which
    `run`."""

    tool: str
    args: Any
    key: str | None
    slot: str
    run: str


def effects_of(sent: Iterable[Sent]) -> list[Effect]:
    """What was carried out, in order: a repeat under one key with one body is one effect."""
    found: dict[tuple[str, ...], Effect] = {}
    for each in sent:
        if each.happened and not each.is_read:
            found.setdefault(each.identity, Effect(each.tool, each.args, each.key, each.slot, each.run))
    return list(found.values())


def twice(sent: Sequence[Sent]) -> list[str]:
    """What is wrong with what left: another body under a key, or a call that was carried out more than once."""
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
