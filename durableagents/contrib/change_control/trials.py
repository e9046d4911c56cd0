"""Store the arguments of acts that change rules, and find out what the act would do."""

# A trial runs the service itself in a savepoint that is rolled back. So the author learns of a refusal at once, and the
# second person reads the records that it would write.

from __future__ import annotations

import inspect
import json
from collections.abc import Mapping
from typing import Any, get_type_hints

from django.db import transaction
from pydantic import TypeAdapter

from ledger.actors import Actor
from ledger.append import hearing
from ledger.change_control import NUMBER, Guarded, agreed


def pack(act: Guarded, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments as JSON, without the actor. `unpack` restores them."""
    bound = inspect.signature(act.act).bind(*args, **kwargs).arguments
    given = {name: value for name, value in bound.items() if name != "by"}
    kept = {name: _adapter(act, name).dump_python(value, mode="json") for name, value in given.items()}
    assert unpack(act, kept) == given, "is read back unchanged"
    return kept


def unpack(act: Guarded, kept: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that were packed."""
    return {name: _adapter(act, name).validate_json(json.dumps(value)) for name, value in kept.items()}


def perform(act: Guarded, given: Mapping[str, Any], by: Actor) -> list[dict[str, Any]]:
    """Perform the act and return its records. Raises the errors of the act."""
    with agreed(), hearing() as records:
        act.act(**given, by=by)
    return [_without_moving(act, each) for each in records]


def attempt(act: Guarded, given: Mapping[str, Any], by: Actor) -> list[dict[str, Any]]:
    """Perform the act, roll it back, and return the records it would write. Raises the errors of the act."""
    records: list[dict[str, Any]] = []
    try:
        with transaction.atomic():
            records = perform(act, given, by)
            raise _Undone
    except _Undone:
        return records


def _without_moving(act: Guarded, record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without the values that differ each time the act is performed."""
    name, moving = record["action"], act.moving
    after = {key: value for key, value in record["after"].items() if moving.isdisjoint((key, f"{name}.{key}"))}
    what, _, last = record["subject"].rpartition(" ")
    subject = f"{what} (new)" if NUMBER in moving and last.isdecimal() else record["subject"]
    settled: dict[str, Any] = json.loads(json.dumps({**record, "subject": subject, "after": after}))
    return settled


def _adapter(act: Guarded, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(get_type_hints(act.act)[name])


class _Undone(Exception):
    pass
