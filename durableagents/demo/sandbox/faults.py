"""The faults people inject, and which one a request meets."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from .problems import wrong
from .store import Store

ANY = "*"
DEFAULT_W9_DELAY_SECONDS = 3.0
LONGEST_LATENCY_MS = 600_000
LONGEST_W9_DELAY_SECONDS = 86_400


@dataclass(frozen=True)
class Fault:
    """One entry, whole: what it doesn't mention is no fault."""

    system: str = ANY
    operation: str = ANY
    latency_ms: float = 0
    error_rate: float = 0
    drop_after_execute_rate: float = 0
    w9_delay_seconds: float | None = None

    @property
    def strikes_before(self) -> bool:
        return random.random() < self.error_rate

    @property
    def strikes_after(self) -> bool:
        return random.random() < self.drop_after_execute_rate


NO_FAULT = Fault()
_BOUNDS = {
    "latency_ms": LONGEST_LATENCY_MS,
    "error_rate": 1,
    "drop_after_execute_rate": 1,
    "w9_delay_seconds": LONGEST_W9_DELAY_SECONDS,
}


class FaultBook:
    """All entries in memory, each change committed before it is in force. ``known`` maps a system to its operations."""

    def __init__(self, store: Store, known: dict[str, set[str]]) -> None:
        self._store = store
        self._known = known
        self._entries: dict[tuple[str, str], Fault] = {}

    async def load(self) -> None:
        rows = await self._store.read(
            lambda connection: connection.execute("SELECT * FROM faults").fetchall()
        )
        self._entries = {(row["system"], row["operation"]): Fault(**dict(row)) for row in rows}

    def entries(self) -> list[Fault]:
        return [self._entries[pair] for pair in sorted(self._entries)]

    def targets(self) -> dict[str, list[str]]:
        """What an entry may name, for a form."""
        operations = sorted(set().union(*self._known.values()))
        return {"system": [ANY, *sorted(self._known)], "operation": [ANY, *operations]}

    def meeting(self, system: str, operation: str) -> Fault:
        return next(self._from_most_specific(system, operation), NO_FAULT)

    @property
    def w9_delay_seconds(self) -> float:
        said = (
            fault.w9_delay_seconds for fault in self._from_most_specific("portal", "request_w9")
        )
        return next((seconds for seconds in said if seconds is not None), DEFAULT_W9_DELAY_SECONDS)

    async def replace(self, given: dict[str, Any]) -> Fault:
        """Raises Problem 422 naming the field."""
        fault = self.parse(given)
        await self._store.write(lambda connection: _save(connection, fault))
        self._entries[fault.system, fault.operation] = fault
        return fault

    async def clear(self) -> None:
        await self._store.write(lambda connection: connection.execute("DELETE FROM faults"))
        self._entries.clear()

    def parse(self, given: dict[str, Any]) -> Fault:
        unknown = sorted(given.keys() - Fault.__dataclass_fields__.keys())
        if unknown:
            raise wrong(
                unknown[0], f"no such field; there are {', '.join(Fault.__dataclass_fields__)}"
            )
        system, operation = self._target(given)
        numbers = {
            name: _number(given[name], name)
            for name in _BOUNDS
            if name in given and not _is_unsaid(given, name)
        }
        return Fault(system, operation, **numbers)

    def _target(self, given: dict[str, Any]) -> tuple[str, str]:
        system, operation = given.get("system", ANY), given.get("operation", ANY)
        for name, value in (("system", system), ("operation", operation)):
            if not isinstance(value, str):
                raise wrong(name, "must be text")
        if system != ANY and system not in self._known:
            raise wrong("system", f"no such system; there are {', '.join(self._known)} and *")
        operations = self._known[system] if system != ANY else set().union(*self._known.values())
        if operation != ANY and operation not in operations:
            raise wrong(
                "operation",
                f"no such operation here; there are {', '.join(sorted(operations))} and *",
            )
        return system, operation

    def _from_most_specific(self, system: str, operation: str) -> Iterator[Fault]:
        pairs = ((system, operation), (system, ANY), (ANY, operation), (ANY, ANY))
        return (self._entries[pair] for pair in pairs if pair in self._entries)


def _is_unsaid(given: dict[str, Any], name: str) -> bool:
    return name == "w9_delay_seconds" and given[name] is None


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise wrong(name, "must be a number")
    # Compared before it is converted: float() of a huge integer overflows.
    if not 0 <= value <= _BOUNDS[name]:
        raise wrong(name, f"must be between 0 and {_BOUNDS[name]}")
    return value


def _save(connection: sqlite3.Connection, fault: Fault) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO faults VALUES (:system, :operation, :latency_ms, :error_rate, :drop_after_execute_rate,"
        " :w9_delay_seconds)",
        asdict(fault),
    )


async def endure(fault: Fault) -> bool:
    """Wait out the latency; true if the request then fails before doing anything."""
    if fault.latency_ms:
        await asyncio.sleep(fault.latency_ms / 1000)
    return fault.strikes_before
