"""The faults that people inject, and the choice of the one that applies to a request."""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import Iterator
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, ConfigDict, PlainValidator, ValidationError
from pydantic_core import ErrorDetails

from .store import Store
from .web.wire import wrong

ANY = "*"
DEFAULT_W9_DELAY_SECONDS = 3.0


def _up_to(most: float) -> PlainValidator:
    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError("must be a number")
        # Compared before it is converted: float() of a huge integer overflows.
        if not 0 <= value <= most:
            raise ValueError(f"must be between 0 and {most}")
        return value

    return PlainValidator(check)


class Fault(BaseModel):
    """One complete entry: the fields that it doesn't set mean no fault."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    system: str = ANY
    operation: str = ANY
    latency_ms: Annotated[float, _up_to(600_000)] = 0
    error_rate: Annotated[float, _up_to(1)] = 0
    drop_after_execute_rate: Annotated[float, _up_to(1)] = 0
    w9_delay_seconds: Annotated[float, _up_to(86_400)] | None = None
    refuse_rate: Annotated[float, _up_to(1)] = 0

    @property
    def refuses(self) -> bool:
        return random.random() < self.refuse_rate

    @property
    def strikes_before(self) -> bool:
        return random.random() < self.error_rate

    @property
    def strikes_after(self) -> bool:
        return random.random() < self.drop_after_execute_rate


NO_FAULT = Fault()


class FaultBook:
    """All entries, in memory. A change is committed before it takes effect. ``known``: operations by system."""

    def __init__(self, store: Store, known: dict[str, set[str]]) -> None:
        self._store = store
        self._known = known
        self._entries: dict[tuple[str, str], Fault] = {}

    async def load(self) -> None:
        rows = await self._store.read(lambda connection: connection.execute("SELECT * FROM faults").fetchall())
        self._entries = {(row["system"], row["operation"]): Fault(**dict(row)) for row in rows}

    def entries(self) -> list[Fault]:
        return [self._entries[pair] for pair in sorted(self._entries)]

    def targets(self) -> dict[str, list[str]]:
        """Return the targets that an entry may name, for a form."""
        operations = sorted(set().union(*self._known.values()))
        return {"system": [ANY, *sorted(self._known)], "operation": [ANY, *operations]}

    def meeting(self, system: str, operation: str) -> Fault:
        return next(self._from_most_specific(system, operation), NO_FAULT)

    @property
    def w9_delay_seconds(self) -> float:
        delays = (fault.w9_delay_seconds for fault in self._from_most_specific("portal", "request_w9"))
        return next((seconds for seconds in delays if seconds is not None), DEFAULT_W9_DELAY_SECONDS)

    async def replace(self, given: dict[str, Any]) -> Fault:
        """Save an entry, replacing the one for the same target. Raises Problem 422, which names the field."""
        fault = self.parse(given)
        await self._store.write(lambda connection: _save(connection, fault))
        self._entries[fault.system, fault.operation] = fault
        return fault

    async def clear(self) -> None:
        await self._store.write(lambda connection: connection.execute("DELETE FROM faults"))
        self._entries.clear()

    def parse(self, given: dict[str, Any]) -> Fault:
        try:
            fault = Fault.model_validate(given)
        except ValidationError as error:
            self._refuse(given, error.errors(include_url=False))
        self._check_target(fault.system, fault.operation)
        return fault

    def _refuse(self, given: dict[str, Any], errors: list[ErrorDetails]) -> NoReturn:
        """Raise Problem 422 for the first error, in this order: unknown field, text, target, number."""
        unknown = sorted(str(each["loc"][0]) for each in errors if each["type"] == "extra_forbidden")
        if unknown:
            raise wrong(unknown[0], f"no such field; there are {', '.join(Fault.model_fields)}")
        for each in errors:
            if each["type"] == "string_type":
                raise wrong(str(each["loc"][0]), "must be text")
        self._check_target(given.get("system", ANY), given.get("operation", ANY))
        raise wrong(str(errors[0]["loc"][0]), str(errors[0]["ctx"]["error"]))

    def _check_target(self, system: str, operation: str) -> None:
        if system != ANY and system not in self._known:
            raise wrong("system", f"no such system; there are {', '.join(self._known)} and *")
        operations = self._known[system] if system != ANY else set().union(*self._known.values())
        if operation != ANY and operation not in operations:
            raise wrong(
                "operation",
                f"no such operation here; there are {', '.join(sorted(operations))} and *",
            )

    def _from_most_specific(self, system: str, operation: str) -> Iterator[Fault]:
        pairs = ((system, operation), (system, ANY), (ANY, operation), (ANY, ANY))
        return (self._entries[pair] for pair in pairs if pair in self._entries)


def _save(connection: sqlite3.Connection, fault: Fault) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO faults (system, operation, latency_ms, error_rate, drop_after_execute_rate,"
        " w9_delay_seconds, refuse_rate) VALUES (:system, :operation, :latency_ms, :error_rate,"
        " :drop_after_execute_rate, :w9_delay_seconds, :refuse_rate)",
        fault.model_dump(),
    )


async def endure(fault: Fault) -> bool:
    """Wait out the latency; true if the request then fails before doing anything."""
    if fault.latency_ms:
        await asyncio.sleep(fault.latency_ms / 1000)
    return fault.strikes_before
